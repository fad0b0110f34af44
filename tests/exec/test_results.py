"""What a script leaves beside its checkpoints is in the store as it comes, whatever ends a run; and comes back from there."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from threading import Event
from time import process_time

import pytest

from gangline.adapters.host.script.results import NOTES, LocalResults
from gangline.adapters.host.script.workspace import LocalWorkspace
from gangline.adapters.objects.folder import FolderObjects, FolderTransfer
from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.core.command.layout import Rules
from gangline.core.command.lineage import Begun, parse_result
from gangline.core.command.results import UploadPace
from gangline.core.errors import BadInput
from gangline.exec.checkpoint_uploader import CheckpointUploader
from gangline.exec.error_reporter import ErrorReporter
from gangline.exec.fetch import Fetch
from gangline.exec.plan import ExecPlan
from gangline.exec.results import ResultUploader
from gangline.exec.run_prefix import RunPrefix
from gangline.ports.results import ScannedFile
from tests.exec.conftest import GANGLINE, Line
from tests.exec.epochs import model_of, picture_of
from tests.proxy import Proxy
from tests.waiting import until

EPOCHS = Path(__file__).parent / "epochs.py"
ALL = {f"timber-{epoch:06d}.safetensors": model_of(epoch) for epoch in range(1, 7)} | {
    f"sample/{epoch:06d}.png": picture_of(epoch) for epoch in range(1, 7)
}


def words(pause_at: int = 0) -> tuple[str, ...]:
    return (
        *(sys.executable, str(EPOCHS), "out", "6"),
        *(("--pause-at", str(pause_at)) if pause_at else ()),
        *("--resume", "{checkpoint}"),
    )


def fetch(line: Line, *more: object) -> tuple[int, dict[str, object], str]:
    ran = subprocess.run(
        [*GANGLINE, "fetch", line.to, str(line.root / "got"), "-o", "json", *map(str, more)],
        check=False,
        env=line.environment,
        capture_output=True,
        text=True,
    )
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else {}, ran.stderr


def got(line: Line) -> dict[str, bytes]:
    below = line.root / "got"
    found = {path.relative_to(below).as_posix(): path for path in below.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(".")}


def results(place: S3Objects, run: int) -> set[str]:
    return {key for key in place.list(f"runs/{run:06d}") if parse_result(key)}


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_models_and_pictures_of_all_machines_are_in_the_union(line: Line, place: S3Objects, how: str) -> None:
    first = line.start("a", command=words(pause_at=3))
    first.until("timber-000003-state is safe")
    if how == "SIGKILL":
        made = {f"runs/000001/output/{path}" for path in ALL if any(f"00000{epoch}" in path for epoch in (1, 2, 3))}
        until(lambda: made <= results(place, 1))
        first.kill()
    else:
        first.signal(signal.SIGTERM)
        assert first.end()[0] == 75
    second = line.start("b", command=words(), options=("--any-script",))
    code, told = second.end()
    assert code == 0 and "from epoch 3" in second.text
    assert told["results"] == f"{line.to}/runs/000002/output"
    code, fetched, said = fetch(line)
    assert code == 0, said
    found = got(line)
    events = sorted(name for name in found if name.startswith("events."))
    assert [found[name] for name in events] == [b"epoch 1\nepoch 2\nepoch 3\n", b"epoch 4\nepoch 5\nepoch 6\n"]
    assert {name: found[name] for name in found if name not in events} == ALL
    assert fetched["files"] == 14 and fetched["runs"] == [2, 1]
    assert not any("-state" in key for run in (1, 2) for key in results(place, run))


# One run's results, on this machine


@dataclass
class Folder:
    """A script's folder and what sends its results, looked at by hand: each look is `later` on a clock of its own."""

    root: Path
    said: list[str] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.objects = FolderObjects(self.root / "store")
        transfer = FolderTransfer(self.objects)
        self.prefix = RunPrefix(
            objects=self.objects,
            transfer=transfer,
            address="store",
            rng=Random(1),
            now_ms=lambda: 0,
            say=self.said.append,
        )
        self.out.mkdir(exist_ok=True)

    @property
    def out(self) -> Path:
        return self.root / "out"

    def begin(self, *, before: str = "", ours: bool = True) -> None:
        """A run of its own, on this disk; `before` is the one that it goes on from."""
        found = self.prefix.find()
        run = self.prefix.claim({}, known=found.runs)
        self.begun = Begun(run=run, origin=None, continues=before)
        self.prefix.begin(self.begun)
        self.workspace = LocalWorkspace(self.out, Rules())
        files = LocalResults(self.out, self.workspace.state, Rules(), (), self.workspace.is_written)
        sender = CheckpointUploader(
            ExecPlan(command=("x",)), self.prefix, self.workspace, self.begun, found, lambda _: None, self.said.append
        )
        self.results = ResultUploader(
            files,
            self.prefix,
            sender,
            self.begun,
            found,
            ErrorReporter(self.said.append),
            self.said.append,
            lambda: self.now_s,
            ours=ours,
        )

    def look(self, later: float = 2.0) -> None:
        self.now_s += later
        self.results.look(Event())

    def end(self, *, killed: bool = True, recognised: bool = True) -> bool:
        complete = self.results.finish(killed=killed, recognised=recognised)
        self.workspace.close()
        return complete

    def die(self) -> None:
        self.workspace.close()

    @property
    def keys(self) -> list[str]:
        return sorted(
            key.removeprefix("runs/") for key in self.objects.list("runs") if "/output" in key and "records" not in key
        )

    @property
    def union(self) -> dict[str, bytes]:
        to = self.root / f"got {len(list(self.root.iterdir()))}"
        Fetch(self.prefix, to, self.said.append)(run=None, checkpoint=False)
        found = {path.relative_to(to).as_posix(): path for path in to.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in found.items() if not name.startswith(".")}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_what_was_written_to_a_file_that_stays_open_is_there_a_minute_later(folder: Folder) -> None:
    """As TensorBoard's are. Nothing is sent at the end: the machine is gone."""
    folder.begin()
    with (folder.out / "events").open("w") as events:
        for minute in range(3):
            print("loss", minute, file=events, flush=True)
            folder.look()
            folder.look()
            folder.look(later=56.0)
        print("lost", file=events, flush=True)
        folder.look()
    folder.die()
    assert folder.union == {"events": b"loss 0\nloss 1\nloss 2\n"}
    assert len(folder.keys) == 1 and len(list(folder.objects.list("runs/000001/output-records"))) == 1


