"""A node of several slots works on several jobs at a time, each as if it were alone."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gangline.core.errors import Unreachable
from gangline.core.specs.fields import Needs
from gangline.ports.server import Notice
from gangline.service.controller import Controller
from tests.service.conftest import PRICE, Service
from tests.worker.test_agent import Node, ScriptedRun, SlowTransfer, make_node


@dataclass
class ApartTransfer(SlowTransfer):
    """Each attempt has its own, and they are listed in `all` in the order of the attempts."""

    def __post_init__(self) -> None:
        self.all: list[SlowTransfer] = []

    def apart(self) -> SlowTransfer:
        self.all.append(SlowTransfer(self.service, self.looks))
        return self.all[-1]


@pytest.fixture
def pair(service: Service, tmp_path: Path) -> Node:
    return make_node(service, tmp_path, ApartTransfer(service), slots=2)


def run_until(node: Node, condition: Callable[[], object]) -> None:
    while not condition():
        node.step()


def training_two(node: Node, **settings: Any) -> tuple[str, str]:
    """Two jobs, both in training; the first has the first run."""
    first = node.service.submit(seed=1, **settings)
    run_until(node, lambda: len(node.trainer.runs) == 1)
    second = node.service.submit(seed=2, **settings)
    run_until(node, lambda: len(node.trainer.runs) == 2)
    return first, second


def states(node: Node, *jobs: str) -> list[str]:
    return [node.service.state(job) for job in jobs]


def hold(run: ScriptedRun) -> None:
    """From now on the run says the same in every look, so it does not end."""
    run.exit_code = lambda: 75 if run.stopped else None  # type: ignore[method-assign]


def test_two_jobs_train_at_once_on_a_slot_each_in_a_directory_each(pair: Node) -> None:
    jobs = training_two(pair)
    first, second = pair.trainer.runs
    assert states(pair, *jobs) == ["running", "running"]
    assert (first.slots, second.slots) == ((0,), (1,))
    assert first.directory != second.directory
    run_until(pair, lambda: states(pair, *jobs) == ["succeeded", "succeeded"])
    assert all(len(pair.service.store.load("attempts", job=job)) == 1 for job in jobs)
    assert not list(pair.host.runs.iterdir())


def test_a_third_job_waits_for_a_slot_and_takes_the_one_that_becomes_free(pair: Node) -> None:
    jobs = training_two(pair)
    third = pair.service.submit(seed=3)
    hold(pair.trainer.runs[0])
    run_until(pair, lambda: len(pair.trainer.runs) == 3)
    assert states(pair, *jobs, third) == ["running", "succeeded", "running"]
    assert pair.trainer.runs[2].slots == (1,)


def test_a_job_of_both_slots_comes_alone_and_has_both(pair: Node) -> None:
    both = pair.service.submit(needs=Needs(slots=2))
    one = pair.service.submit(seed=2)
    run_until(pair, lambda: pair.trainer.runs)
    hold(pair.trainer.runs[0])
    for _ in range(60):
        pair.step()
    assert pair.trainer.runs[0].slots == (0, 1)
    assert states(pair, both, one) == ["running", "queued"] and len(pair.trainer.runs) == 1


def test_a_lost_lease_of_one_job_leaves_the_other_as_it_is(pair: Node) -> None:
    first, second = training_two(pair)
    assert pair.service.ask("POST", f"/v1/jobs/{first}/cancel").json()["summary"]["state"] == "canceled"
    run_until(pair, lambda: pair.trainer.runs[0].killed)
    lost, kept = pair.agent._edges.transfer.all  # type: ignore[attr-defined]
    assert lost.stops and not kept.stops and not pair.trainer.runs[1].killed
    run_until(pair, lambda: pair.service.state(second) == "succeeded")
    assert pair.service.ask("GET", f"/v1/jobs/{second}").json()["steps_redone"] == 0


def test_one_that_downloads_for_an_hour_leaves_the_other_its_heartbeat_and_its_result(pair: Node) -> None:
    first = pair.service.submit(seed=1)
    run_until(pair, lambda: pair.trainer.runs)
    pair.agent._edges.transfer.looks = 3300  # type: ignore[attr-defined]
    second = pair.service.submit(seed=2)
    controller = Controller(pair.service.deployment)
    while pair.service.state(first) != "succeeded":
        pair.step()
        controller.tick(pair.service.now_ms)
    assert pair.service.state(second) == "running"
    assert all(len(pair.service.store.load("attempts", job=job)) == 1 for job in (first, second))


def test_asked_to_stop_it_hands_both_jobs_back_and_leaves(pair: Node) -> None:
    jobs = training_two(pair)
    pair.agent.ask_to_stop()
    run_until(pair, lambda: pair.agent.stopped)
    assert all(run.stopped for run in pair.trainer.runs)
    assert states(pair, *jobs) == ["queued", "queued"]
    attempts = [dict(pair.service.store.load("attempts", job=job)[0]) for job in jobs]
    assert [attempt["state"] for attempt in attempts] == ["released", "released"]
    assert pair.service.ask("GET", "/v1/nodes").json() == []


def test_a_node_that_the_server_forgot_abandons_all_jobs_and_joins_once(pair: Node) -> None:
    jobs = training_two(pair)
    runs = list(pair.trainer.runs)
    pair.agent.news.clear()
    [node] = pair.service.look("SELECT id FROM node")
    pair.service.execute(f"DELETE FROM credential WHERE node = '{node['id']}'")
    run_until(pair, lambda: all(run.killed for run in runs))
    controller = Controller(pair.service.deployment)
    while states(pair, *jobs) != ["succeeded", "succeeded"]:
        pair.step()
        controller.tick(pair.service.now_ms)
    assert sum("joined as" in line for line in pair.agent.news) == 1
    assert sum("no longer knows this node" in line for line in pair.agent.news) == 1


def test_a_job_of_both_slots_starts_when_the_run_before_it_has_left_no_trace(pair: Node) -> None:
    """The server gives it as soon as no lease holds a slot, while the node still waits for a transfer."""
    first, second = training_two(pair)
    lost = pair.agent._edges.transfer.all[0]  # type: ignore[attr-defined]
    lost.idle = False
    hold(pair.trainer.runs[0])
    run_until(pair, lambda: pair.service.state(second) == "succeeded")
    assert pair.service.ask("POST", f"/v1/jobs/{first}/cancel").json()["summary"]["state"] == "canceled"
    both = pair.service.submit(needs=Needs(slots=2))
    run_until(pair, lambda: pair.service.state(both) == "running")
    for _ in range(100):
        pair.step()
    assert len(pair.trainer.runs) == 2
    lost.idle = True
    run_until(pair, lambda: len(pair.trainer.runs) == 3)
    assert pair.trainer.runs[2].slots == (0, 1)
    run_until(pair, lambda: pair.service.state(both) == "succeeded")


def test_a_trainer_stands_by_while_a_slot_is_free_and_no_longer(pair: Node) -> None:
    jobs = [pair.service.submit(seed=seed) for seed in (1, 2)]
    run_until(pair, lambda: states(pair, *jobs) == ["running", "running"])
    before = pair.trainer.prepared
    for _ in range(20):
        pair.step()
    assert pair.trainer.prepared == before, "a node whose slots are all taken needs its memory"


def test_two_jobs_on_two_slots_pay_half_the_node_each_and_idle_slots_once(service: Service, tmp_path: Path) -> None:
    pair = make_node(service, tmp_path, ApartTransfer(service), slots=2)
    service.wait(1)
    pair.step()
    [node] = service.look("SELECT id, meter_ms FROM node")
    jobs = training_two(pair)
    run_until(pair, lambda: states(pair, *jobs) == ["succeeded", "succeeded"])
    for _ in range(100):
        pair.step()
    pair.agent.ask_to_stop()
    run_until(pair, lambda: pair.agent.stopped)
    seconds = (service.now_ms - node["meter_ms"]) / 1000
    lines = service.look("SELECT job, cause, micro_usd FROM ledger WHERE node <> ''")
    paid = {job: sum(line["micro_usd"] for line in lines if line["job"] == job) for job in jobs}
    attempts = [service.store.load("attempts", job=job)[0] for job in jobs]
    for job, attempt in zip(jobs, attempts, strict=True):
        took_s = (attempt["ended_ms"] - attempt["started_ms"]) / 1000
        assert paid[job] == pytest.approx(took_s * PRICE / 3600 / 2, abs=2)
    idle = sum(line["micro_usd"] for line in lines if line["cause"] == "idle")
    assert sum(paid.values()) + idle == pytest.approx(seconds * PRICE / 3600, abs=20)


def test_when_its_provider_gives_notice_it_hands_both_jobs_back_and_the_node_drains_by_that_reason(
    service: Service, tmp_path: Path
) -> None:
    notice: list[str] = []
    pair = make_node(service, tmp_path, ApartTransfer(service), slots=2, notice=lambda: "".join(notice))
    jobs = training_two(pair)
    notice.append("Amazon will terminate this machine at 08:22")
    pair.step()
    assert all(run.stopped for run in pair.trainer.runs), "they save before the server knows"
    [node] = service.look("SELECT state, because FROM node")
    assert node == {"state": "draining", "because": notice[0]}
    run_until(pair, lambda: pair.agent.stopped)
    assert states(pair, *jobs) == ["queued", "queued"] and not pair.agent.failed
    attempts = [service.store.load("attempts", job=job)[0] for job in jobs]
    assert [attempt["state"] for attempt in attempts] == ["released", "released"]
    assert service.look("SELECT state, because FROM node") == [{"state": "gone", "because": notice[0]}]
    assert sum(notice[0] in line for line in pair.agent.news) == 1
    assert service.look("SELECT * FROM strike") == []


class AwayForNotices:
    """A server that does not answer the first `times` notices."""

    def __init__(self, server: Any, times: int) -> None:
        self._server, self._times = server, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def notice(self, request: Notice) -> None:
        self._times -= 1
        if self._times >= 0:
            raise Unreachable("nobody answers")
        self._server.notice(request)


def test_a_server_that_is_away_is_told_again_while_trainers_save(service: Service, tmp_path: Path) -> None:
    notice: list[str] = []
    pair = make_node(service, tmp_path, ApartTransfer(service), slots=2, notice=lambda: "".join(notice))
    training_two(pair)
    object.__setattr__(pair.agent._edges, "server", AwayForNotices(pair.agent._edges.server, 3))
    pair.trainer.runs[0].exit_code = lambda: None  # type: ignore[method-assign]
    notice.append("Amazon will terminate this machine")
    run_until(pair, lambda: service.look("SELECT state FROM node WHERE state = 'draining'"))
    assert pair.agent.is_busy and pair.trainer.runs[0].stopped
