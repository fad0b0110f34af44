"""docs/operate.md is run from top to bottom: every command of it, at a real server."""

import sys

import pytest

from tests.conftest import ROOT
from tests.docs.test_guides import Guide, Home, home

__all__ = ["home"]

OPERATE = Guide(
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


def test_the_guide_runs_every_block_of_the_page() -> None:
    script = OPERATE.script()
    assert script.count("echo '--- ") == (ROOT / "docs" / "operate.md").read_text().count("```sh\n")
    assert [words for words in ("POOL", "KEY ", "OWNER", "ENDPOINT", ":8420") if words in script] == []
