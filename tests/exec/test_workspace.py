"""A script's folder, with whatever else may lie in it."""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from gangline.adapters.host.script import held
from gangline.adapters.host.script.workspace import LocalWorkspace
from gangline.adapters.host.script.writers import has_writer
from gangline.adapters.objects.folder import FolderObjects, FolderTransfer
from gangline.core.command.candidate import ROOT, CheckpointCandidate
from gangline.core.command.layout import Rules, is_result, lacks
from gangline.core.command.lineage import Begun, CommittedCheckpoint, Ref
from gangline.core.command.step import step_of
from gangline.core.errors import Damaged
from gangline.core.files import File
from gangline.core.runs.contract import Manifest
from gangline.exec.error_reporter import ErrorReporter
from gangline.exec.run_prefix import PrefixContent, RunPrefix
from gangline.exec.start import ADDRESS, BEFORE, RUN, RunStart, _is_newer, _newest_local, is_disk_newest
from gangline.exec.watch import REFUSED_S, Watcher
from tests.exec import habits
from tests.exec.conftest import results_in

STEPS = Rules(complete_when="step_*/done")
FAR_S = 1e6


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def step(out: Path, number: int, at_s: int = 0) -> Path:
    place = out / f"step_{number}"
    place.mkdir(parents=True)
    for name in ("weights.txt", "done"):
        (place / name).write_text(str(number))
        os.utime(place / name, (at_s or number, at_s or number))
    return place


def look(workspace: LocalWorkspace, now_s: float = 0.0) -> list[str]:
    return [each.name for each in workspace.look(now_s, ended=True) if not lacks(workspace.rules, each)]


def test_of_several_at_one_look_the_one_that_was_written_last_is_the_last(out: Path) -> None:
    for number in (7, 3, 12, 10, 1):
        step(out, number)
    step(out, 5, at_s=1000)
    assert look(LocalWorkspace(out, STEPS)) == ["step_1", "step_3", "step_7", "step_10", "step_12", "step_5"]


def test_what_takes_the_name_of_one_that_has_gone_is_found_after_it(out: Path) -> None:
    rules = Rules(complete_when="latest/done")
    workspace = LocalWorkspace(out, rules)
    step(out, 1).rename(out / "latest")
    workspace.look(0.0)
    step(out, 2).rename(out / "new")
    (out / "latest").rename(out / "old")
    (out / "new").rename(out / "latest")
    found = list[str]()
    for now_s in (1.0, 2.0):
        for candidate in workspace.look(now_s, ended=True):
            taken = workspace.take(candidate)
            assert taken
            found.append(taken.files["latest/done"].read_text())
    assert found == ["1", "2"]


def no_link(*_: object) -> None:
    raise PermissionError(1, os.strerror(1))