def test_a_file_that_is_being_written_for_the_first_time_is_no_snapshot(folder: Folder) -> None:
    folder.begin()
    with (folder.out / "model.safetensors").open("wb") as half:
        half.write(model_of(1)[:100])
        half.flush()
        folder.look()
        folder.look()
        assert folder.keys == []
        half.write(model_of(1)[100:])
    folder.look()
    folder.look()
    assert folder.union == {"model.safetensors": model_of(1)}


def test_a_file_that_was_written_over_is_fetched_in_its_newest_whole_version(folder: Folder) -> None:
    folder.begin()
    for content in (b"one", b"two", b"three"):
        (folder.out / "last.png").write_bytes(content)
        folder.look(later=60.0)
        folder.look()
    assert folder.union == {"last.png": b"three"} and folder.keys == ["000001/output-3/last.png"]
    (folder.out / "model.safetensors").write_bytes(model_of(1))
    folder.look()
    folder.look()
    (folder.out / "model.safetensors").write_bytes(model_of(2)[:-1])
    assert folder.end()
    assert folder.union["model.safetensors"] == model_of(1)
    assert "warning: half-written files are not uploaded: model.safetensors" in folder.said


def test_on_the_same_disk_nothing_is_sent_twice(folder: Folder) -> None:
    folder.begin()
    for number in range(40):
        (folder.out / f"{number}.png").write_bytes(bytes([number]))
    folder.look()
    folder.look()
    folder.die()
    before = {key: (folder.objects.root / key).stat().st_mtime_ns for key in folder.objects.list("runs")}
    folder.begin(before="000001")
    folder.look()
    folder.look()
    assert folder.end() and (folder.results.count, folder.results.bytes) == (0, 0)
    after = {key: (folder.objects.root / key).stat().st_mtime_ns for key in folder.objects.list("runs")}
    assert set(after) - set(before) == {"runs/000002/begun.json"} and before.items() <= after.items()
    assert folder.union == {f"{number}.png": bytes([number]) for number in range(40)}


