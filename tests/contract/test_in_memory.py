"""What of a run lies in memory: the run and its agent both reach it, nobody else does, and nothing of it stays."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.host.host import LocalHost
from gangline.adapters.host.trainer.beneath import open_of_runs
from gangline.adapters.host.trainer.isolation import Isolation, find_isolation
from gangline.adapters.host.trainer.run import ProcessRun
from gangline.adapters.host.trainer.start import start_program
from gangline.core.errors import Damaged
from gangline.core.runs.in_memory import SHARED_MEMORY
from gangline.core.server.isolation import IsolationLevel
from tests.contract.test_isolation import AT_SANDBOX, AT_UID, PYTHON
from tests.waiting import a_moment, until

SAVES = """
import json, os, pathlib, sys
memory = pathlib.Path(os.environ["GANGLINE_IN_MEMORY"])
found = {"resume": (memory / "resume" / "000002" / "w").read_text(), "others": {}}
for path in sys.argv[1:]:
    try:
        found["others"][path] = sorted(os.listdir(path))
    except OSError:
        found["others"][path] = None
for folder in ("output", "samples"):
    (memory / folder).mkdir()
    (memory / folder / folder).write_text(folder)
(memory / "output" / "link").symlink_to("/etc/passwd")
pathlib.Path("found.json").write_text(json.dumps(found))
"""
EVERY_LEVEL = pytest.mark.parametrize("level", ["none", AT_UID, AT_SANDBOX])


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gangline-in-memory-", dir="/var/tmp") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def host(home: Path, said: list[str]) -> LocalHost:
    return LocalHost(home / "worker", tmpfs=SHARED_MEMORY, say=said.append)


@pytest.fixture
def unreachable() -> Iterator[Path]:
    """A folder in memory that only its owner may pass through."""
    with tempfile.TemporaryDirectory(prefix="gangline-of-root-", dir=SHARED_MEMORY) as made:
        yield Path(made)


@pytest.fixture
def isolation(host: LocalHost, level: IsolationLevel, monkeypatch: pytest.MonkeyPatch) -> Isolation:
    monkeypatch.setattr("sys.executable", PYTHON)
    monkeypatch.setattr("gangline.adapters.host.trainer.isolation.LOADS", "os")
    assert host.memory
    return find_isolation(host.runs, level, memory=host.memory)


def a_run(host: LocalHost, name: str, program: str, *arguments: object, isolation: Isolation) -> ProcessRun:
    directory = host.runs / name
    directory.mkdir(mode=0o700)
    folder = host.place_checkpoint(directory, 2, {}, 9)
    (folder / "w").write_text(f"of {name}")
    command = [PYTHON, "-c", program, *map(str, arguments)]
    return start_program(command, directory, enclosure=isolation.make(), memory=host.memory)


@EVERY_LEVEL
def test_a_run_and_its_agent_share_a_folder_in_memory_that_no_other_run_sees(
    host: LocalHost, level: IsolationLevel, isolation: Isolation
) -> None:
    assert host.memory
    other = a_run(host, "other", "import time; time.sleep(60)", isolation=isolation)
    elsewhere = host.memory.beside(other.directory)
    run = a_run(host, "mine", SAVES, elsewhere, isolation=isolation)
    until(lambda: run.exit_code() is not None)
    assert run.exit_code() == 0, run.printed(0, 10_000)
    run.kill()
    found = (run.directory / "found.json").read_text()
    assert '"resume": "of mine"' in found
    assert level == "none" or f'"{elsewhere}": null' in found
    while (result := run.result()) is None:
        a_moment()
    assert [file.path for file in (*result.output, *result.samples)] == ["output", "samples"]
    with open_of_runs([host.runs, host.memory.root], run.place("output", "output")) as file:
        assert file.read() == b"output"
    with pytest.raises(Damaged), open_of_runs([host.runs, host.memory.root], elsewhere.parent / "mine" / "output/link"):
        pass
    assert not [*run.directory.rglob("output"), *run.directory.rglob("resume")], "nothing of it is on the disk"
    other.kill()
    for each in (run, other):
        host.remove_run(each.directory)
    assert list(host.memory.root.iterdir()) == list(host.runs.iterdir()) == []


@EVERY_LEVEL
def test_a_run_that_is_started_again_finds_in_memory_what_was_there(
    host: LocalHost, level: IsolationLevel, isolation: Isolation
) -> None:
    first = a_run(host, "run", "pass", isolation=isolation)
    until(lambda: first.exit_code() is not None)
    first.kill()
    host.take_back(first.directory)
    again = [PYTHON, "-c", SAVES]
    second = start_program(again, first.directory, enclosure=isolation.make(), memory=host.memory)
    until(lambda: second.exit_code() is not None)
    second.kill()
    assert second.exit_code() == 0, second.printed(0, 10_000)
    host.remove_run(second.directory)
    assert host.memory and list(host.memory.root.iterdir()) == []


WORKS = """
import sys, time
from pathlib import Path
from gangline.adapters.host.host import LocalHost
host = LocalHost(Path(sys.argv[1]), tmpfs=Path("/dev/shm"))
host.place_checkpoint(host.lay_out("attempt", {"kind": "lora"}), 1, {}, 9)
print(host.memory.root, flush=True)
sys.stdin.read()
"""


def a_worker(home: Path) -> tuple["subprocess.Popen[str]", Path]:
    command = [sys.executable, "-c", WORKS, str(home)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout
    return worker, Path(worker.stdout.readline().strip())


def test_what_a_killed_worker_left_in_memory_the_next_one_removes_and_nothing_of_a_living_one(home: Path) -> None:
    (killed, left), (living, used) = a_worker(home / "killed"), a_worker(home / "living")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (left / "attempt" / "resume").is_dir(), "a kill leaves it there"
    host = LocalHost(home / "next", tmpfs=SHARED_MEMORY)
    assert host.memory
    assert not left.exists() and (used / "attempt" / "resume").is_dir()
    living.communicate("")
    assert not used.exists(), "a worker that ends takes all of it along"


def test_a_worker_without_such_a_folder_says_why_and_keeps_all_on_its_disk(home: Path) -> None:
    host = LocalHost(home / "worker", tmpfs=home)
    assert host.memory is None and "not in memory (tmpfs)" in host.why_not
    directory = host.lay_out("attempt", {"kind": "lora"})
    assert host.place_checkpoint(directory, 2, {}, 9).is_relative_to(directory)


@EVERY_LEVEL
def test_a_worker_whose_folder_in_memory_was_deleted_says_so_once_and_its_runs_use_the_disk(
    host: LocalHost, said: list[str], level: IsolationLevel, isolation: Isolation
) -> None:
    """systemd deletes it when its user logs out (RemoveIPC), also while an enclosure waits for its run."""
    assert host.memory
    waiting = isolation.make()
    shutil.rmtree(host.memory.root)
    for name, enclosure in (("first", waiting), ("second", isolation.make())):
        directory = host.runs / name
        directory.mkdir(mode=0o700)
        assert host.place_checkpoint(directory, 2, {}, 9).is_relative_to(directory)
        program = [PYTHON, "-c", "import os; print(os.environ.get('GANGLINE_IN_MEMORY'))"]
        run = start_program(program, directory, enclosure=enclosure, memory=host.memory)
        until(lambda run=run: run.exit_code() is not None)
        run.kill()
        assert run.printed(0, 10_000) == b"None\n"
        host.drop_resumed(run.directory)
        host.remove_run(run.directory)
    assert len(said) == 1 and f"{host.memory.root} was deleted" in said[0]
    assert not host.memory.root.exists()


WATCHES = """
import os
print("begins", flush=True)
try:
    while os.stat(os.environ["GANGLINE_IN_MEMORY"]).st_nlink:
        os.sched_yield()
