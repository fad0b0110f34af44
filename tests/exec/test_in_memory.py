"""With `--in-memory` a script's checkpoints lie on a tmpfs while it has room, and the store has all of them in any case."""

import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.host.folder_in_memory import LocalFolderInMemory
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
        ("60m", 3_000_000, True, "checkpoints are written to disk: 2 of 3 MB beside"),
        ("24m", 30_000_000, False, "checkpoints are written to disk: what is kept there has 25 MB"),
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
