"""With `--in-memory` a script's checkpoints lie on a tmpfs while it has room, and the store has all of them in any case."""

import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.host.script.folder_in_memory import LocalFolderInMemory
from gangline.adapters.objects.s3 import S3Objects
from gangline.core.errors import UserError
from tests.disks import run_on_a_disk_of
from tests.exec.chain import state_after
from tests.exec.conftest import CHAIN, GANGLINE, Line

SHM = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LocalFolderInMemory]:
    made = LocalFolderInMemory(SHM, tmp_path / "out")
    yield made
    made.discard()


def in_memory(line: Line, node: str) -> Path:
    """Where the folder of a node's script lies in memory."""
    link = (line.root / node / "out").absolute()
    return SHM / f"gangline-exec-{hashlib.sha256(os.fsencode(link)).hexdigest()[:16]}"


def killed(folder: LocalFolderInMemory) -> None:
    """Let go of the lock, as a kill does."""
    assert folder._lock is not None
    os.close(folder._lock)
    folder._lock = None


# ---------------------------------------------------------------------------------------------------------------- the line


def test_nothing_of_a_script_is_written_to_disk_and_nothing_of_it_stays_in_memory(line: Line, place: S3Objects) -> None:
    running = line.start("a", options=("--in-memory",))
    running.until("is safe")
    out = line.root / "a" / "out"
    assert out.is_symlink() and out.resolve() == in_memory(line, "a") / "out"
    assert [path.name for path in (line.root / "a").iterdir()] == ["out"], "its own files are in memory, too"
    code, told = running.end()
    assert (code, told["step"]) == (0, 60)
    assert place.read("runs/000001/output/result.txt").decode() == state_after(60)
    assert "checkpoints are kept in memory, in /dev/shm/gangline-exec-" in running.text
    assert f"{out} was in memory and is deleted: all of it is in s3://" in running.text
    assert not os.path.lexists(out) and not in_memory(line, "a").exists()


def test_what_a_kill_leaves_in_memory_the_next_start_resumes_from(line: Line) -> None:
    first = line.start("a", options=("--in-memory",))
    first.until("is safe", times=2)
    first.kill()
    assert in_memory(line, "a").is_dir()
    second = line.start("a", options=("--in-memory",))
    code, told = second.end()
    assert (code, told["step"], told["bytes_downloaded"]) == (0, 60, 0) and told["restored_step"] >= 20
    assert not in_memory(line, "a").exists()


def test_another_machine_restores_into_its_own_memory(line: Line, place: S3Objects) -> None:
    first = line.start("a", options=("--in-memory",))
    first.until("is safe", times=2)
    first.signal(signal.SIGTERM)
    assert first.end()[0] == 75
    assert "has is in memory until this machine restarts" in first.text
    second = line.start("b", options=("--in-memory",))
    code, told = second.end()
    assert (code, told["runs"]) == (0, 2) and told["restored_step"] >= 20 and told["bytes_downloaded"] > 200_000
    assert place.read("runs/000002/output/result.txt").decode() == state_after(60)
    left = LocalFolderInMemory(SHM, line.root / "a" / "out")
    assert left.enter(0) == ""
    left.discard()


def test_a_folder_that_has_files_stays_on_disk(line: Line) -> None:
    (line.root / "a" / "out").mkdir(parents=True)
    (line.root / "a" / "out" / "notes.txt").write_text("mine")
    running = line.start("a", options=("--in-memory",))
    assert running.end()[0] == 0
    assert f"checkpoints are written to disk: {line.root / 'a' / 'out'} has files already" in running.text
    assert line.result("a") == state_after(60) and not (line.root / "a" / "out").is_symlink()


@pytest.mark.parametrize(
    ("size", "checkpoint", "several", "short"),
    [
        ("32m", 3_000_000, True, "checkpoints are written to disk: 2 of 3.0 MB beside"),
        ("24m", 30_000_000, False, "checkpoints are written to disk: what is kept there has 25.2 MB"),
    ],
    ids=["several fill a quarter", "not even one fits"],
)
def test_where_memory_becomes_short_the_same_script_goes_on_on_disk(
    tmp_path: Path, size: str, checkpoint: int, several: bool, short: str
) -> None:
    store, out, memory = tmp_path / "store", tmp_path / "a" / "out", tmp_path / "memory"
    for folder in (out.parent, memory):
        folder.mkdir()
    command = (*GANGLINE, "exec", "--in-memory", "--checkpoints", out, "--to", store, "--")
    script = (sys.executable, CHAIN, out, "60", "--bytes", checkpoint, "--save-on-term")
    ran = run_on_a_disk_of(size, memory, *map(str, (*command, *script)), GANGLINE_TMPFS=str(memory))
    assert ran.returncode == 0, ran.stderr
    assert (out / "result.txt").read_text() == state_after(60) and not out.is_symlink()
    assert "checkpoints are kept in memory" in ran.stderr
    assert short in ran.stderr
    if several:
        begun = [int(line.split()[1]) for line in ran.stdout.splitlines() if line.startswith("from ")]
        saved = [int(line.split()[1]) for line in ran.stdout.splitlines() if line.startswith("step ")]
        assert len(begun) == 2 and begun[0] == 0
        assert begun[1] in saved and sorted(set(saved)) == saved, "no step was done twice"
        assert (out / f"checkpoint-{saved[0]}").is_dir(), "older checkpoints have moved along"


