"""What a node does with what its trainer measures: it hands it in seldom, before each commit, and at the end; and late, if it must."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gangline.core.errors import Unreachable
from gangline.core.runs.contract import Progress
from gangline.core.runs.metrics import Point, Reading
from gangline.core.runs.proof import Proof
from gangline.core.specs.spec import spec_hash
from gangline.ports.server import Commit, Done, Hold, Points, Stale
from gangline.ports.trainer import Pictures, RunAccess, Saved
from gangline.worker import metrics_buffer
from gangline.worker.metrics_buffer import MetricsBuffer
from gangline.worker.shipping import METRICS_EVERY_S
from tests.service.conftest import PROJECT, Service
from tests.worker.test_agent import Node, ScriptedRun, SlowTransfer, make_node

STEPS = 80


class Meter:
    """Between a node and its server: the moment and the steps of each batch, and of each commit."""

    def __init__(self, node: Node, away: Callable[[], bool] = lambda: False) -> None:
        self._server: Any = node.agent._edges.server
        self._node = node
        self._away = away
        self.batches: list[tuple[float, int, int]] = []
        self.happened: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def metrics(self, hold: Hold, request: Points) -> Done | Stale:
        if self._away():
            raise Unreachable("nobody answers")
        steps = [point.step for point in request.points]
        self.batches.append((self._node.service.now_ms / 1000, steps[0], steps[-1]))
        self.happened.append(("measured", steps[-1]))
        return self._server.metrics(hold, request)

    def commit(self, hold: Hold, request: Commit) -> Any:
        self.happened.append(("committed", request.manifest["step"]))
        return self._server.commit(hold, request)


def reading(step: int) -> Reading:
    return Reading(point=Point(step=step, values={"loss": 1 / step}))


@dataclass
class SteadyRun(ScriptedRun):
    """A step each time that it is told to take one, until it has taken all."""

    step: int = 0

    def take_step(self) -> None:
        self.step += 1
        self.readings.append(reading(self.step))

    def exit_code(self) -> int | None:
        return 0 if self.step == STEPS else None

    def pictures(self) -> list[Pictures]:
        return []

    def progress(self) -> Progress:
        return Progress(phase="training", step=self.step, steps=STEPS, loss=0.5)


@dataclass
class SteadyTrainer:
    runs: list[SteadyRun] = field(default_factory=list)

    def prove(self) -> Proof:
        return Proof()

    def prepare(self) -> None:
        """It starts at once."""

    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> SteadyRun:
        self.runs.append(SteadyRun(directory, []))
        return self.runs[-1]


def metered(service: Service, folder: Path, away: Callable[[], bool] = lambda: False) -> tuple[Node, Meter]:
    node = make_node(service, folder, SlowTransfer(service, looks=2))
    meter = Meter(node, away)
    object.__setattr__(node.agent._edges, "server", meter)
    object.__setattr__(node.agent._edges, "trainer", SteadyTrainer())
    return node, meter


def run_to_the_end(service: Service, node: Node, each: Callable[[SteadyRun], None] = lambda _: None) -> str:
    """A step a second."""
    job = service.submit(steps=STEPS)
    trainer: Any = node.agent._edges.trainer
    while service.state(job) != "succeeded":
        node.step()
        if trainer.runs and trainer.runs[0].step < STEPS:
            trainer.runs[0].take_step()
            each(trainer.runs[0])
    return job


def measured(service: Service, job: str) -> list[int]:
    found = service.ask("GET", f"/v1/jobs/{job}/metrics").json()
    return [point["step"] for point in found["points"]]


def test_batches_go_every_ten_seconds_and_the_rest_at_the_end(service: Service, tmp_path: Path) -> None:
    node, meter = metered(service, tmp_path)
    job = run_to_the_end(service, node)
    moments = [moment for moment, _, _ in meter.batches]
    assert all(after - before >= METRICS_EVERY_S for before, after in pairwise(moments[:-1]))
    assert len(moments) <= STEPS / METRICS_EVERY_S + 2
    assert measured(service, job) == list(range(1, STEPS + 1))


def test_a_server_that_is_away_gets_them_later(service: Service, tmp_path: Path) -> None:
    away = [True]
    node, meter = metered(service, tmp_path, lambda: away[0])

    def come_back(run: SteadyRun) -> None:
        away[0] = run.step < STEPS / 2

    job = run_to_the_end(service, node, come_back)
    assert meter.batches[0][1] == 1 and meter.batches[0][2] >= STEPS / 4
    assert measured(service, job) == list(range(1, STEPS + 1))


def test_what_was_measured_up_to_a_checkpoint_is_there_before_the_checkpoint_counts(
    service: Service, tmp_path: Path
) -> None:
    """Whoever goes on from it does not measure that again."""
    node, meter = metered(service, tmp_path)

    def save(run: SteadyRun) -> None:
        if run.step % 16 == 0 and run.step < STEPS:
            folder = run.directory / "checkpoints" / f"{run.step:06d}"
            folder.mkdir(parents=True)
            (folder / "weights.safetensors").write_bytes(b"weights")
            run.readings.append(Reading(point=Point(step=run.step, values={}), saved=True))
            mine = spec_hash(service.spec(steps=STEPS))
            run.saved.append(Saved(folder, service.manifest(run.step, spec_hash=mine)))

    job = run_to_the_end(service, node, save)
    commits = [place for place, (what, _) in enumerate(meter.happened) if what == "committed"]
    assert len(commits) >= 3
    for place in commits:
        before = [step for what, step in meter.happened[:place] if what == "measured"]
        assert before[-1] >= meter.happened[place][1]
    assert service.store.load("checkpoints", job=job)[0]["project"] == PROJECT


def test_a_server_that_is_away_for_long_gets_fewer_points_that_reach_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_buffer, "KEPT_MAX", 100)
    buffer = MetricsBuffer(7)
    for step in range(8, 500):
        buffer.take([reading(step)], ended=False)
    buffer.take([], ended=True)
    assert len(buffer.points) <= 100 and buffer.points[-1].step == 499
    mean = sum(1 / step for step in range(8, 500)) / 492
    weights = [
        after - before
        for before, after in zip([7, *(p.step for p in buffer.points)], (p.step for p in buffer.points), strict=False)
    ]
    found = sum(point.values["loss"] * weight for point, weight in zip(buffer.points, weights, strict=True)) / 492
    assert found == pytest.approx(mean, rel=1e-4), "a mean of means is the mean"
