"""Races and rules about pictures of a job while it trains."""

import json
from dataclasses import dataclass
from typing import Any

from gangline.core.files import File
from gangline.core.jobs.claim import NOTHING
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.runs.contract import PICTURES, picture_name, pictures_name
from gangline.core.specs.fields import Needs
from gangline.ports.server import Assignment, Committed, Done, Hold, Show, Succeeded
from gangline.service.jobs import samples, steer
from gangline.service.jobs.finish import finish
from gangline.sim.node.lineage import content_sha256, lineage_of
from tests.sim.mutants.bench import Bench, is_stale, probe
from tests.sim.mutants.probes import canceled_meanwhile

EVERY = 10


@dataclass(frozen=True)
class Pair:
    """A node that trains, and another one. Pictures of step 10 are asked for."""

    bench: Bench
    job: str
    trainer: str
    hold: Hold
    other: str

    def commit(self, step: int) -> Any:
        return self.bench.commit(self.trainer, self.hold, step)

    def train_for(self, seconds: float) -> None:
        self.bench.keep_beating(self.trainer, self.hold, seconds)

    def waiting(self) -> list[int]:
        rows = self.bench.store.load("open_samples", parent=self.job)
        return [row["step"] for row in rows if row["state"] == "queued"]


def pair(bench: Bench, **settings: Any) -> Pair:
    trainer, other = bench.join("a", gpu_memory_gb=24), bench.join("b", gpu_memory_gb=24)
    job = bench.submit(**({"sample_every_steps": EVERY, "seed": 77} | settings))
    found = Pair(bench, job, trainer, bench.take(trainer, job), other)
    assert found.commit(EVERY) == Committed(render=False)
    return found


def render(bench: Bench, node: str, of: Assignment) -> Any:
    lineage = lineage_of(of.spec["of"])
    shown = lineage if of.spec["checkpoint"] else f"result of {lineage}"
    file = File(path=picture_name(0, 1), bytes=9, sha256=content_sha256(shown, of.spec["step"]))
    bench.upload(node, of.hold, "output", file)
    return finish(bench.deployment, node, of.hold, Succeeded(output=(file,)), bench.now_ms)


def show(bench: Bench, node: str, hold: Hold, step: int) -> Any:
    names = [f"{pictures_name(step)}/{name}" for name in (picture_name(0, 1), PICTURES)]
    files = tuple(File(path=name, bytes=9, sha256=content_sha256(name, step)) for name in names)
    for file in files:
        bench.upload(node, hold, "samples", file)
    return samples.keep_samples(bench.deployment, node, hold, Show(step=step, files=files), bench.now_ms)


@probe()
def pictures_go_after_all_that_is_to_be_trained_and_are_given_out_once(bench: Bench) -> None:
    found = pair(bench, priority=9)
    fresh = bench.submit(seed=1, priority=-9)
    bench.release(found.other, bench.take(found.other, fresh))
    rendering = next(row["id"] for row in bench.store.load("open_samples", parent=found.job))
    bench.store.look("UPDATE job SET fencing = 1, version = version + 1 WHERE id = ?", rendering)
    third = bench.join("c")
    bench.take(third, fresh)
    bench.store.look("UPDATE job SET fencing = 0, version = version + 1 WHERE id = ?", rendering)
    another = bench.submit(seed=2, priority=-9)
    bench.take(bench.join("d"), another)
    assert render(bench, found.other, bench.claim(found.other)) == Done()
    assert bench.claim_nothing(found.other) == NOTHING.because
    assert [state for (state,) in bench.store.look("SELECT state FROM job WHERE kind = 'sample'")] == ["succeeded"]


@probe()
def what_a_node_may_not_render_is_not_looked_at(bench: Bench) -> None:
    found = pair(bench)
    for need in ("gpu_memory_gb = 80", "gpu = 'H200'", "pool = 'far'", "trust = 2", f"ready_ms = {bench.now_ms + 9}"):
        column = need.split(" = ")[0]
        [(before,)] = bench.store.look(f"SELECT {column} FROM job WHERE kind = 'sample'")
        bench.store.look(f"UPDATE job SET {need} WHERE kind = 'sample'")
        assert bench.claim_nothing(found.other) == NOTHING.because, need
        bench.store.look(f"UPDATE job SET {column} = ? WHERE kind = 'sample'", before)
    bench.budget(0)
    assert bench.claim_nothing(found.other) == NOTHING.because
    bench.budget(None)
    assert bench.claim(found.other).kind == "sample"