def test_what_the_store_does_not_have_is_not_deleted(line: Line) -> None:
    script = "mkdir out/step_1; echo 1 > out/step_1/done; mkdir out/step_2; echo 2 > out/step_2/weights; sleep 2"
    running = line.start("a", options=("--in-memory", "--complete-when", "step_*/done"), command=("bash", "-c", script))
    assert running.end()[0] == 0
    out = line.root / "a" / "out"
    assert "step_2 is incomplete" in running.text and f"what {out} has is in memory" in running.text
    assert (out / "step_2" / "weights").read_text() == "2\n"
    left = LocalFolderInMemory(SHM, out)
    assert left.enter(0) == "" and left.discard()


def test_a_command_that_has_finished_leaves_nothing_in_memory_when_it_is_started_again(line: Line) -> None:
    assert line.start("a", chain=(20,), options=("--in-memory",)).end()[0] == 0
    again = line.start("a", chain=(20,), options=("--in-memory",))
    code, told = again.end()
    assert code == 0 and "has already finished this command" in told["because"]
    assert "in memory until" not in again.text
    assert not os.path.lexists(line.root / "a" / "out") and not in_memory(line, "a").exists()


def test_a_line_without_the_option_goes_on_with_what_a_kill_left_in_memory(line: Line) -> None:
    first = line.start("a", options=("--in-memory",))
    first.until("is safe", times=2)
    first.kill()
    second = line.start("a")
    code, told = second.end()
    assert (code, told["bytes_downloaded"]) == (0, 0) and told["restored_step"] >= 20
    assert line.result("a") == state_after(60)
    assert not (line.root / "a" / "out").is_symlink() and not in_memory(line, "a").exists()


STOPPED_AS_IT_MOVES = """
import os, signal
from gangline.adapters.host.script.folder_in_memory import LocalFolderInMemory
copy = LocalFolderInMemory._copy
def stopped(self):
    os.kill(os.getpid(), signal.SIGTERM)
    copy(self)
LocalFolderInMemory._copy = stopped
from gangline.cli.main import main
main()
"""


def test_a_signal_while_files_move_to_disk_ends_the_line_as_any_stop(tmp_path: Path) -> None:
    store, out, memory = tmp_path / "store", tmp_path / "a" / "out", tmp_path / "memory"
    for folder in (out.parent, memory):
        folder.mkdir()
    line = (sys.executable, "-c", STOPPED_AS_IT_MOVES, "exec", "--in-memory", "--checkpoints", out, "--to", store)
    script = ("--", sys.executable, CHAIN, out, "60", "--bytes", "3000000")
    ran = run_on_a_disk_of("60m", memory, *map(str, (*line, *script)), GANGLINE_TMPFS=str(memory))
    assert ran.returncode == 75 and "Traceback" not in ran.stderr, ran.stderr
    assert out.is_symlink() and "checkpoints are written to disk" not in ran.stderr
    assert not out.with_name(".out.moving").exists()


# ------------------------------------------------------------------------------------------------------------- the folder


