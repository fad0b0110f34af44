"""What a run can reach at each level of isolation: each of these programs tries."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.host.host import LocalHost
from gangline.adapters.host.trainer.isolation import Isolation, find_isolation
from gangline.adapters.host.trainer.run import ProcessRun
from gangline.adapters.host.trainer.start import start_program
from gangline.core.errors import UserError
from gangline.core.server.isolation import IsolationLevel
from gangline.posix import processes_of
from tests.processes import is_running
from tests.waiting import until

PYTHON = "/usr/bin/python3"
"""A Python that every user of this machine may start."""
TRIES = """
import json, os, pathlib, socket, sys
agent, port, *paths = sys.argv[1:]
found = {}
for path in paths:
    try:
        found[path] = sorted(os.listdir(path)) if os.path.isdir(path) else pathlib.Path(path).read_text()
    except OSError as error:
        found[path] = None
environments = []
for entry in os.listdir("/proc"):
    try:
        environments.append(pathlib.Path("/proc", entry, "environ").read_text())
    except (OSError, UnicodeDecodeError):
        pass
found["token in memory"] = any("GANGLINE_TOKEN=" in each for each in environments)
try:
    socket.create_connection(("127.0.0.1", int(port)), 2).close()
    found["network"] = True
except OSError:
    found["network"] = False
try:
    os.kill(int(agent), 0)
    found["signals"] = True
except OSError:
    found["signals"] = False
pathlib.Path("found.json").write_text(json.dumps(found))
"""
FORKS = """
import os, pathlib, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path("child").write_text("there")
        pathlib.Path("/tmp/left-by-a-run").write_text("mine")
        while True:
            time.sleep(60)
    os._exit(0)
os.wait()
while not pathlib.Path("child").exists():
    time.sleep(0.01)
