"""Races and rules about what an owner asks of a job while it runs."""

from gangline.core.errors import BadInput
from gangline.ports.server import Beaten, Committed
from gangline.service.jobs import steer, wishes
from tests.sim.mutants.bench import Bench, probe, refused
from tests.sim.mutants.probes_of_samples import EVERY, pair, show


def ask(bench: Bench, job: str) -> bool:
    return wishes.ask_to_save(bench.deployment, job, bench.now_ms)


@probe()
def what_is_asked_is_done_by_the_first_checkpoint_after_it_was_told(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    ask(bench, job)
    assert bench.beat(node, hold, 3) == Beaten(save=True)
    assert bench.beat(node, hold, 9) == Beaten(save=True)
    bench.commit(node, hold, 5)
    assert bench.beat(node, hold, 9) == Beaten()


@probe()
def the_next_attempt_does_what_the_one_before_was_told(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    ask(bench, job)
    bench.beat(node, hold, 3)
    bench.release(node, hold)
    hold = bench.take(node, job)
    bench.commit(node, hold, 4)
    assert bench.beat(node, hold, 4) == Beaten(save=True)
    bench.commit(node, hold, 5)
    assert bench.beat(node, hold, 6) == Beaten()


@probe()
def nothing_is_asked_of_a_job_that_ends_in_this_moment(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.meanwhile("change_job", lambda: bench.succeed(node, hold))
    assert refused(BadInput, lambda: ask(bench, job))
    assert not bench.look("SELECT kind FROM wish")


@probe()
def who_asks_twice_in_one_moment_asks_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.take(node, job)
    bench.meanwhile("change_job", lambda: ask(bench, job))
    assert not ask(bench, job)
    assert bench.events(job).count("asked to save") == 1


@probe()
def a_job_with_a_rhythm_of_pictures_shows_itself_when_asked_too(bench: Bench) -> None:
    node, job = bench.join(), bench.submit(sample_every_steps=EVERY)
    hold = bench.take(node, job)
    wishes.ask_for_samples(bench.deployment, job, bench.now_ms)
    bench.beat(node, hold, 3)
    assert bench.commit(node, hold, 4) == Committed(render=True, now=True)
    show(bench, node, hold, 6)
    assert bench.beat(node, hold, 7) == Beaten()


@probe()
def pictures_are_asked_of_a_job_that_waits_or_of_the_node_that_has_just_taken_it(bench: Bench) -> None:
    found = pair(bench)
    steer.cancel(bench.deployment, bench.store.load("open_samples", parent=found.job)[0]["id"], bench.now_ms)
    found.commit(EVERY + 2)
    bench.release(found.trainer, found.hold)
    bench.meanwhile("change_job", lambda: bench.take(found.trainer, found.job))
    assert wishes.ask_for_samples(bench.deployment, found.job, bench.now_ms)
    assert bench.look("SELECT kind FROM wish") == ["sample"] and found.waiting() == []


@probe()
def what_is_saved_before_its_node_was_told_is_not_what_was_asked_for(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.beat(node, hold, 3)
    ask(bench, job)
    bench.beat(node, hold, 5)
    bench.commit(node, hold, 4)
    assert bench.beat(node, hold, 6) == Beaten(save=True)


@probe()
def a_node_that_is_lost_before_it_rendered_leaves_it_to_the_next(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    wishes.ask_for_samples(bench.deployment, job, bench.now_ms)
    bench.beat(node, hold, 3)
    assert bench.commit(node, hold, 4) == Committed(render=True, now=True)
    bench.release(node, hold)
    hold = bench.take(node, job)
    assert bench.beat(node, hold, 5) == Beaten(save=True)


@probe()
def a_job_that_ends_before_says_so(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    ask(bench, job)
    bench.release(node, hold)
    assert "not done" not in bench.events(job)
    bench.succeed(node, bench.take(node, job))
    assert bench.events(job).count("not done") == 1