@probe()
def a_job_that_must_stay_exact_is_no_picture(bench: Bench) -> None:
    job, node = bench.submit(exact="required"), bench.join("a", gpu="A100")
    hold = bench.take(node, job)
    bench.commit(node, hold, 5)
    bench.release(node, hold)
    assert bench.claim_nothing(bench.join("b", gpu="H200")) == NOTHING.because


@probe()
def a_machine_that_failed_to_render_does_not_get_it_again(bench: Bench) -> None:
    found = pair(bench)
    bench.fail(found.other, bench.claim(found.other).hold)
    found.train_for(60)
    assert bench.claim_nothing(found.other) == NOTHING.because


@probe()
def who_has_the_base_and_nothing_to_do_goes_first_and_nobody_else(bench: Bench) -> None:
    found = pair(bench)
    stranger = bench.join("stranger", gpu_memory_gb=24)
    bench.store.look("INSERT INTO node_base (node, base) SELECT ?, base FROM job WHERE id = ?", found.other, found.job)
    assert bench.claim_nothing(stranger) == NOTHING.because
    bench.store.look("UPDATE node SET state = 'draining', because = 'x' WHERE id = ?", found.other)
    bench.release(stranger, bench.claim(stranger).hold)
    bench.store.look("UPDATE node SET state = 'ready' WHERE id = ?", found.other)
    work = bench.submit(seed=5)
    bench.take(found.other, work)
    bench.release(stranger, bench.claim(stranger).hold)


@probe()
def after_a_while_anybody_renders(bench: Bench) -> None:
    found = pair(bench)
    bench.store.look("INSERT INTO node_base (node, base) SELECT ?, base FROM job WHERE id = ?", found.other, found.job)
    found.train_for(bench.policy.base_wait_s + 20)
    assert bench.claim(bench.join("stranger", gpu_memory_gb=24)).kind == "sample"


@probe()
def only_the_newest_that_waits_is_kept(bench: Bench) -> None:
    found = pair(bench)
    for step in (20, 30):
        found.commit(step)
    assert found.waiting() == [30]


@probe()
def what_is_to_be_shown_is_kept_and_then_goes(bench: Bench) -> None:
    found = pair(bench)
    rendering = bench.claim(found.other)
    for step in (11, 12, 13):
        found.commit(step)
    assert len(bench.checkpoints(found.job)) == 3
    assert render(bench, found.other, rendering) == Done()
    assert len(bench.checkpoints(found.job)) == 2


@probe()
def what_no_node_has_time_for_is_given_up(bench: Bench) -> None:
    found = pair(bench)
    bench.succeed(found.trainer, found.hold)
    bench.wait(bench.policy.samples_wait_s - 1)
    bench.tick()
    assert found.waiting() == [EVERY]
    bench.wait(bench.policy.watch_interval_s)
    bench.tick()
    assert found.waiting() == []


@probe()
def a_result_waits_for_a_node(bench: Bench) -> None:
    node, job = bench.join(), bench.submit(sample_result=True)
    hold = bench.take(node, job)
    show(bench, node, hold, EVERY)
    bench.succeed(node, hold)
    bench.wait(bench.policy.samples_wait_s + bench.policy.watch_interval_s)
    bench.tick()
    (stored,) = [stored for stored in bench.claim(bench.join("later")).inputs if stored.path.startswith("result/")]
    made = bench.look("SELECT key FROM artifact WHERE job = ? AND path = ?", job, DIFFUSERS_FILE)
    assert [stored.key] == made


@probe()
def pictures_alone_rent_no_node(bench: Bench) -> None:
    node, job = bench.join(), bench.submit(sample_result=True)
    bench.succeed(node, bench.take(node, job))
    bench.store.look("UPDATE node SET state = 'gone'")
    bench.tend()
    assert bench.rented() == []


@probe()
def a_result_waits_where_no_node_is_left(bench: Bench) -> None:
    node, job = bench.join(gpu="T4"), bench.submit(sample_result=True, needs=Needs(gpu="T4"))
    bench.succeed(node, bench.take(node, job))
    bench.store.look("UPDATE node SET state = 'gone'")
    for wait_s in (bench.policy.unmatched_s, bench.policy.watch_interval_s):  # the provider has said what it offers
        bench.wait(wait_s + 1)
        bench.tick()
    assert [row["state"] for row in bench.store.load("open_samples", parent=job)] == ["queued"]


