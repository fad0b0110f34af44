"""What every tracker promises, read back from what it wrote: TensorBoard's files, and W&B's in its offline mode."""

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gangline.adapters.trackers.tensorboard import TensorBoard
from gangline.adapters.trackers.wandb import Wandb
from gangline.adapters.trackers.wandb_process import records
from gangline.core.errors import GanglineError, Unreachable
from gangline.core.runs.metrics import Measured
from gangline.ports.tracker import Ending, TrackedPicture, TrackedRun, Tracker

RUN = TrackedRun(id="job-1", project="default", name="a dog", tags=("lora", "hub:sdxl"), settings={"rank": 16})
ENDING = Ending(state="succeeded", summary={"cost_usd": 0.25, "because": "done"})
Rows = list[tuple[int, float]]


def png(width: int = 8) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (width, 8), (200, 0, 0)).save(content, "png")
    return content.getvalue()


def points(*steps: int) -> list[Measured]:
    return [Measured(step=step, at_ms=1000 * step, values={"loss": 1 / step, "learning_rate": 1e-4}) for step in steps]


@dataclass
class Kind:
    """`make` gives a tracker as each server has one; the rest reads back what is there of the run."""

    make: Callable[[], Tracker]
    losses: Callable[[], Rows]
    pictures: Callable[[], list[str]]
    files: Callable[[], Sequence[Path]]


def tensorboard(folder: Path, run: TrackedRun = RUN) -> Kind:
    below = folder / run.project / run.id

    def read() -> EventAccumulator:
        found = EventAccumulator(str(below), size_guidance={"scalars": 0, "images": 0})
        return found.Reload()

    def losses() -> Rows:
        return [(event.step, event.value) for event in read().Scalars("loss")]

    def pictures() -> list[str]:
        found = read()
        return [f"{tag} {event.step}" for tag in found.Tags()["images"] for event in found.Images(tag)]

    return Kind(lambda: TensorBoard(folder), losses, pictures, lambda: sorted(below.glob("*")))


def wandb(folder: Path, run: TrackedRun = RUN) -> Kind:
    def files() -> list[Path]:
        # W&B numbers the folders of sessions that begin in the same second.
        found = folder.glob(f"wandb/offline-run-*-{run.id}*/run-{run.id}.wandb")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    def rows() -> Iterator[dict[str, object]]:
        for record in (record for path in files() for record in records(path)):
            if record.HasField("history"):
                yield {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
                }

    def losses() -> Rows:
        return [(row["_step"], row["loss"]) for row in rows() if "loss" in row]  # type: ignore[misc]

    def pictures() -> list[str]:
        return [
            f"{name[: -len('/caption')]} {str(row[name]).split()[-1]}"
            for row in rows()
            for name in row
            if "caption" in name
        ]

    return Kind(lambda: Wandb("a project", folder), losses, pictures, files)


@pytest.fixture(params=[tensorboard, wandb])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kind:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    return request.param(tmp_path / "told")


@pytest.fixture
def tracker(kind: Kind) -> Iterator[Tracker]:
    tracker = kind.make()
    yield tracker
    tracker.close()


def approximately(found: Rows) -> Rows:
    return [(step, round(loss, 4)) for step, loss in found]


def wanted(*steps: int) -> Rows:
    return [(step, round(1 / step, 4)) for step in steps]


def test_a_run_that_goes_on_elsewhere_is_one_run_with_each_step_once(kind: Kind, tracker: Tracker) -> None:
    assert tracker.open(RUN, 0) == 0
    tracker.write(RUN.id, points(1, 2), [])
    tracker.write(RUN.id, points(5), [])
    tracker.close()
    other = kind.make()
    assert other.open(RUN, 5) == 5
    other.write(RUN.id, points(6, 9), [])
    other.end(RUN.id, ENDING)
    other.close()
    assert approximately(kind.losses()) == wanted(1, 2, 5, 6, 9)


def test_who_goes_on_hears_what_was_written_and_not_marked(kind: Kind, tracker: Tracker) -> None:
    tracker.open(RUN, 0)
    tracker.write(RUN.id, points(1, 2, 3), [])
    tracker.close()
    other = kind.make()
    assert other.open(RUN, 0) == 3
    other.close()


def test_where_nothing_of_the_run_is_here_the_mark_says_where_to_go_on(kind: Kind, tracker: Tracker) -> None:
    """Another server, with a folder of its own, told what came before."""
    assert tracker.open(RUN, 40) == 40


