"""Jobs that begin in the same second do not all save, nor all report, in the same seconds: a server has a thousand of them."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.service.conftest import POLICY, Service
from tests.worker.test_agent import Node, SlowTransfer, give_long_job, make_node

NODES = 20
BEAT_S = round(POLICY.heartbeat_interval_s)


class Together:
    """Nodes that each get a job in the same second."""

    def __init__(self, service: Service, tmp_path: Path) -> None:
        self._service = service
        self._nodes = [self._make_node(tmp_path / str(number), number) for number in range(NODES)]
        self.jobs = [give_long_job(node) for node in self._nodes]

    @property
    def saves_at(self) -> list[list[int]]:
        """The seconds at which each trainer was asked to save."""
        return [run.asked_at for node in self._nodes for run in node.trainer.runs]  # type: ignore[attr-defined]

    def step(self) -> None:
        """A second passes for all nodes."""
        self._service.wait(1)
        for node in self._nodes:
            node.agent.step(self._service.now_ms / 1000)

    def beats_now(self) -> int:
        """Return how many heartbeats came in this second."""
        attempts = [self._service.store.load("attempts", job=job)[-1] for job in self.jobs]
        return sum(attempt["beat_ms"] > self._service.now_ms - 1000 for attempt in attempts)

    def _make_node(self, folder: Path, number: int) -> Node:
        transfer = SlowTransfer(self._service, looks=1)
        return make_node(self._service, folder, transfer, machine=f"m{number}", rng=Random(number))


@pytest.fixture
def together(service: Service, tmp_path: Path) -> Together:
    return Together(service, tmp_path)


def test_saves_are_spread_over_their_interval(together: Together) -> None:
    while not (together.saves_at and all(len(asked_at) >= 2 for asked_at in together.saves_at)):
        together.step()
    for turn in (0, 1):
        asked_at = [asked_at[turn] for asked_at in together.saves_at]
        assert max(asked_at) - min(asked_at) > POLICY.save_interval_s / 2
        assert max(Counter(asked_at).values()) <= NODES / 4, Counter(asked_at)


def test_heartbeats_are_spread_over_their_interval(together: Together) -> None:
    while not together.saves_at:
        together.step()
    beats = list[int]()
    for _ in range(3 * BEAT_S):
        together.step()
        beats.append(together.beats_now())
    assert sum(beats[-BEAT_S:]) >= NODES * 0.9, beats
    assert max(beats[-BEAT_S:]) <= NODES / 2, beats
