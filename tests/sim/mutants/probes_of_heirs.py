"""Rules about jobs that begin from the checkpoints of another one."""

from gangline.core.errors import BadInput
from gangline.ports.server import Done
from gangline.service.jobs import steer
from gangline.service.jobs.extension.extend import extend
from gangline.service.retention.ages import expire_checkpoints
from gangline.service.retention.storage import pin
from tests.sim.mutants.bench import PROJECT, Bench, probe, refused

WEEK_S = 7 * 86_400


def canceled_at(bench: Bench, *at: int, node: str = "a", seed: int = 0, **settings: object) -> str:
    """A job that was canceled with checkpoints of these steps."""
    job = bench.submit(seed=seed, **settings)
    there = bench.join(node)
    hold = bench.take(there, job)
    for step in at:
        bench.commit(there, hold, step)
    steer.cancel(bench.deployment, job, bench.now_ms)
    bench.tick()
    return job


def again(bench: Bench, job: str) -> str:
    return steer.submit_again(bench.deployment, PROJECT, job, bench.now_ms, from_checkpoint=True)


def heirs(bench: Bench, job: str) -> list[int]:
    return bench.look("SELECT heirs FROM checkpoint WHERE job = ? ORDER BY step", job)


@probe()
def an_heir_rejects_what_it_begins_from_and_nothing_else(bench: Bench) -> None:
    other, old = canceled_at(bench, 10, node="a", seed=1), canceled_at(bench, 20, node="b", seed=2)
    heir = again(bench, old)
    node = bench.join("c")
    hold = bench.take(node, heir)
    bench.reject(node, hold, bench.checkpoints(other)[0])
    assert bench.checkpoints(other, "rejected") == []
    assert bench.reject(node, hold, bench.checkpoints(old)[0]) == Done()
    assert bench.checkpoints(old) == []


@probe()
def an_heir_is_counted_by_the_checkpoints_that_it_may_begin_from(bench: Bench) -> None:
    other = canceled_at(bench, 10, node="a", seed=1)
    old = bench.submit(seed=2)
    node = bench.join("b")
    hold = bench.take(node, old)
    bench.commit(node, hold, 20), bench.commit(node, hold, 30)
    bench.release(node, hold)
    hold = bench.take(node, old)
    bench.reject(node, hold, bench.checkpoints(old)[-1])
    steer.cancel(bench.deployment, old, bench.now_ms)
    bench.tick()
    again(bench, old)
    assert (heirs(bench, other), heirs(bench, old)) == ([0], [1, 0])


@probe()
def a_checkpoint_that_has_an_heir_since_it_was_looked_at_stays(bench: Bench) -> None:
    old = canceled_at(bench, 10)
    bench.wait(WEEK_S + 1)
    bench.meanwhile("prune_checkpoint", lambda: again(bench, old))
    expire_checkpoints(bench.deployment, bench.now_ms)
    assert len(bench.checkpoints(old)) == 1


@probe()
def nobody_begins_from_checkpoints_that_have_just_gone(bench: Bench) -> None:
    old = canceled_at(bench, 10)
    bench.wait(WEEK_S + 1)
    bench.meanwhile("bequeath_checkpoints", lambda: expire_checkpoints(bench.deployment, bench.now_ms))
    try:
        again(bench, old)
    except BadInput as error:
        assert "keeps no checkpoint any more" in error.message
    assert bench.look("SELECT COUNT(*) FROM job") == [1]


@probe()
def an_heir_that_is_exact_has_the_numerics_of_the_job_before(bench: Bench) -> None:
    canceled_at(bench, 10, node="a", seed=1)
    old = canceled_at(bench, 20, node="b", seed=2, exact="required")
    (before,) = bench.look("SELECT numerics FROM job WHERE id = ?", old)
    assert before
    assert bench.look("SELECT numerics FROM job WHERE id = ?", again(bench, old)) == [before]


def extended(bench: Bench, job: str, steps: int = 1000) -> str:
    row = bench.store.load("job", id=job)[0]
    return extend(bench.deployment, PROJECT, row, steps, "stretch", bench.now_ms)


@probe()
def nobody_continues_from_a_checkpoint_that_has_just_gone_though_another_one_stays(bench: Bench) -> None:
    old = canceled_at(bench, 10, 20)
    pin(bench.deployment, bench.store.load("job", id=old)[0], 10, pinned=True)
    bench.wait(WEEK_S + 1)
    bench.meanwhile("bequeath_step", lambda: expire_checkpoints(bench.deployment, bench.now_ms))
    try:
        extended(bench, old)
    except BadInput as error:
        assert "keeps no checkpoint of step 20 any more" in error.message
    assert bench.look("SELECT COUNT(*) FROM job") == [1]


@probe()
def a_job_that_continues_another_is_the_heir_of_one_checkpoint_and_begins_from_no_other(bench: Bench) -> None:
    other, old = canceled_at(bench, 20, node="a", seed=1), canceled_at(bench, 10, 20, node="b", seed=2)
    new = extended(bench, old)
    assert (heirs(bench, other), heirs(bench, old)) == ([0], [0, 1])
    node = bench.join("c")
    hold = bench.take(node, new)
    bench.reject(node, hold, bench.checkpoints(old)[-1])
    bench.release(node, hold)
    hold = bench.take(node, new)
    assert bench.look("SELECT from_step FROM attempt WHERE id = ?", hold.attempt) == [0]


@probe()
def one_that_is_retried_begins_where_it_began(bench: Bench) -> None:
    new = extended(bench, canceled_at(bench, 20))
    steer.cancel(bench.deployment, new, bench.now_ms)
    again = steer.submit_again(bench.deployment, PROJECT, new, bench.now_ms)
    assert bench.look("SELECT begins_step FROM job WHERE id = ?", again) == [20]


@probe()
def a_job_is_extended_beyond_what_it_has_reached_and_once_it_has_ended(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 20)
    assert refused(BadInput, lambda: extended(bench, job))
    steer.cancel(bench.deployment, job, bench.now_ms)
    assert refused(BadInput, lambda: extended(bench, job, 20))
    extended(bench, job, 21)