def test_what_breaks_off_in_the_midst_of_a_step_goes_on_before_it(kind: Kind, tracker: Tracker) -> None:
    tracker.open(RUN, 0)
    tracker.write(RUN.id, points(1, 2, 3), [])
    tracker.close()
    file = kind.files()[-1]
    content = file.read_bytes()
    for cut in range(len(content) - 1, 0, -1):
        os.truncate(file, cut)
        if len(kind.losses()) < 3:
            break
    assert approximately(kind.losses()) == wanted(1, 2)
    other = kind.make()
    assert other.open(RUN, 0) == 2
    other.write(RUN.id, points(3, 4), [])
    other.end(RUN.id, ENDING)
    other.close()
    assert approximately(kind.losses()) == wanted(1, 2, 3, 4)


def test_pictures_are_shown_once_by_prompt_and_step(kind: Kind, tracker: Tracker) -> None:
    tracker.open(RUN, 0)
    tracker.write(RUN.id, points(1), [TrackedPicture(path="samples/step-000001/a.png", step=1, content=png())])
    tracker.write(RUN.id, points(2), [TrackedPicture(path="samples/step-000002/a.png", step=2, content=png(16))])
    tracker.write(RUN.id, [], [TrackedPicture(path="samples/grid.png", step=2, content=png(24))])
    tracker.end(RUN.id, ENDING)
    tracker.close()
    assert sorted(kind.pictures()) == ["samples/a.png 1", "samples/a.png 2", "samples/grid.png 2"]
    assert approximately(kind.losses()) == wanted(1, 2)


def test_a_run_can_be_ended_again_after_the_word_of_it_was_lost(kind: Kind, tracker: Tracker) -> None:
    tracker.open(RUN, 0)
    tracker.write(RUN.id, points(1), [])
    tracker.end(RUN.id, ENDING)
    assert tracker.open(RUN, 1) == 1
    tracker.end(RUN.id, ENDING)
    assert approximately(kind.losses()) == wanted(1)


def test_several_runs_are_open_at_a_time(kind: Kind, tracker: Tracker) -> None:
    other = TrackedRun(id="job-2", project="default", name="a cat", tags=(), settings={})
    tracker.open(RUN, 0)
    tracker.open(other, 0)
    tracker.write(RUN.id, points(1), [])
    tracker.write(other.id, points(1, 2, 3), [])
    tracker.write(RUN.id, points(2), [])
    tracker.end(RUN.id, ENDING)
    tracker.end(other.id, ENDING)
    tracker.close()
    assert approximately(kind.losses()) == wanted(1, 2)


def test_a_folder_that_cannot_be_written_is_said_in_words(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "told").write_text("a file")
    with pytest.raises(Unreachable, match="cannot be"):
        kind.make().open(RUN, 0)


def test_w_and_b_knows_how_a_job_ended_and_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    kind, tracker = wandb(tmp_path), Wandb("a project", tmp_path)
    tracker.open(RUN, 0)
    tracker.write(RUN.id, points(1), [])
    tracker.end(RUN.id, Ending(state="failed", summary={"cost_usd": 0.25}))
    tracker.close()
    told = list(records(kind.files()[0]))
    (run,) = [record.run for record in told if record.HasField("run")]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (run.run_id, run.display_name, run.run_group, run.project) == ("job-1", "a dog", "default", "a project")
    assert (list(run.tags), config["rank"]) == (["lora", "hub:sdxl"], 16)
    assert [record.exit.exit_code for record in told if record.HasField("exit")] == [1]
    summary = {item.key or item.nested_key[0]: item.value_json for record in told for item in record.summary.update}
    assert summary["cost_usd"] == "0.25"


def test_without_a_key_w_and_b_is_told_of_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    tracker = Wandb("a project", tmp_path / "told")
    with pytest.raises(GanglineError, match="No API key"):
        tracker.open(RUN, 0)
    tracker.close()


def test_w_and_bs_library_sees_no_secret_of_the_servers_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    tracker = Wandb("a project", tmp_path)
    tracker.open(RUN, 0)
    process = tracker._process
    assert process
    assert b"a secret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    tracker.close()
    tracker.close()
    assert process.returncode is not None
    tracker.open(RUN, 0)
    assert tracker._process
    tracker._process.kill()
    with pytest.raises(Unreachable, match="library ended"):
        tracker.write(RUN.id, points(1), [])
    assert tracker.open(RUN, 0) == 0
    tracker.close()


def test_tensorboards_files_are_open_to_whom_the_users_umask_lets_in(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        board = TensorBoard(tmp_path / "boards", umask=0o022)
        board.open(RUN, 0)
        board.write(RUN.id, [Measured(step=1, at_ms=1, values={"loss": 0.5})], [])
    finally:
        os.umask(before)
    made = [tmp_path / "boards", *(tmp_path / "boards").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o755, 0o644}