def test_a_run_that_begins_anew_on_the_same_disk_sends_what_lies_there_as_its_own(folder: Folder) -> None:
    folder.begin()
    (folder.out / "a.png").write_bytes(b"a")
    assert folder.end()
    folder.begin()
    assert folder.end() and folder.keys == ["000001/output/a.png", "000002/output/a.png"]


def test_an_old_file_on_an_old_disk_hides_no_newer_one(tmp_path: Path) -> None:
    """Run 2 went on elsewhere; run 3 comes back to the disk of run 1, which was killed before it had sent all."""
    (tmp_path / "elsewhere").mkdir()
    here, there = Folder(tmp_path), Folder(tmp_path / "elsewhere")
    there.objects.root, there.prefix = here.objects.root, here.prefix
    here.begin()
    (here.out / "last.png").write_bytes(b"one")
    here.look()
    here.look()
    (here.out / "last.png").write_bytes(b"one, a little later")
    (here.out / "unsent.png").write_bytes(b"of run 1 alone")
    here.die()
    there.begin(before="000001", ours=False)
    (there.out / "last.png").write_bytes(b"two")
    assert there.end()
    here.begin(before="000002", ours=False)
    here.look()
    here.look()
    assert here.union == {"last.png": b"two", "unsent.png": b"of run 1 alone"}
    (here.out / "last.png").write_bytes(b"three")
    assert here.end() and here.union["last.png"] == b"three"


def test_what_was_overtaken_sends_nothing(folder: Folder) -> None:
    folder.begin()
    (folder.out / "a.png").write_bytes(b"a")
    folder.look()
    folder.prefix.claim({})
    folder.look()
    assert not folder.end() and folder.keys == []


def test_where_no_checkpoint_was_recognised_what_looks_like_one_is_not_lost(folder: Folder) -> None:
    folder.begin()
    (folder.out / "checkpoint-5").mkdir()
    for name in ("model.safetensors", "optimizer.bin"):
        (folder.out / "checkpoint-5" / name).write_bytes(model_of(5) if "model" in name else b"\x80.")
    (folder.out / "optimizer.pt").write_bytes(b"\x80.")
    for _ in range(3):
        folder.look(later=100.0)
    assert folder.keys == []
    assert folder.end(recognised=False)
    assert set(folder.union) == {"checkpoint-5/model.safetensors", "checkpoint-5/optimizer.bin", "optimizer.pt"}
    assert "no checkpoint was recognised" in "\n".join(folder.said)


def test_half_a_checkpoint_beside_others_that_were_recognised_is_no_result(folder: Folder) -> None:
    folder.begin()
    (folder.out / "checkpoint-5").mkdir()
    (folder.out / "checkpoint-5" / "model.safetensors").write_bytes(model_of(5))
    assert folder.end() and folder.keys == []