@pytest.mark.parametrize("folder_name", [".", "a-file", "a-link"])
def test_what_cannot_be_a_link_to_memory_is_left_alone(
    tmp_path: Path, folder_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-file").write_text("mine")
    (tmp_path / "a-link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    folder = LocalFolderInMemory(SHM, Path(folder_name))
    assert folder.enter(0)
    folder.move_to_disk()
    folder.discard()
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "a-link").readlink() == tmp_path


def test_a_folder_that_another_process_uses_is_left_to_it(folder: LocalFolderInMemory) -> None:
    assert folder.enter(0) == ""
    with pytest.raises(UserError, match="another gangline exec already uses"):
        LocalFolderInMemory(SHM, folder.link).enter(0)
    assert folder.place.is_dir()


def test_a_place_that_somebody_else_made_first_is_not_used(folder: LocalFolderInMemory, tmp_path: Path) -> None:
    folder.place.parent.symlink_to(tmp_path)
    assert "is somebody else's" in folder.enter(0)
    folder.place.parent.unlink()


def test_after_a_restart_of_the_machine_the_link_leads_to_memory_again(folder: LocalFolderInMemory) -> None:
    folder.link.symlink_to(folder.place)
    assert folder.enter(0) == "" and folder.place.is_dir()


def test_all_files_move_to_disk_with_their_times_and_in_their_order(folder: LocalFolderInMemory) -> None:
    assert folder.enter(0) == ""
    for name, when in (("b", 5), ("a", 7)):
        (folder.link / name).mkdir()
        (folder.link / name / "w").write_text(name)
        os.utime(folder.link / name / "w", (when, when))
    (folder.link / "latest").symlink_to("a")
    folder.move_to_disk()
    assert not folder.link.is_symlink() and not folder.place.exists()
    assert {path.name for path in folder.link.iterdir()} == {"a", "b", "latest"}
    assert (folder.link / "latest" / "w").read_text() == "a"
    of_b, of_a = ((folder.link / name / "w").stat() for name in "ba")
    assert (of_b.st_mtime, of_a.st_mtime) == (5, 7) and of_b.st_ctime_ns < of_a.st_ctime_ns
    assert {path.name for path in folder.link.parent.iterdir()} <= {"out", ".out.gangline"}


def test_a_folder_that_its_owner_has_deleted_does_not_come_back(folder: LocalFolderInMemory) -> None:
    assert folder.enter(0) == ""
    (folder.link / "checkpoint-100").mkdir()
    killed(folder)
    folder.link.unlink()
    again = LocalFolderInMemory(SHM, folder.link)
    assert again.enter(0) == "" and list(again.place.iterdir()) == []
    again.discard()


def test_what_somebody_else_laid_where_a_link_leads_is_never_taken(
    folder: LocalFolderInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.link.symlink_to(folder.place)
    (folder.place / "checkpoint-999").mkdir(parents=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 12345)
        assert "is somebody else's" in folder.enter(0)
        folder.move_to_disk()
    assert folder.link.is_dir() and not folder.link.is_symlink() and list(folder.link.iterdir()) == []
    shutil.rmtree(folder.place.parent)


def test_a_kill_while_it_moves_to_disk_loses_nothing(folder: LocalFolderInMemory) -> None:
    assert folder.enter(0) == ""
    (folder.link / "checkpoint-100").mkdir()
    folder._copy()
    killed(folder)  # with the copy complete and the link in place
    again = LocalFolderInMemory(SHM, folder.link)
    assert again.enter(0) == "" and not again._moving.exists()
    again._copy()
    killed(again)
    again.link.unlink()  # it was gone already
    last = LocalFolderInMemory(SHM, folder.link)
    assert "has files already" in last.enter(0)
    assert (folder.link / "checkpoint-100").is_dir() and not folder.place.parent.exists() and not last._moving.exists()


def test_pipes_stay_behind_and_links_are_moved_as_links(folder: LocalFolderInMemory) -> None:
    assert folder.enter(0) == ""
    os.mkfifo(folder.link / "pipe")
    (folder.link / "gone").symlink_to("nowhere")
    folder.move_to_disk()
    assert [path.name for path in folder.link.iterdir()] == ["gone"] and (folder.link / "gone").is_symlink()


MOVES = """
import os, sys
from pathlib import Path
from gangline.adapters.host.script.folder_in_memory import LocalFolderInMemory
folder = LocalFolderInMemory(Path("/dev/shm"), Path(sys.argv[1]))
assert folder.enter(0) == ""
try:
    (folder.link / "w").write_bytes(bytes(3_000_000))
    folder.move_to_disk()
except Exception as error:
    print(error, folder.link.is_symlink(), (folder.link / "w").stat().st_size, folder._moving.exists())
finally:
    folder.discard()
"""


def test_a_disk_without_room_leaves_all_in_memory(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    out = tmp_path / "disk" / "out"
    ran = run_on_a_disk_of("1m", tmp_path / "disk", sys.executable, "-c", MOVES, str(out))
    said = f"{out} cannot be moved from memory to disk: 3.0 MB are needed, and 1.0 MB are free True 3000000 False\n"
    assert ran.stdout == said, ran.stderr
