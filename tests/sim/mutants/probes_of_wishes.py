"""Races and rules about what an owner asks of a job while it runs."""

from dataclasses import asdict, replace

from gangline.core.errors import BadInput
from gangline.ports.server import Beaten, Committed, Refused
from gangline.service.jobs import steer, wishes
from gangline.service.jobs.finish import finish
from gangline.sim.node.lineage import content_sha256
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


@probe()
def nobody_ends_a_job_early_but_its_owner(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    short = replace(bench.result(node, hold), steps=9)
    assert isinstance(finish(bench.deployment, node, hold, short, bench.now_ms), Refused)
    wishes.ask_to_finish(bench.deployment, job, bench.now_ms)
    assert bench.beat(node, hold, 9) == Beaten(finish=True)
    made = bench.lineage(hold)
    file = replace(short.output[0], path="early.safetensors", sha256=content_sha256(f"result of {made}", 9))
    bench.upload(node, hold, "output", file)
    finish(bench.deployment, node, hold, replace(short, output=(file,)), bench.now_ms)
    assert bench.look("SELECT ended_step FROM job") == [9] and bench.state(job) == "succeeded"


@probe()
def a_paused_job_that_is_resumed_in_this_moment_is_finished(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 5)
    bench.release(node, hold)
    steer.pause(bench.deployment, job, bench.now_ms)
    bench.meanwhile("add_wish", lambda: steer.resume(bench.deployment, job, bench.now_ms))
    assert wishes.ask_to_finish(bench.deployment, job, bench.now_ms)
    assert bench.beat(node, bench.take(node, job), 5) == Beaten(finish=True)


@probe()
def a_heartbeat_says_how_many_wishes_its_own_job_has(bench: Bench) -> None:
    jobs = {}
    for number, name in enumerate("ab"):
        job, node = bench.submit(seed=number), bench.join(name)
        jobs[job] = {"node": node, **asdict(bench.take(node, job))}
    wished = next(iter(jobs))
    ask(bench, wished)
    told = {"expires_ms": bench.now_ms, "now": bench.now_ms, "phase": "training", "step": 1, "loss": 1}
    for job, whose in jobs.items():
        rows = bench.store.change("renew_lease", **whose, **told, seconds_per_step=1, memory_bytes=None, training_ms=1)
        assert [row["wishes"] for row in rows] == [int(job == wished)]