def test_what_goes_between_the_listing_and_the_look_is_nothing_to_say(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.begin()
    scan = LocalResults.scan

    def scan_and_lose(files: LocalResults) -> dict[str, ScannedFile]:
        found = scan(files)
        for look in found.values():
            look.at.unlink(missing_ok=True)
        return found

    (folder.out / "a.png").write_bytes(b"a")
    folder.look()
    monkeypatch.setattr(LocalResults, "scan", scan_and_lose)
    folder.look()
    assert folder.end() and folder.said == []


def test_one_file_that_cannot_have_its_name_holds_up_no_other(folder: Folder) -> None:
    folder.begin()
    (folder.out / ("x" * 254 + "?")).write_bytes(b"a name too long as %3F")
    for number in range(20):
        (folder.out / f"{number}.png").write_bytes(b"b")
    folder.look()
    folder.look()
    assert len(folder.keys) == 20 and "let the script give it another one" in "\n".join(folder.said)
    assert not folder.end()


def test_results_are_safe_where_the_disk_has_no_room_to_note_it(folder: Folder) -> None:
    folder.begin()
    notes = folder.workspace.state / NOTES
    notes.unlink(missing_ok=True)
    notes.mkdir()
    (folder.out / "a.png").write_bytes(b"a")
    assert folder.end()
    assert "not uploaded" not in "\n".join(folder.said) and "a.png is safe" in "\n".join(folder.said)


def test_ten_thousand_files_are_looked_at_for_less_than_a_hundredth_of_a_core(folder: Folder) -> None:
    (folder.out / "samples").mkdir(parents=True)
    for number in range(10_000):
        (folder.out / "samples" / f"{number}.png").touch()
    folder.begin(ours=False)
    files = LocalResults(folder.out, folder.workspace.state, Rules(), (), folder.workspace.is_written)
    began_s = process_time()
    assert len(files.scan()) == 10_000
    took_s = process_time() - began_s
    assert took_s / (took_s + UploadPace().pause_s(took_s)) < 0.01 and took_s < 5


# Fetching


def test_what_is_fetched_again_is_not_downloaded_again_and_nothing_of_ones_own_is_written_over(
    folder: Folder, tmp_path: Path
) -> None:
    folder.begin()
    (folder.out / "a.png").write_bytes(b"a")
    (folder.out / "log.txt").write_bytes(b"one")
    assert folder.end(killed=False)
    fetch = Fetch(folder.prefix, tmp_path / "got", folder.said.append)
    assert (fetch(run=None, checkpoint=False).here, (tmp_path / "got" / "log.txt").read_bytes()) == (0, b"one")
    folder.begin(before="000001")
    (folder.out / "log.txt").write_bytes(b"two")
    assert folder.end(killed=False)
    again = Fetch(folder.prefix, tmp_path / "got", folder.said.append)(run=None, checkpoint=False)
    assert (again.here, again.bytes, (tmp_path / "got" / "log.txt").read_bytes()) == (1, 3, b"two")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "log.txt").write_bytes(b"of another script")
    with pytest.raises(BadInput, match=r"log\.txt exists already and differs from the file"):
        Fetch(folder.prefix, tmp_path / "mine", folder.said.append)(run=None, checkpoint=False)
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"log.txt"}


def test_of_a_damaged_result_the_version_before_is_fetched_and_one_without_a_record_counts(folder: Folder) -> None:
    folder.begin()
    for name in ("a.png", "b.png"):
        (folder.out / name).write_bytes(b"one")
    assert folder.end()
    folder.begin(before="000001")
    (folder.out / "a.png").write_bytes(b"two")
    assert folder.end()
    (folder.objects.root / "runs/000002/output/a.png").write_bytes(b"")
    folder.objects.delete(list(folder.objects.list("runs/000001/output-records")))
    assert folder.union == {"a.png": b"one", "b.png": b"one"}
    assert "a.png of run 2 is damaged in the store" in "\n".join(folder.said)


@pytest.mark.parametrize(
    ("words", "said"), [(("nowhere",), "there is no folder"), (("store", "--run", 9), "holds no run 9")]
)
def test_what_cannot_be_fetched_is_said(line: Line, tmp_path: Path, words: tuple[object, ...], said: str) -> None:
    (tmp_path / "store").mkdir()
    line.to = str(tmp_path / str(words[0]))
    code, _, text = fetch(line, *words[1:])
    assert code == 2 and said in text and not (tmp_path / "got").exists()