def test_where_no_link_can_be_made_it_is_copied(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that knows none, or where another user owns the files (fs.protected_hardlinks)."""
    step(out, 1)
    workspace = LocalWorkspace(out, STEPS)
    monkeypatch.setattr(held.os, "link", no_link)
    (candidate,) = workspace.look(0.0)
    taken = workspace.take(candidate)
    assert taken and {file.path for file in workspace.describe(taken)} == {"step_1/done", "step_1/weights.txt"}
    workspace.release(taken)
    assert workspace.look(FAR_S, ended=True) == []


def test_a_link_to_a_file_is_that_file(out: Path, tmp_path: Path) -> None:
    (tmp_path / "base").write_text("weights")
    (step(out, 1) / "base").symlink_to(tmp_path / "base")
    workspace = LocalWorkspace(out, STEPS)
    (candidate,) = workspace.look(0.0)
    taken = workspace.take(candidate)
    assert taken and taken.files["step_1/base"].read_text() == "weights" and not taken.files["step_1/base"].is_symlink()


def test_a_link_to_a_folder_is_not_left_out_in_silence(out: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (step(out, 1) / "unet").symlink_to(tmp_path / "real")
    workspace = LocalWorkspace(out, STEPS)
    (candidate,) = workspace.look(0.0, ended=True)
    assert lacks(STEPS, candidate) == "unet is a link to a folder, which is not followed"
    (out / "step_1" / "unet").unlink()
    (out / "step_1" / "unet").mkdir()
    (out / "step_1" / "unet" / "config").write_text("{}")
    (candidate,) = workspace.look(1.0, ended=True)
    assert lacks(STEPS, candidate) == "" and "unet/config" in candidate.files


def test_what_is_written_after_something_went_is_not_being_deleted(out: Path) -> None:
    """A lock, say."""
    workspace, place = LocalWorkspace(out, STEPS), out / "step_1"
    place.mkdir()
    (place / "lock").touch()
    assert look(workspace, 0.0) == []
    (place / "lock").unlink()
    assert look(workspace, 0.1) == []
    (place / "more").touch()
    (candidate,) = workspace.look(0.2)
    assert lacks(STEPS, candidate) == "nothing matches step_*/done"
    (place / "more").unlink()
    (place / "done").touch()
    (candidate,) = workspace.look(0.3)
    assert lacks(STEPS, candidate) == "" and set(candidate.files) == {"done"}


def test_what_went_last_of_all_is_said_at_the_end_and_forgotten_after_a_while(out: Path) -> None:
    workspace, place = LocalWorkspace(out, STEPS), step(out, 1)
    (place / "lock").touch()
    workspace.look(0.0)
    (place / "lock").unlink()
    assert workspace.look(0.1) == []
    (candidate,) = workspace.look(0.2, ended=True)
    assert lacks(STEPS, candidate) == "lock was deleted again"
    assert look(workspace, 0.1 + held.DELETED_WITHIN_S) == ["step_1"]


def test_a_folder_made_anew_is_seen_at_once_even_as_the_same_inode(out: Path) -> None:
    """Which some file systems give to the next folder."""
    rules = Rules(complete_when="latest/done")
    workspace, place = LocalWorkspace(out, rules), out / "latest"

    def save(text: str) -> None:
        place.mkdir(exist_ok=True)
        (place / "done").write_text(text)

    save("1")
    for each in workspace.look(0.0, ended=True):
        workspace.take(each)
    workspace.look(200.0, ended=True)
    workspace.wait(0.01)
    (place / "done").unlink()  # as the folder stays, so does its inode
    place.rmdir()
    place.mkdir()
    workspace.wait(FAR_S)
    workspace.look(200.1)
    (place / "done").write_text("2")
    workspace.wait(FAR_S)
    (candidate,) = workspace.look(200.2)
    assert lacks(rules, candidate) == ""


def test_a_file_that_is_deleted_before_it_is_written_anew_is_of_the_next_version(out: Path) -> None:
    """While it is missing somebody looks: what lies there then is no version."""
    rules = Rules(complete_when="latest/done")
    workspace, place = LocalWorkspace(out, rules), out / "latest"
    place.mkdir()
    (place / "done").write_text("1")
    for each in workspace.look(0.0, ended=True):
        workspace.take(each)
    (place / "done").unlink()
    workspace.wait(FAR_S)
    workspace.look(0.1)
    (place / "done").write_text("2")
    workspace.wait(FAR_S)
    (candidate,) = workspace.look(0.2)
    assert candidate.before is not None and candidate.before.keys() == {"done"}
    assert lacks(rules, candidate) == ""


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def socket_of(folder: Path) -> None:
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)


def loop(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")


@pytest.mark.parametrize("odd", [fifo, socket_of, loop])
def test_what_is_no_file_stands_in_nobodys_way(out: Path, odd: Callable[[Path], None]) -> None:
    odd(step(out, 1))
    odd(out)
    (out / "sample.png").write_bytes(b"png")
    workspace = LocalWorkspace(out, STEPS)
    assert look(workspace) == ["step_1"]
    assert results_in(workspace).keys() == {"sample.png"}


def test_what_cannot_be_read_is_said_and_the_others_are_seen(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another user owns a folder."""
    place = step(out, 1)
    step(out, 2)
    scan = os.scandir

    def refuse(path: Path) -> object:
        if Path(path) == place:
            raise PermissionError(13, os.strerror(13))
        return scan(path)

    monkeypatch.setattr(held.os, "scandir", refuse)
    found = {each.name: lacks(STEPS, each) for each in LocalWorkspace(out, STEPS).look(0.0, ended=True)}
    assert found == {"step_1": "step_1 cannot be read", "step_2": ""}


def test_a_name_that_the_store_cannot_have_is_refused(out: Path) -> None:
    (step(out, 1) / "a\\b").write_text("x")
    workspace = LocalWorkspace(out, STEPS)
    (candidate,) = workspace.look(0.0)
    taken = workspace.take(candidate)
    assert taken
    with pytest.raises(Damaged, match="let the script give the file another one"):
        workspace.describe(taken)


@pytest.mark.parametrize("rules", [Rules(), Rules(complete_when="*/done")])
def test_an_empty_folder_that_is_called_a_checkpoint_is_half_of_one(out: Path, rules: Rules) -> None:
    for name in ("checkpoint-7", "step_7", "latest"):
        (out / name).mkdir(parents=True)
    found = {each.name: is_result(rules, each) for each in LocalWorkspace(out, rules).look(0.0, ended=True)}
    assert found == {"checkpoint-7": False, "step_7": False, "latest": True}


def test_pictures_of_an_epoch_are_results(out: Path) -> None:
    for name in ("epoch_1", "step_1", "checkpoint-1"):
        (out / name).mkdir(parents=True)
        (out / name / "sample.png").write_bytes(b"png")
    assert results_in(LocalWorkspace(out, Rules())).keys() == {
        "epoch_1/sample.png",
        "step_1/sample.png",
    }


def test_results_of_one_name_are_both_there(out: Path, tmp_path: Path) -> None:
    workspace = LocalWorkspace(out, Rules())
    (out / "log.txt").write_text("mine")
    (tmp_path / "log.txt").write_text("elsewhere")
    found = {path: at.read_text() for path, at in results_in(workspace, tmp_path / "log.txt").items()}
    assert found == {"log.txt": "mine", "results/log.txt": "elsewhere"}
    (out / "results").mkdir()
    (out / "results" / "log.txt").write_text("mine too")
    found = {path: at.read_text() for path, at in results_in(workspace, tmp_path / "log.txt").items()}
    assert found == {"log.txt": "mine", "results/log.txt": "mine too", "results-2/log.txt": "elsewhere"}


def test_what_is_written_beside_checkpoints_wakes_nobody(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that grows many times a second."""
    for number in range(3):
        step(out, number)
    workspace = LocalWorkspace(out, STEPS)
    assert len(look(workspace)) == 3
    for each in workspace.look(0.0, ended=True):
        workspace.take(each)
    workspace.look(FAR_S, ended=True)
    looked = list[Path]()
    monkeypatch.setattr(held.HeldCheckpoint, "look", lambda self, now_s: looked.append(self.at))
    (out / "train.log").write_text("loss")
    workspace.wait(0.05)
    workspace.look(FAR_S + 0.1)
    assert looked == []
    (out / "step_1" / "done").write_text("again")
    workspace.wait(FAR_S)
    workspace.look(FAR_S + 0.2)
    assert looked == [out / "step_1"]


# Which of those on this machine and in the store is the newest


def of(name: str, written_s: int) -> CheckpointCandidate:
    return CheckpointCandidate(name=name, folder=False, files={}, written_ns=written_s * 10**9)


@pytest.mark.parametrize(
    ("here", "newest"),
    [
        ([], None),
        ([of("step_9", 1), of("step_10", 2)], "step_10"),
        ([of("step_9", 5), of("step_10", 2)], "step_10"),  # a clock that was put back
        ([of("last.ckpt", 5), of("step=10.ckpt", 2)], "last.ckpt"),
        ([of("last.ckpt", 1), of("step=10.ckpt", 2), of("step=9.ckpt", 3)], "step=10.ckpt"),
        ([of("last.ckpt", 1), of("best.ckpt", 2)], "best.ckpt"),
    ],
)
def test_the_newest_here_is_told_by_steps_else_by_time(here: list[CheckpointCandidate], newest: str | None) -> None:
    found = _newest_local(here, step_of)
    assert (found.name if found else None) == newest


def committed(run: str, after_ms: int, step: int | None) -> CommittedCheckpoint:
    manifest = Manifest(step=step or 0, spec_hash="", fingerprint={}, exact=False, files=())
    return CommittedCheckpoint(ref=Ref(run, 1), name="last.pt", manifest=manifest, after_ms=after_ms, step=step)


@pytest.mark.parametrize(
    ("local", "theirs", "newer"),
    [
        (RunStart(step=10, continued_ms=1), committed("000002", 500, 9), True),
        (RunStart(step=9, continued_ms=900), committed("000002", 500, 9), False),
        (RunStart(step=None, continued_ms=501), committed("000002", 500, None), True),
        (RunStart(step=None, continued_ms=500), committed("000002", 500, None), False),
        (
            RunStart(step=None, continued_ms=1),
            committed("000001", 500, None),
            True,
        ),  # what the last run wrote is after what it began with
        (RunStart(step=None, continued_ms=0), committed("000001", 500, None), False),
    ],
)
def test_what_is_here_is_newer_than_what_is_there(local: RunStart, theirs: CommittedCheckpoint, newer: bool) -> None:
    assert _is_newer(local, theirs, "000002") is newer


def test_a_folder_is_ours_until_another_run_has_begun(tmp_path: Path) -> None:
    """One that was remembered and died before it began has changed nothing."""
    objects = FolderObjects(tmp_path / "store")
    prefix = RunPrefix(
        objects=objects, transfer=FolderTransfer(objects), address="store", rng=Random(1), now_ms=lambda: 0
    )
    workspace = LocalWorkspace(tmp_path / "out", STEPS)
    found = {run: PrefixContent(begun={run: Begun(run=run, origin=None)}) for run in ("000001", "000002", "000003")}
    assert is_disk_newest(prefix, workspace, PrefixContent()) and not is_disk_newest(prefix, workspace, found["000001"])
    workspace.remember({RUN: "000002", BEFORE: "000001", ADDRESS: "store"})
    ours = {run: is_disk_newest(prefix, workspace, each) for run, each in found.items()}
    assert ours == {"000001": True, "000002": True, "000003": False}
    workspace.remember({RUN: "000002", BEFORE: "", ADDRESS: "another"})
    assert not is_disk_newest(prefix, workspace, found["000002"])


def test_what_could_not_be_held_is_lacking_until_something_newer_could(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is not tried again at once."""
    said, put = list[str](), list[str]()
    at_s = [0.0]
    tools = SimpleNamespace(workspace=LocalWorkspace(out, STEPS), now_s=lambda: at_s[0])
    watcher = Watcher(
        STEPS,
        tools,  # type: ignore[arg-type]
        SimpleNamespace(processes=1),  # type: ignore[arg-type]
        lambda: 7,
        lambda taken, after_ms: put.append(f"{taken.name} {after_ms}"),
        ErrorReporter(said.append),
    )
    with monkeypatch.context() as patch:
        patch.setattr(held, "put", refuse_full)
        step(out, 1)
        watcher.look()
        watcher.look()
    assert watcher.lacks_newest and said == ["warning: step_1 cannot be kept for the upload: No space left on device"]
    at_s[0] = 1.0
    watcher.look()
    assert put == []
    at_s[0] = REFUSED_S + 1
    watcher.look()
    assert put == ["step_1 7"] and not watcher.lacks_newest


def refuse_full(*_: object, **__: object) -> None:
    raise OSError(28, os.strerror(28))


# What the next process knows of versions


IN_PLACE = ("model.safetensors", "optimizer.bin", "random_states_0.pkl")


def write_state(place: Path, number: int, names: tuple[str, ...] = IN_PLACE) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name in names:
        habits.WRITE[Path(name).suffix](place / name, f"{number} state")


def lacking(out: Path) -> str:
    """What the next process says lacks of the only thing that lies there."""
    workspace = LocalWorkspace(out, Rules())
    try:
        found = workspace.look(0.0, ended=True)
        return "; ".join(lacks(Rules(), each) for each in found)
    finally:
        workspace.close()


@pytest.fixture
def taken(out: Path) -> Path:
    """A folder that was taken and described by a process that has ended."""
    write_state(out / "last-state", 1)
    workspace = LocalWorkspace(out, Rules())
    (candidate,) = workspace.look(0.0, ended=True)
    held = workspace.take(candidate)
    assert held and workspace.describe(held)
    workspace.close()
    return out


def test_what_was_taken_is_whole_for_the_next_process(taken: Path) -> None:
    assert lacking(taken) == ""


@pytest.mark.parametrize("count", [1, 2])
def test_half_of_the_next_version_is_half_for_the_next_process(taken: Path, count: int) -> None:
    write_state(taken / "last-state", 2, IN_PLACE[:count])
    assert lacking(taken) == "random_states_0.pkl is still from the previous version"
    write_state(taken / "last-state", 2)
    assert lacking(taken) == ""


def test_on_a_copy_of_the_disk_the_bytes_tell_the_version(taken: Path, tmp_path: Path) -> None:
    """There every file has another inode, and was written when it was copied."""
    copies = tmp_path / "copies"
    for name in ("out", ".out.gangline"):
        shutil.copytree(tmp_path / name, copies / name, copy_function=shutil.copyfile)
    assert lacking(copies / "out") == ""
    write_state(copies / "out" / "last-state", 2, IN_PLACE[:1])
    for name in IN_PLACE[1:]:  # copied again, behind it
        shutil.copyfile(taken / "last-state" / name, copies / "again")
        (copies / "again").replace(copies / "out" / "last-state" / name)
    assert lacking(copies / "out") == "random_states_0.pkl is still from the previous version"


def test_what_is_remembered_of_versions_may_be_damaged(taken: Path, tmp_path: Path) -> None:
    (tmp_path / ".out.gangline" / "versions.json").write_text('{"last-state": {"marks": []}}')
    assert lacking(taken) == ""


def test_a_checkpoint_is_sent_where_the_disk_has_no_room_to_remember_its_version(out: Path) -> None:
    """The next one is remembered, once there is room."""
    write_state(out / "last-state", 1)
    workspace = LocalWorkspace(out, Rules())
    refusing = out.parent / ".out.gangline" / ".versions.json"
    refusing.mkdir()
    for number in (1, 2):
        write_state(out / "last-state", number)
        (candidate,) = workspace.look(float(number), ended=True)
        held = workspace.take(candidate)
        assert held and len(workspace.describe(held)) == len(IN_PLACE)
        if refusing.is_dir():
            refusing.rmdir()
    workspace.close()
    write_state(out / "last-state", 3, IN_PLACE[:1])
    assert lacking(out) == "random_states_0.pkl is still from the previous version"


def test_restored_files_keep_their_times_and_their_order(out: Path) -> None:
    """Some scripts go on from the newest file by its time, or by that of its inode."""
    names = ["dog_000000010.safetensors", "optimizer.pt", "a.pt"]
    written_ns = {name: 10**18 + number for number, name in enumerate(names)}
    workspace = LocalWorkspace(out, Rules())
    contents = {name: f"{name} 1".encode() for name in names}
    files = tuple(
        File(path=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in sorted(contents.items())
    )
    manifest = Manifest(step=10, spec_hash="", fingerprint={}, exact=False, files=files)
    come = workspace.incoming(manifest)
    come.mkdir(parents=True)
    for name in sorted(names):  # in another order
        (come / name).write_bytes(contents[name])
    workspace.install(ROOT, manifest, written_ns)
    assert {name: (out / name).stat().st_mtime_ns for name in names} == written_ns
    assert sorted(names, key=lambda name: (out / name).stat().st_ctime_ns) == names
    assert len({(out / name).stat().st_ctime_ns for name in names}) == len(names)
    assert workspace.holds(ROOT, manifest) == (out / "dog_000000010.safetensors").exists()


def test_a_layout_that_was_named_counts_whatever_lay_there_before(taken: Path) -> None:
    (taken / "ckpt_5.pt").write_bytes(b"state")
    workspace = LocalWorkspace(taken, Rules(layout="files"))
    assert [each.title for each in workspace.look(0.0, ended=True)] == ["ckpt_5.pt"]


def test_a_file_in_the_folder_itself_that_has_no_number_is_copied(out: Path) -> None:
    """It will be written over; a link to the others costs nothing."""
    out.mkdir()
    for name in ("dog_000000010.safetensors", "optimizer.pt"):
        habits.WRITE[Path(name).suffix](out / name, "10 state")
    workspace = LocalWorkspace(out, Rules())
    (candidate,) = workspace.look(0.0, ended=True)
    held = workspace.take(candidate)
    assert held
    same = {path: at.stat().st_ino == (out / path).stat().st_ino for path, at in held.files.items()}
    assert same == {"dog_000000010.safetensors": True, "optimizer.pt": False}


def test_a_file_that_is_renamed_while_it_is_looked_at_has_no_writer(tmp_path: Path) -> None:
    """safetensors writes below another name and renames: between a list and a look the file is gone."""
    assert not has_writer(tmp_path / ".tmpkgMMZX")
