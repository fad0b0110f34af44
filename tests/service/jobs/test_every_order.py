"""Promise 1 and 5 where two requests meet, in every order of their statements, on PostgreSQL: one server each."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from gangline.ports.server import Assignment, Beat, Beaten, Commit, Committed, Done, Hold, Stale
from gangline.ports.store import write
from gangline.service.attempts import end_overdue
from gangline.service.deployment import Deployment
from gangline.service.fleet.nodes import gone
from gangline.service.jobs import checkpoint, renew, steer
from gangline.service.jobs.claim import claim
from gangline.service.jobs.finish import finish
from gangline.service.recent import Recent
from tests.service.conftest import Service
from tests.service.jobs.schedules import Actor, Stage, every_order, gates
from tests.service.jobs.test_one_at_a_time import result, upload

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)
Scene = Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]
ORDERS_MIN = 4


def servers(service: Service) -> tuple[Deployment, Deployment]:
    """Two processes over one database."""
    return replace(service.deployment, recent=Recent()), replace(service.deployment, recent=Recent())


def play(stage: Stage, scene: Scene, check: Callable[[Actor, Actor], str]) -> Counter[str]:
    """Every order; how often each outcome came."""
    with gates(stage):
        return Counter(check(*actors) for actors in every_order(stage, scene))


def ask(service: Service, sql: str, *values: object) -> list[Any]:
    with psycopg.connect(service.database) as connection:
        return [row[0] for row in connection.execute(sql, values).fetchall()]  # type: ignore[arg-type]


def held(service: Service) -> tuple[str, str, Hold]:
    """A job at work on a new node."""
    job, node = service.submit(), service.join()
    assignment = service.claim(node)
    assert assignment.job == job
    return job, node, assignment.hold


def live(service: Service, job: str) -> list[str]:
    return ask(service, "SELECT attempt FROM lease JOIN attempt ON id = attempt WHERE job = %s", job)


def paid_once(service: Service, attempt: str) -> None:
    """The ledger has each moment of the attempt once."""
    with psycopg.connect(service.database) as connection:
        found = connection.execute(
            "SELECT from_ms, to_ms FROM ledger WHERE attempt = %s AND to_ms > from_ms ORDER BY from_ms", (attempt,)
        ).fetchall()
    assert all(before[1] <= after[0] for before, after in pairwise(found)), found


def clear(service: Service, job: str) -> None:
    steer.cancel(service.deployment, job, service.now_ms)


def test_two_claims_of_one_job(service: Service, stage: Stage) -> None:
    jobs: list[str] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        jobs.append(service.submit())
        (one, two), (a, b) = servers(service), (service.join("a"), service.join("b"))
        return lambda: claim(one, a, service.now_ms), lambda: claim(two, b, service.now_ms)

    def check(a: Actor, b: Actor) -> str:
        got = [actor for actor in (a, b) if isinstance(actor.result, Assignment)]
        assert len(got) == 1, (a.result, b.result)
        assert live(service, jobs[-1]) == [got[0].result.hold.attempt]
        clear(service, jobs[-1])
        return got[0].name

    found = play(stage, scene, check)
    assert found["a"] >= ORDERS_MIN
    assert found["b"] >= ORDERS_MIN


@pytest.mark.tenths
def test_two_claims_of_two_jobs(service: Service, stage: Stage) -> None:
    jobs: list[str] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        jobs[:] = [service.submit(), service.submit()]
        (one, two), (a, b) = servers(service), (service.join("a"), service.join("b"))
        return lambda: claim(one, a, service.now_ms), lambda: claim(two, b, service.now_ms)

    def check(a: Actor, b: Actor) -> str:
        assert sorted((a.result.job, b.result.job)) == sorted(jobs)
        for job in jobs:
            clear(service, job)
        return "both"

    assert play(stage, scene, check)["both"] >= ORDERS_MIN


def test_a_claim_against_a_cancel(service: Service, stage: Stage) -> None:
    jobs: list[str] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        jobs.append(service.submit())
        (one, two), node = servers(service), service.join("a")
        return lambda: claim(one, node, service.now_ms), lambda: steer.cancel(two, jobs[-1], service.now_ms)

    def check(a: Actor, b: Actor) -> str:
        assert service.state(jobs[-1]) == "canceled"
        assert live(service, jobs[-1]) == []
        assert ask(service, "SELECT reserved FROM project WHERE id = 'default'") == [0]
        return type(a.result).__name__

    found = play(stage, scene, check)
    assert min(found["Assignment"], found["NoWork"]) >= 1, found


def test_a_heartbeat_against_the_end_of_an_overdue_lease(service: Service, stage: Stage) -> None:
    jobs: list[str] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        job, node, hold = held(service)
        jobs.append(job)
        service.wait(60)
        (one, two), beat = servers(service), Beat(phase="training", step=1)
        return lambda: renew.renew(one, node, hold, beat, service.now_ms), lambda: end_overdue(two, service.now_ms)

    def check(a: Actor, b: Actor) -> str:
        renewed = isinstance(a.result, Beaten)
        assert isinstance(a.result, Beaten | Stale)
        assert service.state(jobs[-1]) == ("running" if renewed else "queued")
        assert len(live(service, jobs[-1])) == renewed
        clear(service, jobs[-1])
        return "renewed" if renewed else "ended"

    found = play(stage, scene, check)
    assert min(found["renewed"], found["ended"]) >= 1, found


def test_two_commits_of_one_checkpoint(service: Service, stage: Stage) -> None:
    jobs: list[str] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        job, node, hold = held(service)
        jobs.append(job)
        upload(service, node, hold, 10)
        request = Commit(manifest=service.manifest(10).to_json())
        one, two = servers(service)
        return (
            lambda: checkpoint.commit_checkpoint(one, node, hold, request, service.now_ms),
            lambda: checkpoint.commit_checkpoint(two, node, hold, request, service.now_ms),
        )

    def check(a: Actor, b: Actor) -> str:
        assert (a.result, b.result) == (Committed(), Committed())
        assert ask(service, "SELECT step FROM checkpoint WHERE job = %s", jobs[-1]) == [10]
        assert ask(service, "SELECT COUNT(*) FROM event WHERE job = %s AND kind = 'committed'", jobs[-1]) == [1]
        clear(service, jobs[-1])
        return "once"

    assert play(stage, scene, check)["once"] >= ORDERS_MIN


def test_a_commit_against_the_end_of_an_overdue_lease(service: Service, stage: Stage) -> None:
    jobs: list[str] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        job, node, hold = held(service)
        jobs.append(job)
        upload(service, node, hold, 10)
        request = Commit(manifest=service.manifest(10).to_json())
        service.wait(60)
        one, two = servers(service)
        return (
            lambda: checkpoint.commit_checkpoint(one, node, hold, request, service.now_ms),
            lambda: end_overdue(two, service.now_ms),
        )

    def check(a: Actor, b: Actor) -> str:
        committed = ask(service, "SELECT step FROM checkpoint WHERE job = %s", jobs[-1])
        assert committed == ([10] if isinstance(a.result, Committed) else [])
        assert service.state(jobs[-1]) == "queued"
        clear(service, jobs[-1])
        return type(a.result).__name__

    found = play(stage, scene, check)
    assert min(found["Committed"], found["Stale"]) >= 1, found


def test_a_finish_against_the_end_of_an_overdue_lease(service: Service, stage: Stage) -> None:
    scenes: list[tuple[str, Hold]] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        job, node, hold = held(service)
        scenes.append((job, hold))
        outcome = result(service, node, hold)
        service.wait(60)
        one, two = servers(service)
        return (
            lambda: finish(one, node, hold, outcome, service.now_ms),
            lambda: end_overdue(two, service.now_ms),
        )

    def check(a: Actor, b: Actor) -> str:
        job, hold = scenes[-1]
        finished = isinstance(a.result, Done)
        assert service.state(job) == ("succeeded" if finished else "queued")
        assert len(ask(service, "SELECT path FROM artifact WHERE job = %s", job)) == finished
        assert live(service, job) == []
        assert ask(service, "SELECT reserved FROM project WHERE id = 'default'") == [0]
        paid_once(service, hold.attempt)
        clear(service, job)
        return "finished" if finished else "ended"

    found = play(stage, scene, check)
    assert min(found["finished"], found["ended"]) >= 1, found


@pytest.mark.tenths
def test_two_claims_for_which_a_budget_has_one_reservation(service: Service, stage: Stage) -> None:
    scenes: list[tuple[str, list[str]]] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        project = f"p{len(scenes)}"
        service.add_project(project, budget_usd=0.1)
        scenes.append((project, [service.submit(project), service.submit(project)]))
        (one, two), (a, b) = servers(service), (service.join("a"), service.join("b"))
        return lambda: claim(one, a, service.now_ms), lambda: claim(two, b, service.now_ms)

    def check(a: Actor, b: Actor) -> str:
        project, jobs = scenes[-1]
        got = [actor.name for actor in (a, b) if isinstance(actor.result, Assignment)]
        spent = ask(service, "SELECT budget - spent - reserved FROM project WHERE id = %s", project)[0]
        assert len(got) == 1, (a.result, b.result)
        assert spent >= 0
        for job in jobs:
            clear(service, job)
        return got[0]

    found = play(stage, scene, check)
    assert min(found["a"], found["b"]) >= 1, found


@pytest.mark.tenths
def test_a_claim_against_the_end_of_its_node(service: Service, stage: Stage) -> None:
    scenes: list[tuple[str, str]] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        scenes.append((service.submit(), service.join("a")))
        (one, two), node = servers(service), scenes[-1][1]
        return lambda: claim(one, node, service.now_ms), lambda: gone(two, node, "given up", service.now_ms)

    def check(a: Actor, b: Actor) -> str:
        job, node = scenes[-1]
        assert ask(service, "SELECT state FROM node WHERE id = %s", node) == ["gone"]
        assert live(service, job) == []
        assert service.state(job) == "queued"
        clear(service, job)
        return type(a.result).__name__

    found = play(stage, scene, check)
    assert min(found["Assignment"], found["NoWork"]) >= 1, found


def test_a_claim_against_the_draining_of_its_idle_node(service: Service, stage: Stage) -> None:
    scenes: list[tuple[str, str]] = []

    def scene() -> tuple[Callable[[], Any], Callable[[], Any]]:
        scenes.append((service.submit(), service.join("a")))
        (one, two), node = servers(service), scenes[-1][1]
        drain = write("hold_node", id=node), write("drain_idle", id=node, because="idle")
        return lambda: claim(one, node, service.now_ms), lambda: two.store.apply(*drain)

    def check(a: Actor, b: Actor) -> str:
        job, node = scenes[-1]
        busy = isinstance(a.result, Assignment)
        assert ask(service, "SELECT state FROM node WHERE id = %s", node) == ["ready" if busy else "draining"]
        clear(service, job)
        return "busy" if busy else "drained"

    found = play(stage, scene, check)
    assert min(found["busy"], found["drained"]) >= 1, found