def test_where_the_checkpoint_is_the_result_it_is_fetched(line: Line) -> None:
    script = "echo weights > out/last.pt"
    running = line.start("a", command=("bash", "-c", script), options=("--complete-when", "last.pt"))
    code, told = running.end()
    assert code == 0 and told["results"] is None
    assert f"`gangline exec get {line.to} FOLDER --checkpoint` downloads the newest" in running.text
    code, _, text = fetch(line)
    assert code == 2 and "--checkpoint downloads the newest checkpoint" in text
    code, fetched, _ = fetch(line, "--checkpoint")
    assert (code, fetched["checkpoint"], got(line)) == (0, "last.pt", {"checkpoint/last.pt": b"weights\n"})


def test_results_are_there_however_it_ends_and_what_lacks_one_has_not_come_to_its_end(
    line: Line, place: S3Objects
) -> None:
    script = "echo picture > out/a.png; exit {}"
    failing = line.start("a", command=("bash", "-c", script.format(7)))
    assert failing.end()[0] == 7 and results(place, 1) == {"runs/000001/output/a.png"}
    assert json.loads(place.read("runs/000001/ended.json"))["code"] == 7
    name = "x" * 254 + "?"
    for run in (2, 3):
        ending = line.start("b", command=("bash", "-c", f"touch 'out/{name}'; {script.format(0)}"))
        assert ending.end()[0] == 0 and "let the script give it another one" in ending.text
        assert f"run {run} starts from scratch" in ending.text
        assert json.loads(place.read(f"runs/{run:06d}/ended.json"))["code"] is None


def test_fetching_writes_nothing_in_the_store(
    bucket: S3Bucket, make_line: Callable[[S3Bucket], Line], place: S3Objects
) -> None:
    """So that a key which may only list and read is enough."""
    host, port = bucket.endpoint.removeprefix("http://").split(":")
    with Proxy((host, int(port))) as proxy:
        line = make_line(replace(bucket, endpoint=proxy.url, prefix=place._wire.bucket.prefix))
        assert line.start("a", command=("bash", "-c", "echo picture > out/a.png")).end()[0] == 0
        proxy.heard.clear()
        assert fetch(line)[0] == 0 and got(line) == {"a.png": b"picture\n"}
        assert {heard.method for heard in proxy.heard} == {"GET"}


def test_a_newer_checkpoint_takes_the_place_of_the_one_that_was_fetched_and_of_no_other(line: Line) -> None:
    """One whose files lie in the folder itself, too."""
    script = "printf '\\x80%s.' {} > out/latest.pt"
    for number in (1, 2):
        words = ("bash", "-c", script.format(number))
        assert line.start("a", command=words).end()[0] == 0
        code, told, said = fetch(line, "--checkpoint")
        assert (code, told["checkpoint"]) == (0, "latest.pt"), said
        assert got(line)["checkpoint/latest.pt"] == f"\x80{number}.".encode("latin-1")
    (line.root / "got" / "checkpoint" / "mine.txt").write_text("of somebody")
    assert line.start("a", command=("bash", "-c", script.format(3))).end()[0] == 0
    code, _, said = fetch(line, "--checkpoint")
    assert code == 2 and "checkpoint exists already and differs from the checkpoint" in said.replace("\n", " ")


def test_files_that_arrive_all_the_time_are_told_of_once_a_minute(folder: Folder) -> None:
    folder.begin()
    folder.look()
    for number in range(40):
        (folder.out / f"{number}.png").write_bytes(b"x")
    folder.look()
    folder.look()
    assert len(folder.keys) == 40
    assert [said for said in folder.said if "safe in" in said] == [
        "0.png, 1.png, 10.png, 11.png, 12.png and 35 more are safe in store/runs/000001/output"
    ]
    (folder.out / "later.png").write_bytes(b"x")
    folder.look()
    folder.look()
    assert len(folder.keys) == 41 and len(folder.said) == 1
    folder.look(60.0)
    assert folder.said[1:] == ["later.png is safe in store/runs/000001/output"]
    folder.die()


def test_a_command_that_fails_is_not_asked_where_its_checkpoints_are(line: Line) -> None:
    running = line.start("a", command=("bash", "-c", "exit 2"))
    assert running.end()[0] == 2
    assert "warning" not in running.text
