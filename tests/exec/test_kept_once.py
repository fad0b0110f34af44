"""The same bytes under two names are sent and kept once; nothing that a record refers to is deleted, wherever a kill falls."""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event

import pytest

from gangline.adapters.host.script.workspace import LocalWorkspace
from gangline.adapters.objects.folder import FolderObjects, FolderTransfer
from gangline.adapters.objects.s3 import S3Objects
from gangline.core.command.layout import Rules
from gangline.core.command.lineage import Begun, CommittedCheckpoint, Ref, history
from gangline.exec.checkpoint_uploader import CheckpointUploader
from gangline.exec.plan import ExecPlan
from gangline.exec.run_prefix import RunPrefix
from tests.exec.chain import save
from tests.exec.conftest import Line
from tests.exec.test_exec import records

FILES = 4
"""Of a checkpoint of `chain.py`."""


class Killed(Exception):
    """Between two requests."""


class Mortal(FolderObjects):
    """A folder that is reached for so many more requests that change something."""

    left = 10**9

    def _spend(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def write(self, key: str, content: bytes) -> None:
        self._spend()
        super().write(key, content)

    def bring_in(self, source: Path, key: str) -> None:
        self._spend()
        super().bring_in(source, key)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._spend()
            super().delete([key])


@dataclass
class Prefix:
    """A store, and a script's folder whose checkpoints are sent by hand; each run is another process."""

    root: Path
    keep: int = 2
    sent: list[CommittedCheckpoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.objects = Mortal(self.root / "store")
        transfer = FolderTransfer(self.objects)
        self.prefix = RunPrefix(
            objects=self.objects, transfer=transfer, address="store", rng=Random(1), now_ms=lambda: 0, say=print
        )
        (self.root / "out").mkdir()

    def begin(self) -> None:
        found = self.prefix.find()
        run = self.prefix.claim({}, known=found.runs)
        begun = Begun(
            run=run, origin=max(history(found.begun, found.refs, last=max(found.begun, default=None)), default=None)
        )
        self.prefix.begin(begun)
        self.workspace = LocalWorkspace(self.root / "out", Rules(layout="hf-trainer"))
        self.workspace.look(0.0, ended=True)
        plan = ExecPlan(command=("x",), keep=self.keep)
        self.sender = CheckpointUploader(plan, self.prefix, self.workspace, begun, found, self.sent.append, print)

    def die(self) -> None:
        self.workspace.close()

    def send(self, name: str, step: int) -> None:
        """A checkpoint of this name with the state of this step."""
        at, same = self.root / "out" / name, self.root / "out" / f"checkpoint-{step}"
        if same.exists() and name == "last":  # saved anew, a zip file would have another time in it
            shutil.copytree(same, at, dirs_exist_ok=True, copy_function=shutil.copyfile)
        else:
            save(at, step, f"state {step}", 20_000, NO_PAUSE)
        for candidate in self.workspace.look(0.0, ended=True):
            if candidate.name == name and (taken := self.workspace.take(candidate)):
                self.sender.put(taken, 0)
                self.sender.send_next()

    def committed(self) -> list[CommittedCheckpoint]:
        return [self.prefix.read(ref) for ref in self.prefix.find().refs]

    def files(self) -> set[str]:
        return {key for key in self.objects.list("runs") if "/checkpoints/" in key and key.count("/") > 3}

    def kept_of(self, committed: CommittedCheckpoint) -> dict[str, bytes]:
        return {file.path: self.objects.read(committed.key_of(file.path)) for file in committed.manifest.files}


NO_PAUSE = Event()


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path)


def test_a_state_under_two_names_is_sent_once_and_comes_back_under_both(prefix: Prefix, tmp_path: Path) -> None:
    prefix.begin()
    prefix.send("checkpoint-100", 100)
    files = prefix.files()
    prefix.send("last", 100)
    assert prefix.files() == files
    first, second = prefix.committed()
    assert (second.name, second.sent_bytes) == ("last", 0) and second.bytes == first.bytes == first.sent_bytes
    prefix.prefix.get(second, tmp_path / "got")
    assert (tmp_path / "got/last/model.safetensors").read_bytes() == (
        prefix.root / "out/checkpoint-100/model.safetensors"
    ).read_bytes()


def test_as_many_states_are_kept_as_without_second_names(prefix: Prefix) -> None:
    prefix.begin()
    for step in (100, 200, 300):
        prefix.send(f"checkpoint-{step}", step)
        prefix.send("last", step)
    assert [each.name for each in prefix.committed()] == ["checkpoint-200", "last", "checkpoint-300", "last"]
    assert len(prefix.files()) == 2 * FILES


def test_what_a_kept_checkpoint_refers_to_outlives_the_one_that_it_came_with(prefix: Prefix) -> None:
    """`last` goes on changing its other files; its weights came with a checkpoint that is long deleted."""
    prefix.keep = 2
    prefix.begin()
    prefix.send("checkpoint-100", 100)
    prefix.send("checkpoint-200", 200)
    shared = prefix.root / "out" / "checkpoint-100" / "config.json"
    shared.write_text("{}")
    for step in (300, 400, 500, 600):
        (prefix.root / "out" / f"checkpoint-{step}").mkdir()
        (prefix.root / "out" / f"checkpoint-{step}" / "config.json").write_text("{}")
        prefix.send(f"checkpoint-{step}", step)
    kept = prefix.committed()
    assert [each.name for each in kept] == ["checkpoint-500", "checkpoint-600"]
    assert {each.key_of(f"{each.name}/config.json") for each in kept} == {
        "runs/000001/checkpoints/000003/checkpoint-300/config.json"
    }
    assert all(prefix.kept_of(each) for each in kept)
    prefix.die()
    prefix.begin()  # another process knows it from the records
    for step in (700, 800):
        prefix.send(f"checkpoint-{step}", step)
    assert [each.name for each in prefix.committed()] == ["checkpoint-700", "checkpoint-800"]
    assert not any(key.startswith("runs/000001") for key in prefix.files())


def test_where_a_record_cannot_be_read_nothing_is_deleted_that_it_may_refer_to(prefix: Prefix) -> None:
    prefix.begin()
    for step in (100, 200):
        prefix.send(f"checkpoint-{step}", step)
    prefix.die()
    record = prefix.root / "store/runs/000001/checkpoints/000002.json"
    whole = record.read_text()
    record.write_text("{")
    prefix.begin()
    prefix.send("checkpoint-300", 300)
    files = [key for key in prefix.files() if key.startswith("runs/000001")]
    assert len(files) == 2 * FILES
    record.write_text(whole)
    assert prefix.kept_of(prefix.prefix.read(Ref("000001", 2)))


@pytest.mark.parametrize("requests", range(32))
def test_a_kill_between_any_two_requests_leaves_every_record_whole(tmp_path: Path, requests: int) -> None:
    prefix = Prefix(tmp_path)
    prefix.begin()
    prefix.objects.left = requests
    try:
        for step in (100, 200, 300):
            prefix.send(f"checkpoint-{step}", step)
            prefix.send("last", step)
    except Killed:
        pass
    prefix.die()
    prefix.objects.left = 10**9
    before = prefix.committed()
    assert all(prefix.kept_of(each) for each in before)
    prefix.begin()
    for step in (400, 500):
        prefix.send(f"checkpoint-{step}", step)
    after = prefix.committed()
    assert [each.step for each in after] == [400, 500]
    assert prefix.files() == {each.key_of(file.path) for each in after for file in each.manifest.files}


def test_a_script_that_saves_each_state_under_two_names_goes_on_from_the_second(line: Line, place: S3Objects) -> None:
    script = (
        "import shutil, sys; from pathlib import Path; from threading import Event\n"
        "sys.path.insert(0, sys.argv[1]); from tests.exec.chain import save\n"
        "print('has', sorted(path.name for path in Path('out').iterdir()), flush=True)\n"
        "save(Path('out/checkpoint-5'), 5, 'five', 50_000, Event())\n"
        "shutil.copytree('out/checkpoint-5', 'out/coming'); Path('out/coming').rename('out/latest')\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    root = str(Path(__file__).parents[2])
    first = line.start("a", command=(sys.executable, "-c", script, root, "1"))
    code, told = first.end()
    assert (code, told["checkpoints"]) == (1, 2), first.text
    assert told["bytes_uploaded"] < 60_000, first.text
    # Where both were queued before the first was sent, the newest is sent first.
    assert (
        len(re.findall(r"(checkpoint-5|latest) is safe in \S+: its bytes had been uploaded already", first.text)) == 1
    )
    assert len(records(place)) == 2
    second = line.start("b", command=(sys.executable, "-c", script, root, "0"))
    second.until("has ['latest']")


def test_with_none_to_keep_after_the_end_the_results_alone_stay_and_the_line_still_does_nothing(
    line: Line, place: S3Objects
) -> None:
    options = ("--keep-after-end", 0)
    assert line.start("a", chain=(30,), options=options).end()[0] == 0
    assert [key for key in place.list("runs") if "/checkpoints/" in key] == []
    assert "runs/000001/output/result.txt" in set(place.list("runs"))
    code, told = line.start("b", chain=(30,), options=options).end()
    assert code == 0 and "has already finished this command" in told["because"]


def test_what_was_pinned_stays_after_the_end(line: Line, place: S3Objects) -> None:
    assert line.start("a", chain=(40,), options=("--keep-after-end", 1, "--pin", 10)).end()[0] == 0
    assert [json.loads(place.read(key))["step"] for key in records(place)] == [10, 40]


@pytest.mark.parametrize("code", [9, 0])
def test_what_has_not_come_to_its_end_keeps_its_checkpoints(line: Line, place: S3Objects, code: int) -> None:
    """After a failure they are what the next run goes on from; so they are where the end was not written down."""
    chain, options = (40, "--code", code), ("--keep-after-end", 0)
    assert line.start("a", chain=chain, options=options if code else ()).end()[0] == code
    assert len(records(place)) == 2
    again = line.start("b", chain=chain, options=options)
    again.end()
    assert len(records(place)) == (2 if code else 0), again.text  # a line that was killed before it deleted does so now