"""
AT_UID = pytest.param("uid", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a run its own user"))
AT_SANDBOX = pytest.param("sandbox", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap"))
ISOLATED = pytest.mark.parametrize("level", [AT_UID, AT_SANDBOX])


@pytest.fixture
def home() -> Iterator[Path]:
    """A worker's home with its token, where other users may pass through: pytest's own folders are root's alone."""
    made = Path(tempfile.mkdtemp(prefix="gangline-isolation-", dir="/var/tmp"))
    made.chmod(0o711)
    token = made / "token"
    token.touch(0o600)
    token.write_text("join-secret")
    (made / "runs").mkdir(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def isolation(home: Path, level: IsolationLevel, monkeypatch: pytest.MonkeyPatch) -> Isolation:
    monkeypatch.setattr("sys.executable", PYTHON)
    monkeypatch.setattr("gangline.adapters.host.trainer.isolation.LOADS", "os")
    found = find_isolation(home / "runs", level)
    assert found.level == level
    return found


def a_run(home: Path, name: str, program: str, *arguments: object, isolation: Isolation) -> ProcessRun:
    directory = home / "runs" / name
    directory.mkdir(0o700)
    (directory / "photo").touch(0o600)
    (directory / "photo").write_text(f"a photo of {name}")
    command = [PYTHON, "-c", program, *map(str, arguments)]
    return start_program(command, directory, enclosure=isolation.make())


def tries(home: Path, isolation: Isolation, *paths: Path) -> dict[str, object]:
    """Let a program try to reach these, the agent's memory, and a service on this machine. Return what it could reach."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        run = a_run(home, "tries", TRIES, os.getpid(), port, *paths, isolation=isolation)
        until(lambda: run.exit_code() is not None)
        assert run.exit_code() == 0, run.printed(0, 10_000)
        run.kill()
    return json.loads((run.directory / "found.json").read_text())


@ISOLATED
def test_a_run_reads_neither_the_agents_token_nor_another_runs_files(
    home: Path, level: IsolationLevel, isolation: Isolation
) -> None:
    other = a_run(home, "other", "import time; time.sleep(60)", isolation=isolation)
    agent = subprocess.Popen(["/bin/sleep", "60"], env={"GANGLINE_TOKEN": "join-secret"})
    photo = other.directory / "photo"
    try:
        found = tries(home, isolation, home / "token", home / "runs", other.directory, photo, Path.home())
    finally:
        agent.kill()
        agent.wait()
        other.kill()
    assert photo.read_text() == "a photo of other"
    assert [found[str(path)] for path in (home / "token", other.directory, photo)] == [None] * 3
    assert set(found[str(Path.home())] or ()) <= set(Path(sys.base_prefix).parts), "Python itself may lie there"
    assert found[str(home / "runs")] in (None, ["room-3"]), "of the others it sees not even the names"
    assert found["token in memory"] is False and found["signals"] is False
    assert found["network"] is (level != "sandbox")


def test_without_isolation_it_reads_all_of_that_and_the_level_says_so(home: Path) -> None:
    isolation = find_isolation(home / "runs", "none")
    assert isolation.level == "none"
    found = tries(home, isolation, home / "token")
    assert found[str(home / "token")] == "join-secret" and found["network"] is True


@ISOLATED
def test_a_run_has_its_own_files_and_may_write_there(home: Path, level: IsolationLevel, isolation: Isolation) -> None:
    program = """
import pathlib
assert pathlib.Path("photo").read_text() == "a photo of mine"
pathlib.Path("photo").write_text("changed")
pathlib.Path("output").mkdir()
pathlib.Path("output/weights").write_text("learned")
pathlib.Path("/tmp/scratch").write_text("for a moment")
print(pathlib.Path.cwd())
"""
    run = a_run(home, "mine", program, isolation=isolation)
    until(lambda: run.exit_code() is not None)
    assert run.printed(0, 10_000).decode().strip() == str(run.directory), "it has the same name inside and outside"
    until(lambda: run.result() is not None)
    result = run.result()
    assert result and [file.path for file in result.output] == ["weights"]
    run.kill()
    assert not Path("/tmp/scratch").exists()


@ISOLATED
def test_a_program_that_forks_and_stays_is_gone_with_its_run(
    home: Path, level: IsolationLevel, isolation: Isolation
) -> None:
    run = a_run(home, "forks", FORKS, isolation=isolation)
    until((run.directory / "child").exists)
    until(lambda: run.exit_code() is not None or level == "sandbox")
    owner = (run.directory / "child").stat().st_uid
    run.kill()
    assert processes_of(owner) == [] if level == "uid" else not is_running(run._process.pid)
    assert not Path("/tmp/left-by-a-run").exists()
    run.kill()


@ISOLATED
def test_signals_reach_the_program_and_its_exit_code_comes_back(
    home: Path, level: IsolationLevel, isolation: Isolation
) -> None:
    waits = """
import pathlib, signal, sys, threading
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
signal.signal(signal.SIGUSR1, lambda *_: pathlib.Path("saved").touch())
pathlib.Path("ready").touch()
while not stop.wait(0.01):
    pass
sys.exit(75)
"""
    run = a_run(home, "waits", waits, isolation=isolation)
    until((run.directory / "ready").exists)
    if level == "sandbox":
        run._process.terminate()  # as Slurm does to all processes of a node: what keeps the program enclosed stays
    run.ask_to_save()
    until((run.directory / "saved").exists)
    assert run.exit_code() is None
    run.ask_to_stop()
    until(lambda: run.exit_code() is not None)
    assert run.exit_code() == 75
    killed = a_run(home, "killed", "import os; os.kill(os.getpid(), 11)", isolation=isolation)
    until(lambda: killed.exit_code() is not None)
    assert killed.exit_code() == -11
    for each in (run, killed):
        each.kill()


@ISOLATED
def test_a_link_out_of_the_run_is_not_followed_when_its_result_is_read(
    home: Path, level: IsolationLevel, isolation: Isolation
) -> None:
    links = f"""
import os, pathlib
pathlib.Path("output").mkdir()
pathlib.Path("output/real").write_text("real")
os.symlink({str(home / "token")!r}, "output/token")
os.symlink({str(home)!r}, "output/home")
os.symlink({str(home)!r}, "samples")
os.symlink({str(home / "token")!r}, "progress.jsonl")
os.mkfifo("output/pipe")
"""
    run = a_run(home, "links", links, isolation=isolation)
    until(lambda: run.exit_code() is not None)
    until(lambda: run.result() is not None)
    result = run.result()
    assert result and [file.path for file in result.output] == ["real"] and result.samples == ()
    run.kill()


def test_the_strongest_level_that_works_is_chosen_and_one_that_does_not_is_refused_with_the_reason(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(UserError) as refused:
        find_isolation(home / "runs", "sandbox")
    assert "sandbox: bubblewrap is not installed (bwrap)" in refused.value.message
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = find_isolation(home / "runs")
    assert found.level == "none"
    assert found.why == "sandbox: bubblewrap is not installed (bwrap); uid: only root can start a run as another user"


def test_a_token_that_was_typed_is_no_argument_of_the_worker_for_long(tmp_path: Path) -> None:
    """Every user of a machine can read the arguments of all programs."""
    token = "gl_join_" + "s" * 40
    command = [sys.executable, "-m", "gangline.cli.main", "worker", "--server", "http://127.0.0.1:9", "--token", token]
    worker = subprocess.Popen([*command, "--home", str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        arguments, variables = (Path(f"/proc/{worker.pid}/{name}") for name in ("cmdline", "environ"))
        until(lambda: f"GANGLINE_TOKEN={token}".encode() in variables.read_bytes().split(b"\0"))
        until(lambda: b"--home" in (words := arguments.read_bytes()) and token.encode() not in words)
    finally:
        worker.kill()
        worker.wait()


@ISOLATED
def test_what_is_written_into_a_run_once_more_goes_nowhere_else(
    home: Path, level: IsolationLevel, isolation: Isolation
) -> None:
    """A second start brings what the first one lacked, and the first one may have left links where that goes."""
    links = f"""
import os
os.symlink({str(home / "token")!r}, "left_out.json")
os.mkdir("inputs")
os.symlink({str(home)!r}, "inputs/base")
"""
    run = a_run(home, "first", links, isolation=isolation)
    until(lambda: run.exit_code() is not None)
    run.kill()
    host = LocalHost(home / "worker")
    assert host.input_path(run.directory, "base").is_symlink()
    host.take_back(run.directory)
    host.leave_out(run.directory, ())
    assert (home / "token").read_text() == "join-secret"
    assert not host.input_path(run.directory, "base").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a network")
@pytest.mark.parametrize(("level", "said"), [("none", "reached"), ("uid", "reached"), ("sandbox", "cut off")])
def test_a_run_reaches_the_providers_metadata_service_unless_it_has_no_network(
    home: Path, level: str, said: str
) -> None:
    command = [sys.executable, "-m", "tests.contract.metadata_service", level, str(home / "runs")]
    done = subprocess.run(["/usr/bin/unshare", "--net", *command], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (said, "")
