"""The tables of states are true: the database makes every move that they have, and no other."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.store.statements import migrations, statements
from gangline.core.job import (
    ATTEMPT_MOVES,
    JOB_MOVES,
    NODE_MOVES,
    AttemptState,
    Job,
    JobState,
    NodeState,
)
from gangline.core.jobs.failure import Verdict
from gangline.core.specs.fields import Needs
from gangline.ports.server import Notice
from gangline.service.attempts import moving
from gangline.service.fleet import operating
from gangline.service.fleet.nodes import heed_notice, leave_pool
from gangline.service.jobs import steer
from gangline.sim.drawing import SAFETY_S
from gangline.sim.soak import Chaos
from gangline.sim.world import START_MS
from tests.service.conftest import POLICY, Service, a_service
from tests.service.places.conftest import allow
from tests.service.places.site import a_site
from tests.service.places.test_imports import ask, fetch_all
from tests.service.test_rules import a_contrast, fail, last_one, misbehave, quarantined, release, rent, succeed

Move = tuple[str, str, str]
TABLES: Mapping[str, tuple[Mapping[Any, str], tuple[str, ...]]] = {
    "job": (JOB_MOVES, get_args(JobState)),
    "attempt": (ATTEMPT_MOVES, get_args(AttemptState)),
    "node": (NODE_MOVES, get_args(NodeState)),
}
DECLARED = {(table, *move) for table, (moves, _) in TABLES.items() for move in moves}


def listen() -> Iterator[str]:
    """Yield what has a SQLite database note each move of its own."""
    yield "CREATE TABLE seen (what TEXT, before TEXT, after TEXT)"
    for table in TABLES:
        noted = f"INSERT INTO seen VALUES ('{table}',"
        yield f"CREATE TRIGGER new_{table} AFTER INSERT ON {table} BEGIN {noted} 'new', NEW.state); END"
        changes = f"AFTER UPDATE OF state ON {table} WHEN OLD.state <> NEW.state"
        yield f"CREATE TRIGGER moved_{table} {changes} BEGIN {noted} OLD.state, NEW.state); END"


def moves_in(look: Callable[[str], list[Any]]) -> set[Move]:
    return {tuple(row) for row in look("SELECT DISTINCT what, before, after FROM seen")}


def owners(service: Service) -> None:
    """Pause, and cancel what is paused."""
    job = service.submit()
    steer.pause(service.deployment, job, service.now_ms)
    steer.resume(service.deployment, job, service.now_ms)
    steer.pause(service.deployment, job, service.now_ms)
    steer.cancel(service.deployment, job, service.now_ms)


def an_operator_releases(service: Service) -> None:
    for withdraw in (operating.drain, partial(operating.quarantine, lasts_s=60)):
        node = service.join(f"of {withdraw}")
        withdraw(service.deployment, node, service.now_ms, stop=False)
        operating.release(service.deployment, node, service.now_ms)


def an_owner_pauses_what_runs(service: Service) -> None:
    node, job = service.join(), service.submit()
    hold = service.claim(node).hold
    steer.pause(service.deployment, job, service.now_ms)
    release(service, node, hold)


def photos_of_a_paused_job_cannot_be_fetched(service: Service) -> None:
    with a_site() as site:
        job = ask(allow(service, Path(service.database).parent), [f"{site.url}/gone.png"])
        steer.pause(service.deployment, job, service.now_ms)
        fetch_all(service.deployment)


def nothing_can_be_made_of_it(service: Service) -> None:
    """No node that it needs comes, or it fails as often as it may."""
    service.submit(needs=Needs(gpu="H200"))
    service.wait(POLICY.unmatched_s + 1)
    service.tick()
    service.submit(attempts_max=1)
    node = service.join()
    fail(service, node, service.claim(node).hold, "crashed")


def a_machine_serves_its_quarantine(service: Service) -> None:
    a_contrast(service)
    node = quarantined(service)
    leave_pool(service.deployment, service.join("node-bad"), service.now_ms)
    service.wait(POLICY.quarantine_s + 1)
    service.claim_nothing(node)
    service.tick()
    leave_pool(service.deployment, service.join("node-bad"), service.now_ms)
    service.submit()
    succeed(service, node, service.claim(node).hold)


def on_trial(service: Service) -> str:
    """A node whose machine has served its quarantine."""
    a_contrast(service)
    node = quarantined(service)
    service.wait(POLICY.quarantine_s + 1)
    service.claim_nothing(node)
    service.tick()
    return node


def a_machine_fails_its_trial(service: Service) -> None:
    node = on_trial(service)
    service.join("node-other")
    misbehave(service, node)


def a_machine_on_trial_is_rented(service: Service) -> None:
    leave_pool(service.deployment, on_trial(service), service.now_ms)
    rent(service, "node-rented", pool="cloud")
    service.join("node-bad", node="node-rented")


def providers_give_notice(service: Service) -> None:
    """To a node on trial, and to one in quarantine."""
    notice = Notice(because="Amazon will terminate this machine")
    heed_notice(service.deployment, on_trial(service), notice, service.now_ms)
    unfit = service.join("node-bare", problems={"lora": "torch is not installed"}, kinds=())
    heed_notice(service.deployment, unfit, notice, service.now_ms)


PLAYS = (
    owners,
    an_owner_pauses_what_runs,
    an_operator_releases,
    photos_of_a_paused_job_cannot_be_fetched,
    nothing_can_be_made_of_it,
    a_machine_serves_its_quarantine,
    a_machine_fails_its_trial,
    a_machine_on_trial_is_rented,
    providers_give_notice,
    last_one,
)


def played(play: Callable[[Service], object], folder: Path) -> set[Move]:
    """What the database notes while this happens to a fresh service."""
    folder.mkdir()
    with a_service(folder, str(folder / "db.sqlite"), LocalObjects(folder / "store", "secret")) as service:
        service.execute(*listen())
        play(service)
        return moves_in(lambda sql: [row.values() for row in service.look(sql)])


def simulated(seed: int) -> set[Move]:
    """What it notes while nodes come, fail and go under every kind of fault."""
    simulation = Chaos(seed).simulation
    for statement in listen():
        simulation.store.look(statement)
    simulation.play(until_ms=START_MS + SAFETY_S * 1000)
    return moves_in(simulation.store.look)


def test_every_declared_move_happens_and_no_other(tmp_path: Path) -> None:
    """Over as many seeds of the simulator as it takes; one alone leaves few out."""
    seen: set[Move] = set().union(*(played(play, tmp_path / play.__name__) for play in PLAYS))
    for seed in range(1, 7):
        if seen >= DECLARED:
            break
        seen |= simulated(seed)
    assert seen == DECLARED


def test_a_move_that_is_not_declared_is_noticed(tmp_path: Path) -> None:
    def wrongly(service: Service) -> None:
        service.submit()
        service.execute("UPDATE job SET state = 'succeeded'")

    assert ("job", "queued", "succeeded") in played(wrongly, tmp_path / "wrongly") - DECLARED


def test_no_job_is_moved_against_the_table() -> None:
    job = Job(id="job-1", project="p", state="succeeded", fencing=1, version=3, attempts_failed=0, attempts_max=3)
    verdict = Verdict(attempt="canceled", job="queued", attempts_failed=0, because="again")
    with pytest.raises(AssertionError, match="no job goes from succeeded to queued"):
        moving(job, verdict, 0)


@pytest.mark.parametrize("table", TABLES)
def test_the_schema_allows_the_states_of_the_tables_and_no_others(table: str) -> None:
    moves, states = TABLES[table]
    schema = "\n".join(text for _, text in migrations())
    (checked,) = re.findall(
        rf"CREATE TABLE {table} \(.*?state +TEXT +NOT NULL CHECK \(state IN \((.*?)\)\)", schema, re.DOTALL
    )
    assert tuple(re.findall(r"'(\w+)'", checked)) == states
    assert {state for move in moves for state in move} == {"new", *states}


def test_no_statement_writes_a_state_that_the_tables_do_not_have() -> None:
    """Where a statement says itself from which state to which it moves, those moves are in the table, each of them."""
    checked = set[str]()
    for name, sql in statements().items():
        if found := re.match(rf"UPDATE ({'|'.join(TABLES)}) SET state = '(\w+)'(.*)", sql, re.DOTALL):
            moves, states = TABLES[found[1]]
            before = _guarded(found[3].partition("WHERE")[2], states)
            assert {(state, found[2]) for state in before} <= set(moves), name
            if before:
                checked.add(name)
    assert checked == {"node_gone", "drain_idle", "drain_node"}


def _guarded(condition: str, states: tuple[str, ...]) -> set[str]:
    """Return the states that a statement's guard lets through; none where it guards by something else, such as a version."""
    if among := re.search(r"\bstate IN \((.*?)\)", condition):
        return set(re.findall(r"'(\w+)'", among[1]))
    if other := re.search(r"\bstate <> '(\w+)'", condition):
        return set(states) - {other[1]}
    assert not re.search(r"\bstate\b", condition), f"this test does not read such a guard: {condition}"
    return set()
