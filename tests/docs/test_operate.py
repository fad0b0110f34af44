"""docs/operate.md is run from top to bottom: every command of it, at a real server."""

import re
import sys
from dataclasses import dataclass

import pytest

from tests.conftest import ROOT
from tests.docs.test_guides import Guide, Home, field_of, home

__all__ = ["home"]

IN_SENTENCES = {
    "gangline pools set POOL --nodes 0..8": "gangline pools set spare --nodes 0..1",  # which the job below needs
    "gangline pools check POOL": "gangline pools check spare --any-price",
    "gangline pools explain JOB": "gangline run --detach -- true; gangline pools explain last",
    "gangline jobs show": "gangline jobs show last",
    "gangline jobs timeline": "gangline jobs timeline last",
    "gangline nodes drain NODE": f"""until gangline nodes ls | grep ready; do sleep 0.2; done
gangline nodes drain {field_of("gangline nodes ls", "id")}""",
    "gangline jobs rm JOB": "gangline jobs cancel last; gangline jobs rm last --yes",
    "gangline jobs ls --state failed": "gangline jobs ls --state failed",
    "gangline join-tokens add": "gangline join-tokens add mine",
    "gangline join-tokens ls": "gangline join-tokens ls",
    "gangline join-tokens revoke TOKEN": f"gangline join-tokens revoke {field_of('gangline join-tokens ls', 'id')}",
    "gangline keys add NAME --role operator": "gangline keys add second --role operator",
    "gangline secrets set NAME": "echo a-new-value | gangline secrets set TRACKER",
    "gangline notify enable ENDPOINT": "gangline notify enable hook",
    "gangline notify replay ENDPOINT --since '2026-03-01 12:00'": "gangline notify replay hook --since '2026-03-01 12:00'",
    "gangline open --link": "gangline open --link",
}
"""What tables and sentences of the page name, and how it is run behind the blocks. `nodes logs` needs a
provider that keeps what nodes print."""


@dataclass(frozen=True, kw_only=True)
class Operating(Guide):
    def script(self) -> str:
        return super().script() + "\n".join(IN_SENTENCES.values()) + "\n"


OPERATE = Operating(
    page="operate.md",
    here={
        "openssl rand -hex 32": f"{sys.executable} -c 'import secrets; print(secrets.token_hex(32))'",
        "http://127.0.0.1:8420": "$ADDRESS",
        "gangline doctor\n": "gangline doctor || true\n",  # this machine may lack a card
        "deploy/alerts": str(ROOT / "deploy" / "alerts"),
        "gangline costs --by cause": "gangline pools add spare --driver local\ngangline costs --by cause",
        "POOL": "spare",
        "gangline keys ls\n": "gangline keys add guest > /dev/null\ngangline keys ls\n",
        "revoke KEY": "revoke guest",
        "--owner OWNER": "--owner me",
        "gangline notify ls\n": "gangline notify add webhook https://example.org/hook --name hook > /dev/null\ngangline notify ls\n",
        "log ENDPOINT": "log hook",
    },
)


@pytest.mark.tenths
@pytest.mark.timeout(1200)
def test_every_command_of_the_runbook_works_at_a_server(home: Home) -> None:
    said = home.run(OPERATE)
    assert '"status":"ok"' in said and '"ready":true' in said
    assert 'gangline_jobs{state="queued"} 0.0' in said and "gangline_build_info{" in said
    assert "SUCCESS: 16 rules found" in said
    found = re.findall(r"^(server|settings|database|store) +(ok|note|wrong) ", said, re.MULTILINE)
    assert found == [(about, "ok") for about in ("server", "settings", "database", "store")] * OPERATE.script().count(
        "gangline doctor"
    )
    assert "spare works" in said and "sent again to hook" in said


def test_the_guide_runs_every_block_of_the_page() -> None:
    script = OPERATE.script()
    assert script.count("echo '--- ") == (ROOT / "docs" / "operate.md").read_text().count("```sh\n")
    page = (ROOT / "docs" / "operate.md").read_text()
    assert [command for command in IN_SENTENCES if f"`{command}" not in page] == []
    assert [words for words in ("POOL", "KEY ", "OWNER", "ENDPOINT", ":8420") if words in script] == []