@probe()
def a_rented_node_that_is_to_go_shows_results_and_no_steps(bench: Bench) -> None:
    (node,) = bench.rent(sample_result=True)
    training = bench.claim(node)
    found = pair(bench)
    bench.succeed(node, training.hold)
    of_step = bench.claim(node)
    assert of_step.spec["checkpoint"]
    for _ in range(10):
        bench.wait(bench.policy.idle_s / 5)
        bench.beat(node, of_step.hold, 0, phase="rendering", loss=None, seconds_per_step=None, training_s=None)
        bench.beat(found.trainer, found.hold, EVERY)
    found.commit(2 * EVERY)
    assert render(bench, node, of_step) == Done()
    of_result = bench.claim(node)
    assert of_result.spec["checkpoint"] is None
    assert render(bench, node, of_result) == Done()
    assert found.waiting() == [2 * EVERY]
    bench.claim_nothing(node)


@probe()
def who_wants_no_picture_of_a_result_gets_none(bench: Bench) -> None:
    node, job = bench.join(), bench.submit(sample_result=False)
    bench.succeed(node, bench.take(node, job))
    assert not bench.look("SELECT id FROM job WHERE kind = 'sample'")


@probe()
def who_cancels_a_job_wants_no_pictures_of_it(bench: Bench) -> None:
    found = pair(bench)
    steer.cancel(bench.deployment, found.job, bench.now_ms)
    assert found.waiting() == []


@probe()
def no_node_is_rented_for_pictures(bench: Bench) -> None:
    found = pair(bench)
    bench.tend()
    assert bench.rented() == [] and found.waiting() == [EVERY]


@probe()
def rendering_gives_way_to_training(bench: Bench) -> None:
    found = pair(bench)
    rendering = bench.claim(found.other)
    said = {"phase": "rendering", "loss": None, "seconds_per_step": None, "training_s": None, "step": 0}
    bench.submit(seed=8, needs=Needs(gpu_memory_gb=80))
    bench.wait(bench.policy.claim_interval_s + 1)
    bench.tick()
    assert bench.beat(found.other, rendering.hold, **said).stop == ""
    bench.submit(seed=9)
    bench.wait(bench.policy.claim_interval_s + 1)
    bench.tick()
    assert "training waits" in bench.beat(found.other, rendering.hold, **said).stop


@probe()
def what_rendering_costs_is_told_as_that(bench: Bench) -> None:
    found = pair(bench)
    rendering = bench.claim(found.other)
    bench.wait(20)
    render(bench, found.other, rendering)
    causes = [cause for cause, *_ in bench.ledger(found.other) if cause != "idle"]
    assert causes == ["samples"]


@probe()
def steps_that_are_trained_again_are_shown_once(bench: Bench) -> None:
    node, job = bench.join(), bench.submit(sample_every_steps=EVERY)
    hold = bench.take(node, job)
    assert bench.commit(node, hold, 10) == Committed(render=True)
    assert bench.commit(node, hold, 10) == Committed(render=True)
    assert show(bench, node, hold, 10) == Done()
    assert show(bench, node, hold, 10) == Done()
    assert bench.commit(node, hold, 10) == Committed()
    assert bench.commit(node, hold, 12) == Committed()
    bench.reject(node, hold, bench.checkpoints(job)[-1])
    assert bench.commit(node, hold, 20) == Committed(render=True)
    assert bench.events(job).count("rendered") == 1


@probe()
def by_time_too_what_was_shown_is_not_shown_again(bench: Bench) -> None:
    node, job = bench.join(), bench.submit(sample_every_s=60.0)
    hold = bench.take(node, job)
    bench.commit(node, hold, 5)
    bench.keep_beating(node, hold, 70)
    assert bench.commit(node, hold, 10) == Committed(render=True)
    bench.reject(node, hold, bench.checkpoints(job)[-1])
    bench.keep_beating(node, hold, 70)
    assert bench.commit(node, hold, 8) == Committed()
    assert bench.commit(node, hold, 12) == Committed(render=True)


@probe()
def nothing_is_shown_after_the_lease_is_lost(bench: Bench) -> None:
    job, node, hold = canceled_meanwhile(bench, "add_artifact")
    assert is_stale(show(bench, node, hold, 10))
    assert not bench.look("SELECT path FROM artifact") and bench.state(job) == "canceled"


@probe()
def pictures_of_a_step_are_told_of_as_they_come(bench: Bench) -> None:
    found = pair(bench)
    render(bench, found.other, bench.claim(found.other))
    path = f"samples/{pictures_name(EVERY)}/{picture_name(0, 1)}"
    assert bench.look("SELECT path FROM artifact WHERE job = ?", found.job) == [path]
    assert "rendered" in bench.events(found.job)
    assert json.loads(bench.look("SELECT spec FROM job WHERE kind = 'sample'")[0])["job"] == found.job
