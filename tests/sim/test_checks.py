"""The checkers can fail: whatever breaks a promise behind the service's back is seen, at whatever moment it happens."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.core.jobs.keys import blob_key
from gangline.ports.server import Hold
from gangline.ports.store import Write, guard
from gangline.service.attempts import event
from gangline.sim.cleaning import age_all
from gangline.sim.promises.violation import Violation
from gangline.sim.scenario import load_scenario
from gangline.sim.simulation import Simulation
from gangline.sim.world import START_MS

Tamper = Callable[[Simulation], None]

moments = given(moment_s=st.integers(min_value=200, max_value=900))
few = settings(max_examples=3, derandomize=True)


def begun(moment_s: float = 300) -> Simulation:
    """A fleet at work, at a moment at which some running job keeps two checkpoints."""
    simulation = Simulation(replace(load_scenario("small"), hours_max=2), seed=3)
    simulation.play(until_ms=START_MS + round(moment_s * 1000))
    while not simulation.store.look(TRAINING):
        simulation.play(until_ms=simulation.world.now_ms + 10_000)
    return simulation


TRAINING = (
    "SELECT attempt.id, attempt.job FROM attempt JOIN checkpoint ON checkpoint.attempt = attempt.id "
    "WHERE attempt.state = 'live' AND checkpoint.state = 'committed' GROUP BY attempt.id HAVING COUNT(*) > 1 ORDER BY attempt.id"
)


def at_work(simulation: Simulation) -> tuple[str, str]:
    """An attempt and its job."""
    return simulation.store.look(TRAINING)[0]


def newest(simulation: Simulation, job: str) -> str:
    sql = "SELECT id FROM checkpoint WHERE job = ? AND state = 'committed' ORDER BY step DESC LIMIT 1"
    return simulation.store.look(sql, job)[0][0]


def on_write(simulation: Simulation, name: str, tamper: Callable[[Write], object]) -> None:
    """As soon as a transaction with such a write is done, and before any checker looks."""
    heard = simulation.store.applied

    def hear(writes: tuple[Write, ...]) -> None:
        heard(writes)
        for write in writes:
            if write.name == name:
                tamper(write)

    simulation.store.applied = hear


def a_second_live_attempt(simulation: Simulation) -> None:
    attempt, _ = at_work(simulation)
    columns = [row[1] for row in simulation.store.look("PRAGMA table_info(attempt)")]
    values = [{"id": "'attempt-second'", "fencing": "fencing + 100"}.get(column, column) for column in columns]
    simulation.store.look("DROP INDEX attempt_live")
    copy = f"INSERT INTO attempt SELECT {', '.join(values)} FROM attempt WHERE id = ?"
    simulation.store.look(copy, attempt)


def a_lease_that_vanishes(simulation: Simulation) -> None:
    _, job = at_work(simulation)
    simulation.store.look("DELETE FROM lease WHERE attempt IN (SELECT id FROM attempt WHERE job = ?)", job)
    touch(simulation, job)


def a_fencing_number_that_goes_back(simulation: Simulation) -> None:
    _, job = at_work(simulation)
    simulation.store.look("UPDATE job SET fencing = fencing - 1 WHERE id = ?", job)
    simulation.store.look("UPDATE attempt SET fencing = fencing - 1 WHERE job = ?", job)
    simulation.store.look("UPDATE lease SET fencing = fencing - 1")
    touch(simulation, job)


def an_ended_job_that_changes(simulation: Simulation) -> None:
    def tamper(write: Write) -> None:
        simulation.store.look("UPDATE job SET attempts_failed = 99 WHERE id = ?", write.values["job"])

    on_write(simulation, "add_artifact", lambda write: simulation.world.after(1, "tamper", lambda: tamper(write)))
    on_write(
        simulation,
        "add_artifact",
        lambda write: simulation.world.after(2, "touch", lambda: touch(simulation, write.values["job"])),
    )


def a_checkpoint_without_its_bytes(simulation: Simulation) -> None:
    _, job = at_work(simulation)
    prefix = simulation.store.look("SELECT prefix FROM checkpoint WHERE id = ?", newest(simulation, job))[0][0]
    for key in [key for key in simulation.objects.objects if key.startswith(prefix)]:
        del simulation.objects.objects[key]


def a_commit_of_other_bytes(simulation: Simulation) -> None:
    def tamper(write: Write) -> None:
        for key, stored in simulation.objects.objects.items():
            if key.startswith(write.values["prefix"]):
                stored.sha256 = "0" * 64

    on_write(simulation, "add_checkpoint", tamper)


def a_checkpoint_that_is_forgotten(simulation: Simulation) -> None:
    _, job = at_work(simulation)
    simulation.store.look("UPDATE checkpoint SET state = 'pruned' WHERE id = ?", newest(simulation, job))
    touch(simulation, job)


def a_file_that_is_deleted_while_its_job_needs_it(simulation: Simulation) -> None:
    _, job = at_work(simulation)
    [(project, sha256)] = simulation.store.look("SELECT project, MIN(sha256) FROM job_file WHERE job = ?", job)
    simulation.objects.delete([blob_key(project, sha256)])


def a_checkpoint_that_is_deleted_before_it_is_forgotten(simulation: Simulation) -> None:
    _, job = at_work(simulation)
    [(prefix,)] = simulation.store.look("SELECT prefix FROM checkpoint WHERE id = ?", newest(simulation, job))
    simulation.objects.delete([key for key in simulation.objects.objects if key.startswith(prefix)])


def a_checkpoint_that_goes_before_its_time(simulation: Simulation) -> None:
    def tamper(write: Write) -> None:
        for (found,) in simulation.store.look("SELECT id FROM checkpoint WHERE job = ?", write.values["job"]):
            simulation.store.apply(guard("prune_checkpoint", id=found, heirs=0, because="too early"))

    on_write(simulation, "add_artifact", lambda write: simulation.world.after(1, "tamper", lambda: tamper(write)))


def nothing_verified(simulation: Simulation) -> None:
    _, job = at_work(simulation)
    simulation.store.look("UPDATE checkpoint SET verified = 0 WHERE job = ?", job)
    touch(simulation, job)


def one_pruned_too_many(simulation: Simulation) -> None:
    def tamper(write: Write) -> None:
        kept = "SELECT id FROM checkpoint WHERE job = (SELECT job FROM checkpoint WHERE id = ?) AND state = 'committed'"
        oldest = simulation.store.look(f"{kept} ORDER BY step LIMIT 1", write.values["id"])[0][0]
        simulation.store.look("UPDATE checkpoint SET state = 'pruned' WHERE id = ?", oldest)

    on_write(simulation, "prune_checkpoint", tamper)


def a_start_behind_the_checkpoint(simulation: Simulation) -> None:
    attempt, job = at_work(simulation)
    simulation.store.look("UPDATE attempt SET from_step = 0 WHERE id = ?", attempt)
    simulation.store.applied((Write("add_attempt", {"id": attempt, "job": job, "from_step": 0}),))


def another_result(simulation: Simulation) -> None:
    def tamper(write: Write) -> None:
        simulation.store.look("UPDATE artifact SET sha256 = ? WHERE job = ?", "0" * 64, write.values["job"])

    on_write(simulation, "add_artifact", tamper)


def a_result_without_its_bytes(simulation: Simulation) -> None:
    on_write(simulation, "add_artifact", lambda write: simulation.objects.objects.pop(write.values["key"]))


def a_line_that_costs_more(simulation: Simulation) -> None:
    def tamper(write: Write) -> None:
        sql = "UPDATE ledger SET micro_usd = micro_usd + 1 WHERE attempt = ? AND cause = 'training'"
        simulation.store.look(sql, write.values["attempt"])

    on_write(simulation, "add_cost", tamper)


def a_line_that_is_missing(simulation: Simulation) -> None:
    def tamper(write: Write) -> None:
        simulation.store.look("DELETE FROM ledger WHERE attempt = ? AND cause = 'download'", write.values["attempt"])

    on_write(simulation, "end_attempt", tamper)


def money_reserved_for_nobody(simulation: Simulation) -> None:
    simulation.store.look("UPDATE project SET reserved = reserved + 1")


def a_job_without_a_reason(simulation: Simulation) -> None:
    _, job = at_work(simulation)
    simulation.store.look("UPDATE job SET because = '' WHERE id = ?", job)


def touch(simulation: Simulation, job: str) -> None:
    simulation.store.apply(event(job, "bans lifted", "a test looks", simulation.world.now_ms))


TAMPERS: tuple[tuple[int, Tamper], ...] = (
    (1, a_second_live_attempt),
    (1, a_lease_that_vanishes),
    (1, a_fencing_number_that_goes_back),
    (1, an_ended_job_that_changes),
    (2, a_checkpoint_without_its_bytes),
    (2, a_commit_of_other_bytes),
    (2, a_checkpoint_that_is_forgotten),
    (2, nothing_verified),
    (2, a_file_that_is_deleted_while_its_job_needs_it),
    (2, a_checkpoint_that_is_deleted_before_it_is_forgotten),
    (2, a_checkpoint_that_goes_before_its_time),
    (2, one_pruned_too_many),
    (2, a_start_behind_the_checkpoint),
    (2, a_result_without_its_bytes),
    (3, another_result),
    (5, a_line_that_costs_more),
    (5, a_line_that_is_missing),
    (5, money_reserved_for_nobody),
    (6, a_job_without_a_reason),
)


@pytest.mark.parametrize(("promise", "tamper"), TAMPERS, ids=[tamper.__name__ for _, tamper in TAMPERS])
@moments
@few
def test_what_breaks_a_promise_is_seen(promise: int, tamper: Tamper, moment_s: int) -> None:
    simulation = begun(moment_s)
    with pytest.raises(Violation, match=f"^promise {promise}, seed 3, "):
        tamper(simulation)
        simulation.run()


@moments
@few
def test_what_a_request_changes_after_its_lease_was_lost_is_seen(moment_s: int) -> None:
    simulation = begun(moment_s)
    attempt, job = at_work(simulation)
    [fencing] = simulation.store.look("SELECT fencing FROM attempt WHERE id = ?", attempt)[0]
    simulation.store.look("DELETE FROM lease WHERE attempt = ?", attempt)
    before = simulation.checks.before(Hold(attempt=attempt, fencing=fencing))
    simulation.checks.after("commit", before)
    simulation.store.look("UPDATE checkpoint SET step = step + 1000 WHERE job = ?", job)
    with pytest.raises(Violation, match=r"^promise 1, .* commit after the lease was lost changed"):
        simulation.checks.after("commit", before)


@moments
@few
def test_an_event_without_a_reason_is_seen(moment_s: int) -> None:
    simulation = begun(moment_s)
    _, job = at_work(simulation)
    with pytest.raises(Violation, match=r"^promise 6, "):
        simulation.store.apply(event(job, "bans lifted", "", simulation.world.now_ms))


@pytest.mark.parametrize("write", ["enter", "reserve"])
def test_more_than_the_budget_is_seen_when_it_is_reserved(write: str) -> None:
    simulation = begun()
    attempt, _ = at_work(simulation)
    simulation.store.look("UPDATE project SET budget = 1")
    heard(simulation, "set_project")
    simulation.store.look("UPDATE project SET reserved = reserved + 1000000000")
    simulation.store.look("UPDATE lease SET reserved = reserved + 1000000000 WHERE attempt = ?", attempt)
    with pytest.raises(Violation, match=r"^promise 5, .* may spend 1;"):
        heard(simulation, write)


def heard(simulation: Simulation, write: str) -> None:
    """As if the service had just written that of the project."""
    [(project,)] = simulation.store.look("SELECT id FROM project")
    simulation.store.applied((Write(write, {"id": project}),))
    simulation.checks.after_event()


def test_nothing_is_seen_where_nobody_tampers() -> None:
    simulation = begun()
    assert simulation.run().unfinished == 0
    simulation.audit.at_the_end(simulation.cloud.invoice(), nodes_min=0)


@pytest.mark.parametrize(
    ("promise", "sql"),
    [
        pytest.param(4, "UPDATE job SET state = 'queued' WHERE id = (SELECT MIN(id) FROM job)", id="a job goes on"),
        pytest.param(4, "UPDATE node SET state = 'ready' WHERE id = (SELECT MIN(id) FROM node)", id="a node stays"),
        pytest.param(5, "UPDATE ledger SET micro_usd = micro_usd + 1 WHERE cause = 'idle'", id="a line costs more"),
        pytest.param(5, "DELETE FROM ledger WHERE cause = 'idle'", id="a line is missing"),
    ],
)
def test_an_end_that_is_none_is_seen(promise: int, sql: str) -> None:
    simulation = begun()
    simulation.run()
    simulation.store.look(sql)
    with pytest.raises(Violation, match=f"^promise {promise}, "):
        simulation.audit.at_the_end(simulation.cloud.invoice(), nodes_min=0)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("UPDATE artifact SET path = 'samples/step-000001/a.png'", id="a picture of a step is left"),
        pytest.param("UPDATE checkpoint SET pinned = 1, state = 'committed'", id="a pinned checkpoint is gone"),
    ],
)
def test_what_is_left_past_its_age_and_what_is_gone_is_seen(sql: str) -> None:
    simulation = begun()
    simulation.run()
    age_all(simulation.service.deployment, simulation.world, simulation.store, simulation.objects)
    simulation.checks.kept.at_the_end()
    simulation.store.look(sql)
    with pytest.raises(Violation, match=r"^promise 2, .*too much is kept"):
        simulation.checks.kept.at_the_end()


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("UPDATE ledger SET micro_usd = 9 * micro_usd WHERE cause = 'storage'", id="storage costs more"),
        pytest.param("UPDATE checkpoint SET bytes = 9 * bytes", id="more is stored than there is"),
        pytest.param("DELETE FROM ledger WHERE cause = 'egress'", id="egress is missing"),
    ],
)
def test_a_bill_that_the_object_store_would_not_write_is_seen(sql: str) -> None:
    rates = {"storage_usd_per_gb_month": 20.0, "egress_usd_per_gb": 0.1}
    simulation = Simulation(
        replace(load_scenario("small"), hours_max=2, policy=load_scenario("small").policy | rates), seed=3
    )
    simulation.run()
    simulation.audit.against_the_store(simulation.policy)
    simulation.store.look(sql)
    with pytest.raises(Violation, match=r"^promise 5, "):
        simulation.audit.against_the_store(simulation.policy)
