"""What is deleted from the log of deliveries: what ended long ago, however much that is, and what lost its fact."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import psycopg

from gangline.adapters.store.postgres import PostgresStore
from gangline.service.facts import number_facts
from gangline.service.jobs import steer
from gangline.service.notices.log import FORGOTTEN_MAX
from gangline.service.retention.removal import remove
from tests.service.conftest import Service
from tests.service.notices.conftest import Notifying

TABLES = {"endpoint_event": "endpoint", "endpoint": "id"}
MANY = """
    INSERT INTO notice (endpoint, fact, job, state, due_ms, ended_ms)
    WITH RECURSIVE numbers AS (SELECT 1000 AS number UNION ALL SELECT number + 1 FROM numbers WHERE number < {most})
    SELECT '{endpoint}', number, '{job}', 'delivered', 0, 0 FROM numbers
"""


def test_a_notice_whose_event_an_older_server_deleted_is_deleted_too_and_its_endpoint_is_done(
    notifying: Notifying,
) -> None:
    service = notifying.service
    endpoint, other = notifying.to("/hook", "submitted"), notifying.to("/other", "submitted")
    lost = notifying.submit(seed=1)
    service.tick()
    service.execute(f"DELETE FROM event WHERE job = '{lost}'")
    kept = notifying.submit(seed=2)
    service.tick()
    notifying.wait(60)
    service.tick()
    left = service.look("SELECT endpoint, job FROM notice")
    assert sorted((row["endpoint"], row["job"]) for row in left) == sorted([(endpoint, kept), (other, kept)])
    notifying.send()
    assert notifying.ask("GET", f"/{endpoint}")["waiting"] == 0
    assert service.store.load("due_endpoints", now=service.now_ms) == []


def test_all_that_the_log_has_had_for_long_goes_at_once(notifying: Notifying) -> None:
    service = notifying.service
    endpoint, job = notifying.to("/hook", "submitted"), notifying.submit()
    service.execute(MANY.format(endpoint=endpoint, job=job, most=1000 + 2 * FORGOTTEN_MAX))
    notifying.tell()
    assert [row["fact"] for row in service.look("SELECT fact FROM notice")] == [1]


# ---------------------------------------------------------------------------------- what two servers do at the same time


@contextmanager
def written(service: Service, *statements: str) -> Iterator[Callable[[int], None]]:
    """Another server has written this, and commits at the end. Yield what waits until so many others wait for it. SQLite has one writer at
    a time: there it has committed before the others begin."""
    if not isinstance(service.store, PostgresStore):
        service.execute(*statements)
        yield lambda _: None
        return
    with psycopg.connect(service.database) as there:
        for statement in statements:
            there.execute(statement)  # type: ignore[arg-type]

        def wait_for(others: int) -> None:
            for _ in range(2_000):
                [found] = service.look("SELECT COUNT(*) AS waiting FROM pg_locks WHERE NOT granted")
                if found["waiting"] >= others:
                    return
                Event().wait(0.005)
            raise AssertionError(f"{others} others should wait")

        yield wait_for


def test_an_endpoint_that_is_removed_while_facts_are_added_for_it_stops_nobody(notifying: Notifying) -> None:
    service = notifying.service
    removed, other = notifying.to("/removed", "submitted"), notifying.to("/other", "submitted")
    service.tick()
    notifying.submit()
    removal = [f"DELETE FROM {table} WHERE {key} = '{removed}'" for table, key in TABLES.items()]
    with ThreadPoolExecutor() as threads:
        with written(service, *removal) as wait_for:
            numbering = threads.submit(number_facts, service.deployment, service.now_ms)
            wait_for(1)
        numbering.result()
    assert [row["endpoint"] for row in service.look("SELECT endpoint FROM notice")] == [other]


def test_a_job_that_is_deleted_while_its_facts_are_added_leaves_no_notice(notifying: Notifying) -> None:
    service = notifying.service
    endpoint = notifying.to("/hook", "submitted", "canceled")
    service.tick()
    job = notifying.submit()
    steer.cancel(service.deployment, job, service.now_ms)
    with ThreadPoolExecutor() as threads:
        with written(service, "UPDATE project SET facts = facts") as wait_for:
            numbering = threads.submit(number_facts, service.deployment, service.now_ms)
            wait_for(1)
            deleting = threads.submit(remove, service.deployment, job, service.now_ms)
            wait_for(2)
        numbering.result()
        deleting.result()
    assert service.look("SELECT * FROM notice") == []
    assert notifying.ask("GET", f"/{endpoint}")["waiting"] == 0