except FileNotFoundError:
    pass
"""


@EVERY_LEVEL
def test_a_run_sees_that_its_folder_in_memory_was_deleted(
    host: LocalHost, level: IsolationLevel, isolation: Isolation
) -> None:
    """As `RunMemory.is_there` looks."""
    assert host.memory
    run = a_run(host, "run", WATCHES, isolation=isolation)
    until(lambda: run.printed(0, 100) == b"begins\n")
    shutil.rmtree(host.memory.root)
    until(lambda: run.exit_code() is not None)
    assert run.exit_code() == 0, run.printed(0, 10_000)
    run.kill()


def test_where_a_user_of_a_run_cannot_reach_the_folder_in_memory_its_runs_use_the_disk(
    home: Path, unreachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a run as another user")
    monkeypatch.setattr("sys.executable", PYTHON)
    monkeypatch.setattr("gangline.adapters.host.trainer.isolation.LOADS", "os")
    for tmpfs, reaches in ((SHARED_MEMORY, True), (unreachable, False)):
        host = LocalHost(home / str(reaches), tmpfs=tmpfs)
        assert host.memory
        found = find_isolation(host.runs, "uid", memory=host.memory)
        assert bool(found.why_not_memory) is not reaches, found.why_not_memory
        assert [*host.memory.root.iterdir(), *host.runs.iterdir()] == []


STARTS_AT_ONCE = """
import sys
from pathlib import Path
from gangline.adapters.host.trainer.in_memory import MemoryOfRuns
tmpfs, others = Path("/dev/shm"), []

def starts(event, arguments):
    # This is called before the first worker opens the folder that it has just made: its lock is still free.
    if event == "open" and "gangline-runs-" in str(arguments[0]) and str(arguments[0]) in made and not others:
        others.append(None)
        others[0] = MemoryOfRuns(tmpfs, Path("other"), print)

made = set()
sys.addaudithook(lambda event, arguments: event == "os.mkdir" and not others and made.add(str(arguments[0])))
sys.addaudithook(starts)
first = MemoryOfRuns(tmpfs, Path("first"), print)
assert others and others[0].root.is_dir() and first.root.is_dir() and first.root != others[0].root
assert not Path(made.pop()).is_dir()
"""


def test_a_worker_that_starts_while_another_one_starts_takes_nothing_from_it() -> None:
    ran = subprocess.run([sys.executable, "-c", STARTS_AT_ONCE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
