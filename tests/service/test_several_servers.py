"""Several API servers over one PostgreSQL: a node may ask any of them, any of them may tick, and one is gone without a trace."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gangline.ports.server import Assignment, Beat, Beaten, Done, NoWork, Succeeded
from gangline.service.controller import Controller
from gangline.service.deployment import Deployment
from gangline.service.jobs.claim import claim
from gangline.service.jobs.finish import finish
from gangline.service.jobs.renew import renew
from gangline.service.outage import take_turn
from gangline.service.recent import Recent
from tests.service.conftest import ClockedPostgres, Service
from tests.service.jobs.test_one_at_a_time import result

NODES, JOBS = 12, 60


@pytest.fixture
def database(database_server: Any) -> str:
    return database_server.make_database()


@pytest.fixture
def servers(service: Service) -> Iterator[list[Deployment]]:
    """Three processes' worth: each with a pool of connections, and a memory, of its own."""
    stores = [ClockedPostgres(service.database) for _ in range(2)]
    others = [
        replace(service.deployment, store=store, server=f"server-{n}", recent=Recent())
        for n, store in enumerate(stores)
    ]
    yield [service.deployment, *others]
    for store in stores:
        store.close()


def test_nodes_that_ask_one_server_after_the_other_do_every_job_once(
    service: Service, servers: list[Deployment]
) -> None:
    jobs = [service.submit() for _ in range(JOBS)]
    nodes = [service.join(f"node-{n}") for n in range(NODES)]
    did: Counter[str] = Counter()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        node, turn = nodes[number], number
        try:
            while True:
                at = servers[turn % 3]
                assignment = claim(at, node, service.now_ms)
                if isinstance(assignment, NoWork):
                    return
                turn += 1
                beat = Beat(phase="training", step=1)
                assert renew(servers[turn % 3], node, assignment.hold, beat, service.now_ms) == Beaten()
                turn += 1
                outcome = result(service, node, assignment.hold)
                assert finish(servers[turn % 3], node, assignment.hold, outcome, service.now_ms) == Done()
                did[assignment.job] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(NODES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert did == Counter(jobs)
    assert {service.state(job) for job in jobs} == {"succeeded"}


def test_the_others_go_on_when_the_server_that_ticked_is_gone(service: Service, servers: list[Deployment]) -> None:
    job, node = service.submit(), service.join()
    assert isinstance(claim(servers[0], node, service.now_ms), Assignment)
    first, second = (Controller(at) for at in servers[:2])
    first.tick(service.now_ms)
    service.store.time_ms += round(service.deployment.policy.turn_ms) + 1
    servers[1].store.time_ms = service.now_ms  # type: ignore[attr-defined]
    second.tick(service.now_ms)
    assert service.look("SELECT ticker FROM service") == [{"ticker": "server-0"}]
    assert service.state(job) == "running", "after the gap nobody is late at once"
    for _ in range(12):
        service.store.time_ms += 5_000
        second.tick(service.now_ms)
    assert service.state(job) == "queued"
    assert not take_turn(servers[0], service.now_ms)


def test_a_result_that_one_server_took_is_told_by_another(service: Service, servers: list[Deployment]) -> None:
    service.submit()
    node = service.join()
    assignment = claim(servers[0], node, service.now_ms)
    assert isinstance(assignment, Assignment)
    outcome = result(service, node, assignment.hold)
    assert isinstance(outcome, Succeeded)
    assert finish(servers[1], node, assignment.hold, outcome, service.now_ms) == Done()
    assert finish(servers[2], node, assignment.hold, outcome, service.now_ms) == Done()
    assert service.look("SELECT COUNT(*) AS n FROM artifact") == [{"n": 1}]
