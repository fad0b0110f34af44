"""Guides for beginners are run from top to bottom: every block of shell in its order, in an empty home, with a real server and node.

A block that is not run is named here with its reason. It is parsed all the same (test_snippets.py)."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gangline.cli.admin.box import quick_settings
from gangline.posix import descendants
from tests.conftest import ROOT
from tests.docs.snippets import SHELL, snippets

INSTALLS = "it installs packages"
NEEDS_A_CARD = "it needs a GPU and SDXL"
NO_SYSTEMD = "it needs systemd and a user who has logged in"
BEGIN = """set -euo pipefail
set -m
trap 'for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done; wait' EXIT
"""
STARTS_A_SERVER = re.compile(r"gangline (?:up|server)\b.* &\n")
UNTIL_IT_SERVES = """
until gangline jobs ls > /dev/null 2>&1; do kill -0 %1; sleep 0.2; done
ADDRESS=$(python -c 'import json; print(json.load(open("../.local/share/gangline/access.json"))["url"])')
"""


@dataclass(frozen=True, kw_only=True)
class Guide:
    page: str
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Why a block is not run, by some of its words."""
    here: Mapping[str, str] = field(default_factory=dict)
    """What the page calls by invented names, as it is called here."""

    def script(self) -> str:
        """Return the program that does what the page tells its readers to do."""
        unused = set(self.skipped)
        blocks = [BEGIN]
        for each in snippets(ROOT / "docs" / self.page):
            if each.language not in SHELL:
                continue
            why = [words for words in self.skipped if words in each.text]
            if why:
                unused -= set(why)
                continue
            waiting = UNTIL_IT_SERVES if STARTS_A_SERVER.match(each.text) else ""
            blocks.append(f"echo {shlex.quote(f'--- {each.place}')}\n{self._named(each.text, waiting)}\n")
        assert not unused, f"no block has the words {unused}"
        return "".join(blocks)

    def _named(self, text: str, waiting: str) -> str:
        first, _, rest = text.partition("\n") if waiting else ("", "", text)
        text = f"{first}{waiting}{rest}"
        for page, here in self.here.items():
            text = text.replace(page, here)
        return text


def field_of(command: str, name: str) -> str:
    """Return shell code for one field of the first thing that a command lists."""
    read = f"import json, sys; print(json.load(sys.stdin)[0][{name!r}])"
    return f"$({command} -o json | python -c {shlex.quote(read)})"


FIRST_LORA = Guide(
    page="first-lora.md",
    skipped={
        "pip install": INSTALLS,
        "gangline demo": "a test of its own runs the demo",
        "--name timber": NEEDS_A_CARD,
    },
)
OWN_SCRIPT = Guide(page="your-own-script.md")
AT_HOME = Guide(
    page="worker-at-home.md",
    skipped={
        "curl -fsSL": "it installs packages; tests/e2e/test_worker_sh.py runs the line",
        "systemctl --user enable": NO_SYSTEMD,
    },
    here={
        "gangline server --host 0.0.0.0": "gangline server",
        "--price 0.10 --nodes 1": "--price 0.10 --nodes 1 | tee token",
        "GANGLINE_TOKEN=gl_join_…": 'GANGLINE_TOKEN="$(cat token)"',
        "gangline worker --server https://HOST": "gangline worker --server $ADDRESS &\n"
        "until gangline nodes ls | grep ready > /dev/null; do kill -0 %2; sleep 0.2; done",
        "--preset object --base stabilityai/stable-diffusion-xl-base-1.0": "--base assets/tiny-sdxl --recipe tiny_subject --steps 20",
        "export GANGLINE_SERVER=https://HOST GANGLINE_TOKEN=THE-KEY": "true",
        "drain NODE": f"drain {field_of('gangline nodes ls', 'id')}",
        "release NODE": f"release {field_of('gangline nodes ls', 'id')}",
        "systemctl --user stop gangline-worker": "kill %2; wait %2",
        "revoke TOKEN": f"revoke {field_of('gangline join-tokens ls', 'id')}",
    },
)


@dataclass(frozen=True)
class Home:
    folder: Path
    environment: dict[str, str]
    log: Path

    def run(self, guide: Guide) -> str:
        """Run a guide to its end and return what it printed."""
        with self.log.open("w") as log:
            program = ("bash", "-c", guide.script())
            running = subprocess.Popen(program, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
            try:
                code = running.wait()
            finally:
                for pid in descendants(running.pid) if running.poll() is None else ():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                running.kill()
        said = self.log.read_text()
        assert code == 0, said[-6000:]
        return said


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A user's empty home, with a folder of photos. Only what would take long or meet others on this machine is set: the server's port, and
    how often it looks."""
    server, here = tmp_path / "home" / ".local" / "share" / "gangline", tmp_path / "home" / "here"
    server.mkdir(parents=True, mode=0o700)
    settings = server / "gangline.toml"
    settings.touch(0o600)
    settings.write_text("[server]\nport = 0\n" + quick_settings(lease_s=20, heartbeat_interval_s=1))
    (here / "my-photos").mkdir(parents=True)
    for photo in sorted((ROOT / "examples" / "other").glob("*.png")):
        (here / "my-photos" / photo.name).write_bytes(photo.read_bytes())
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GANGLINE_", "HF_", "PIP_"))}
    tools = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    offline = {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    yield Home(here, own | offline | {"HOME": str(tmp_path / "home"), "PATH": tools}, tmp_path / "log")


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_the_first_lora_is_trained_as_its_page_says(home: Home) -> None:
    said = home.run(FIRST_LORA)
    assert (home.folder / "example" / "samples" / "grid.png").is_file()
    assert (home.folder / "example" / "pytorch_lora_weights.safetensors").is_file()
    assert "crying-cat.png" in (home.folder / "example" / "report.json").read_text()
    assert list((home.folder / "first-try" / "samples").glob("prompt-00-lora-*.png"))
    assert "1 held out" in said and "2 to train on" in said


@pytest.mark.tenths
@pytest.mark.timeout(1200)
def test_a_script_runs_without_a_server_and_on_a_fleet_as_its_page_says(home: Home) -> None:
    home.run(OWN_SCRIPT)
    for folder in ("results", "from-the-fleet"):
        assert [path for path in (home.folder / folder).rglob("*") if path.suffix == ".safetensors"], folder


@pytest.mark.tenths
@pytest.mark.timeout(1200)
def test_a_worker_joins_from_home_works_and_stops_as_its_page_says(home: Home) -> None:
    said = home.run(AT_HOME)
    assert "joined as" in said and "succeeded: finished on" in said
    assert "is revoked; nodes that have already joined stay" in said


def test_a_guide_that_names_a_block_which_is_not_there_is_found() -> None:
    with pytest.raises(AssertionError, match="frobnicate"):
        Guide(page="first-lora.md", skipped={"frobnicate": INSTALLS}).script()


def test_a_guide_runs_every_block_but_those_that_are_named() -> None:
    script = FIRST_LORA.script()
    assert "gangline up --nodes 0..1 &\nuntil gangline jobs ls" in script
    assert "--recipe tiny_subject --hold-out crying-cat.png" in script and "kill %1" in script
    assert "pip install" not in script and script.count("until gangline jobs ls") == 1


def test_a_guide_fails_where_a_command_of_it_fails(home: Home) -> None:
    with pytest.raises(AssertionError, match="there is no Gangline server"):
        home.run(Guide(page="retention.md"))
