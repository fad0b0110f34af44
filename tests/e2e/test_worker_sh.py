"""One line makes a worker of a bare machine: the script that a server serves, run in an empty home, without a package index."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import httpx
import pytest

from gangline.cli.admin.box import Box
from gangline.version import VERSION

TOOLS = ("sh", "mkdir", "rm", "mv", "touch", "flock", "env")
WITH_TORCH = Path(sys.executable).parent
"""A folder with a Python that has PyTorch, and all else that a worker requires: nothing needs to be downloaded."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with Box(tmp_path_factory.mktemp("box") / "home", lease_s=10, heartbeat_interval_s=1) as made:
        yield made


def machine(folder: Path, *downloaders: str) -> dict[str, str]:
    """The environment of a machine with few programs, of which these can download."""
    tools = folder / "tools"
    tools.mkdir(parents=True)
    for name in (*TOOLS, *downloaders):
        found = shutil.which(name)
        assert found, f"{name} is needed for this test"
        (tools / name).symlink_to(found)
    python = tools / "python3"
    python.write_text(f'#!{tools}/sh\nexec "{WITH_TORCH}/python" "$@"\n')
    python.chmod(0o755)
    return {
        "PATH": str(tools),
        "HOME": str(folder / "home"),
        "PIP_NO_INDEX": "1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }


def started(box: Box, name: str, environment: dict[str, str], log: Path) -> "subprocess.Popen[str]":
    script = httpx.get(f"{box.url}/worker.sh").text
    with log.open("w") as written:
        running = subprocess.Popen(
            [f"{environment['PATH']}/sh", "-s", "--", "--name", name],
            env=environment | {"GANGLINE_TOKEN": box.join_token},
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=written,
            text=True,
        )
    assert running.stdin
    with running.stdin:
        running.stdin.write(script)
    return running


def join_and_stop(box: Box, name: str, environment: dict[str, str], log: Path) -> str:
    """Run the script until its worker has joined, and stop it; return what it said."""
    running = started(box, name, environment, log)
    try:
        while name not in {node.name for node in box.client.nodes.list()}:
            assert running.poll() is None, log.read_text()
            Event().wait(0.1)
        running.terminate()
        assert running.wait(60) == 0, log.read_text()
    finally:
        running.kill()
    return log.read_text()


@pytest.mark.parametrize(
    "downloader",
    ["curl", pytest.param("wget", marks=pytest.mark.tenths), pytest.param("python3 alone", marks=pytest.mark.tenths)],
)
def test_one_line_makes_a_worker_of_a_machine_with_pytorch(box: Box, tmp_path: Path, downloader: str) -> None:
    environment = machine(tmp_path, *([downloader] if downloader in ("curl", "wget") else []))
    name = f"by-{downloader.split()[0]}"
    said = join_and_stop(box, name, environment, tmp_path / "log")
    assert "installing a worker of" in said and f"joined as {name}" in said
    (installed,) = (tmp_path / "home" / ".local/share/gangline/installed").glob("*/venv")
    assert list(installed.glob("lib/*/site-packages/gangline/worker/agent.py"))
    assert not list(installed.glob("lib/*/site-packages/torch")), "the PyTorch that is here is used"
    if downloader == "curl":
        again = join_and_stop(box, "again", environment, tmp_path / "log")
        assert "installing" not in again and "joined as again" in again


def test_a_wheel_that_is_not_the_one_of_the_script_is_not_installed(box: Box, tmp_path: Path) -> None:
    environment = machine(tmp_path, "curl") | {"GANGLINE_TOKEN": box.join_token}
    script = httpx.get(f"{box.url}/worker.sh").text
    (line,) = [line for line in script.splitlines() if line.startswith("sha256=")]
    forged = script.replace(line, f"sha256={'0' * 64}")
    ended = subprocess.run(
        [f"{environment['PATH']}/sh"], input=forged, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert (
        f"error: gangline-{VERSION}-py3-none-any.whl came with another SHA-256 than this script names" in ended.stderr
    )
    assert not list(tmp_path.rglob("venv"))


def test_a_server_that_went_away_is_one_sentence(box: Box, tmp_path: Path) -> None:
    environment = machine(tmp_path, "wget") | {"GANGLINE_TOKEN": "gl_join_x"}
    script = httpx.get(f"{box.url}/worker.sh").text.replace(box.url, "http://127.0.0.1:1")
    ended = subprocess.run(
        [f"{environment['PATH']}/sh"], input=script, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "cannot be downloaded\nhint: check that this machine reaches http://127.0.0.1:1" in ended.stderr


def test_a_machine_without_python_is_one_sentence(box: Box, tmp_path: Path) -> None:
    environment = machine(tmp_path) | {"GANGLINE_TOKEN": "gl_join_x"}
    (tmp_path / "tools" / "python3").unlink()
    script = httpx.get(f"{box.url}/worker.sh").text
    ended = subprocess.run(
        [f"{environment['PATH']}/sh"], input=script, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == "error: there is no Python 3.11 or newer here\nhint: install python3 and python3-venv\n"


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_one_line_makes_a_worker_of_a_machine_that_has_only_python(box: Box, tmp_path: Path) -> None:
    """All libraries come from the package index, in the versions of the server's constraints."""
    environment = machine(tmp_path, "curl")
    del environment["PIP_NO_INDEX"]
    bare = Path(sys.base_prefix) / "bin" / "python3"
    (tmp_path / "tools" / "python3").write_text(f'#!{environment["PATH"]}/sh\nexec "{bare}" "$@"\n')
    passed_on = {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") or "PROXY" in name.upper()
    }
    said = join_and_stop(box, "bare", passed_on | environment, tmp_path / "log")
    assert "joined as bare" in said
    (installed,) = (tmp_path / "home" / ".local/share/gangline/installed").glob("*/venv")
    assert list(installed.glob("lib/*/site-packages/torch"))
