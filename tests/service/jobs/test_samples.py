"""Pictures of a training job while it trains: who renders them, when, what becomes of them. Training never waits for any of it."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.parsing import to_json
from gangline.core.runs.contract import GRID, LORA, PICTURES, picture_name
from gangline.core.specs.fields import FilesBase, Needs
from gangline.core.specs.sample import previews_of
from gangline.core.specs.spec import parse_task, spec_hash
from gangline.ports.server import (
    Assignment,
    Beaten,
    Commit,
    Committed,
    Done,
    Downloads,
    Failed,
    Hold,
    Join,
    Refused,
    Reject,
    Show,
    Stale,
    Succeeded,
    Uploads,
    Urls,
)
from gangline.ports.store import write
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.driving import AtOnce
from gangline.service.fleet.demand import load_needs
from gangline.service.fleet.nodes import join_pool
from gangline.service.jobs import checkpoint, query, samples, steer
from gangline.service.jobs.finish import finish
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.jobs.submit import Asker
from tests.conftest import as_upload
from tests.service.conftest import POLICY, PRICE, PROJECT, Before, Service
from tests.service.jobs.test_one_at_a_time import upload, view
from tests.service.test_rules import beat, because, kinds, release, succeed
from tests.unit.fleet.test_autoscale_found import Shop

EVERY = 10
BASE_IS_ELSEWHERE = "no waiting job may run on this node"
PNG = picture_name(0, 1)
PICTURES_OF_10 = {f"samples/step-000010/{PNG}", f"samples/step-000010/{PICTURES}"}


def train(service: Service, node: str, **settings: Any) -> Assignment:
    """A job that shows itself every ten steps, on `node`."""
    job = service.submit(**({"sample_every_steps": EVERY} | settings))
    assignment = service.claim(node)
    assert assignment.job == job
    return assignment


def commit(service: Service, node: str, training: Assignment, step: int) -> Any:
    upload(service, node, training.hold, step)
    manifest = service.manifest(step, spec_hash=spec_hash(parse_task(training.spec)))  # type: ignore[arg-type]
    return checkpoint.commit_checkpoint(
        service.deployment, node, training.hold, Commit(manifest=manifest.to_json()), service.now_ms
    )


def hand_over(service: Service, node: str, hold: Hold, folder: Any, name: str, content: bytes = b"a picture") -> File:
    file = File(path=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    grants = checkpoint.sign_uploads(
        service.deployment, node, hold, Uploads(folder=folder, files=(as_upload(file, content),)), service.now_ms
    )
    assert not isinstance(grants, Stale)
    service.put(grants.files[0], content)
    return file


def rendered(service: Service, node: str, rendering: Assignment) -> Any:
    file = hand_over(service, node, rendering.hold, "output", PNG)
    return finish(service.deployment, node, rendering.hold, Succeeded(output=(file,)), service.now_ms)


def pictures(service: Service, job: str) -> list[str]:
    return [
        found.path
        for found in query.artifacts_of(service.deployment, PROJECT, job, service.now_ms)
        if "step-" in found.path
    ]


def open_samples(service: Service, job: str) -> list[tuple[str, int]]:
    return [(row["state"], row["step"]) for row in service.store.load("open_samples", parent=job)]


def go_on_training(service: Service, node: str, training: Assignment, seconds: float) -> None:
    until_ms = service.now_ms + seconds * 1000
    while service.now_ms < until_ms:
        service.wait(30)
        beat(service, node, training.hold, 5)


# Who renders


def test_where_another_node_has_nothing_to_train_it_renders(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    assert commit(service, first, training, 10) == Committed(render=False)
    rendering = service.claim(second)
    assert (rendering.kind, rendering.name) == ("sample", "sks dog, step 10")
    assert [stored.path for stored in rendering.inputs] == ["base/a.png", "checkpoint/weights.safetensors"]
    assert rendering.resume == ()
    assert rendered(service, second, rendering) == Done()
    assert pictures(service, training.job) == [f"samples/step-000010/{PNG}"]
    assert "rendered" in kinds(service, training.job)


def test_where_there_is_no_other_node_the_training_one_is_asked(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    assert commit(service, node, training, 9) == Committed(render=False)
    assert commit(service, node, training, 10) == Committed(render=True)
    assert open_samples(service, training.job) == []
    assert commit(service, node, training, 11) == Committed(render=False)


def test_who_asks_again_because_the_answer_was_lost_is_told_the_same(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    assert [commit(service, node, training, 10) for _ in range(2)] == 2 * [Committed(render=True)]


def trains(service: Service) -> None:
    service.submit()
    service.claim(service.join("node-b", gpu_memory_gb=24))


def is_too_small(service: Service) -> None:
    service.join("node-b", gpu_memory_gb=8)


def is_of_another_pool(service: Service) -> None:
    join_pool(service.deployment, Join(machine="m", name="node-b", gpu_memory_gb=24), "home", service.now_ms)


def drains(service: Service) -> None:
    node = service.join("node-b", gpu_memory_gb=24)
    service.store.apply(write("set_node_state", id=node, before="ready", state="draining", because="no work"))


@pytest.mark.parametrize("other", [trains, is_too_small, is_of_another_pool, drains])
def test_a_node_that_could_not_take_them_is_no_other_node(service: Service, other: Callable[[Service], None]) -> None:
    node = service.join("node-a", gpu_memory_gb=24)
    training = train(service, node, needs=Needs(gpu_memory_gb=24, pool="default"))
    other(service)
    assert commit(service, node, training, 10) == Committed(render=True)


def test_a_node_that_is_rendering_will_have_time_for_more(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    service.claim(second)
    assert commit(service, first, training, 20) == Committed(render=False)
    assert open_samples(service, training.job) == [("queued", 20), ("running", 10)]


def test_samples_never_go_before_training(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    service.wait(30)
    fresh = service.submit(priority=-1000)
    assert service.claim(second).job == fresh


def test_samples_never_go_before_what_was_interrupted(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    again = service.submit()
    release(service, second, service.claim(second).hold)
    service.wait(1)
    commit(service, first, training, 10)
    assert [service.claim(node).job == again for node in (second, service.join("node-c"))] == [True, False]


def test_a_node_that_holds_the_base_goes_first_for_a_while(service: Service) -> None:
    holder = service.join("node-holder")
    early = train(service, holder)
    commit(service, holder, early, 5)
    succeed(service, holder, early.hold)
    trainer, stranger = service.join("node-a"), service.join("node-b")
    training = train(service, trainer)
    commit(service, trainer, training, 10)
    assert service.claim_nothing(stranger) == BASE_IS_ELSEWHERE
    go_on_training(service, trainer, training, POLICY.base_wait_s + 1)
    assert service.claim(stranger).kind == "sample"


def test_without_such_a_node_nobody_waits(service: Service) -> None:
    trainer, stranger = service.join("node-a"), service.join("node-b")
    commit(service, trainer, train(service, trainer), 10)
    assert service.claim(stranger).kind == "sample"


def test_samples_alone_start_no_node(service: Service) -> None:
    first = service.join("node-a")
    service.join("node-b")
    commit(service, first, train(service, first), 10)
    assert load_needs(service.deployment, service.now_ms) == []


def rented(service: Service, name: str, nodes_min: int = 0) -> str:
    """A node of a pool that rents."""
    limits = PoolLimits(name="default", nodes_min=nodes_min, nodes_max=9)
    service.deployment = replace(service.deployment, pools={"default": RentedPool(limits, AtOnce(Shop()))})
    row = {
        "pool": "default",
        "gpu": "",
        "gpu_memory_gb": 80,
        "trust": 0,
        "slots": 1,
        "price_micro_usd_per_hour": PRICE,
        "price_known": 1,
    }
    service.store.apply(
        write("rent_node", called="rented", offer="any", id=name, because="work", now=service.now_ms, **row)
    )
    return service.join(name, node=name)


def test_pictures_keep_no_rented_node_that_has_had_nothing_to_train_for_long(service: Service) -> None:
    trainer = service.join("node-a")
    training = train(service, trainer)
    other = rented(service, "node-b")
    go_on_training(service, trainer, training, POLICY.idle_s - 30)
    assert commit(service, trainer, training, 10) == Committed(render=False)
    assert rendered(service, other, service.claim(other)) == Done()
    go_on_training(service, trainer, training, 30)
    assert commit(service, trainer, training, 20) == Committed(render=True)
    assert commit(service, trainer, training, 25) == Committed()
    service.claim_nothing(other)


def test_who_is_kept_anyhow_renders(service: Service) -> None:
    trainer = service.join("node-a")
    training = train(service, trainer)
    other = rented(service, "node-b", nodes_min=1)
    go_on_training(service, trainer, training, 10 * POLICY.idle_s)
    assert commit(service, trainer, training, 10) == Committed(render=False)
    assert service.claim(other).kind == "sample"


def test_rendering_gives_way_to_training_that_waits_and_begins_anew_later(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    rendering = service.claim(second)
    service.tick()
    assert beat(service, second, rendering.hold, 0, phase="rendering", loss=None) == Beaten()
    fresh = service.submit()
    service.wait(POLICY.claim_interval_s + 1)
    service.tick()
    told = beat(service, second, rendering.hold, 0, phase="rendering", loss=None)
    assert told == Beaten(stop="training waits for this node")
    release(service, second, rendering.hold)
    assert service.claim(second).job == fresh
    assert open_samples(service, training.job) == [("queued", 10)]


def test_it_gives_way_to_nothing_that_its_node_could_not_train(service: Service) -> None:
    first, second = service.join("node-a", gpu_memory_gb=80), service.join("node-b", gpu_memory_gb=8)
    training = train(service, first)
    commit(service, first, training, 10)
    rendering = service.claim(second)
    service.submit(needs=Needs(gpu_memory_gb=80))
    service.wait(POLICY.claim_interval_s + 1)
    service.tick()
    assert beat(service, second, rendering.hold, 0, phase="rendering", loss=None) == Beaten()


# When


def test_they_are_of_the_first_checkpoint_at_or_after_each_multiple(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    steps = [3, 9, 14, 17, 33, 39, 40]
    asked = [step for step in steps if commit(service, node, training, step) == Committed(render=True)]
    assert asked == [14, 33, 40]


def test_by_time_they_are_of_the_first_checkpoint_after_so_many_seconds(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None, sample_every_s=60.0)
    asked = []
    for step in range(1, 8):
        service.wait(25)
        if commit(service, node, training, step) == Committed(render=True):
            asked.append(step)
    assert asked == [3, 6]


def test_a_job_that_wants_none_has_none(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first, sample_every_steps=None)
    assert commit(service, first, training, 10) == Committed(render=False)
    service.claim_nothing(second)


def test_steps_that_are_trained_again_are_not_shown_again(service: Service) -> None:
    node = service.join("node-a")
    training = train(service, node)
    commit(service, node, training, 8)
    commit(service, node, training, 10)
    shown(service, node, training, 10)
    damaged = Reject(checkpoint=service.store.load("checkpoints", job=training.job)[0]["id"], because="a bit flipped")
    assert checkpoint.reject_damaged(service.deployment, node, training.hold, damaged, service.now_ms) == Done()
    release(service, node, training.hold)
    again = service.claim(node)
    assert [commit(service, node, again, step) for step in (10, 20)] == [Committed(), Committed(render=True)]


# Of a result


def report_result(service: Service, node: str, training: Assignment) -> Any:
    files = [hand_over(service, node, training.hold, "output", name) for name in (DIFFUSERS_FILE, "report.json")]
    return finish(service.deployment, node, training.hold, Succeeded(output=tuple(files)), service.now_ms)


def test_a_result_is_shown_beside_the_base_once_it_is_there(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None, sample_result=True)
    commit(service, node, training, 10)
    assert open_samples(service, training.job) == []
    assert report_result(service, node, training) == Done()
    before = view(service, training.job)
    assert (before.summary.state, before.samples.waiting) == ("succeeded", 1)
    rendering = service.claim(node)
    assert (rendering.kind, rendering.name) == ("sample", "sks dog, the result")
    assert [stored.path for stored in rendering.inputs] == ["base/a.png", f"result/{DIFFUSERS_FILE}"]
    assert (rendering.spec["checkpoint"], rendering.spec["step"]) == (None, 100)
    keys = tuple(stored.key for stored in rendering.inputs)
    assert isinstance(
        checkpoint.sign_downloads(service.deployment, node, rendering.hold, Downloads(keys=keys), service.now_ms), Urls
    )
    files = tuple(hand_over(service, node, rendering.hold, "output", name) for name in (picture_name(0, 1, LORA), GRID))
    assert finish(service.deployment, node, rendering.hold, Succeeded(output=files), service.now_ms) == Done()
    found = {
        artifact.path for artifact in query.artifacts_of(service.deployment, PROJECT, training.job, service.now_ms)
    }
    assert found == {DIFFUSERS_FILE, "report.json", "samples/grid.png", "samples/prompt-00-lora-seed-1.png"}
    after = view(service, training.job)
    assert after.summary == before.summary
    assert (after.samples.pictures, after.samples.waiting) == (1, 0)


def test_a_result_waits_longer_for_a_node_than_a_step(service: Service) -> None:
    node = service.join()
    jobs = list[Assignment]()
    for seed in (1, 2):
        jobs.append(train(service, node, sample_every_steps=None, sample_result=True, seed=seed))
        report_result(service, node, jobs[-1])
    shown, never = jobs
    service.wait(POLICY.samples_wait_s + 1)
    service.tick()
    assert [open_samples(service, training.job) for training in (shown, never)] == 2 * [[("queued", 100)]]
    assert service.claim(service.join("node-b")).spec["job"] == shown.job
    service.wait(POLICY.results_wait_s)
    service.tick()
    assert open_samples(service, never.job) == []


def test_a_result_waits_for_days_also_where_there_is_no_node_at_all(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None, sample_result=True)
    report_result(service, node, training)
    service.store.apply(write("node_gone", id=node, because="vanished"))
    for days in (1.5, 5):
        service.wait(days * 86_400)
        service.tick()
        assert open_samples(service, training.job) == [("queued", 100)]
    assert service.claim(service.join("node-b")).spec["job"] == training.job


def test_every_result_is_shown_before_a_rented_node_is_given_back(service: Service) -> None:
    node = rented(service, "node-a")
    jobs = [service.submit(sample_result=True, seed=seed) for seed in (1, 2)]
    for _ in jobs:
        report_result(service, node, service.claim(node))
    for _ in jobs:
        rendering = service.claim(node)
        service.wait(2 * POLICY.idle_s)
        beat(service, node, rendering.hold, 2)
        assert rendered(service, node, rendering) == Done()
    assert [view(service, job).samples.waiting for job in jobs] == [0, 0]


def test_a_result_that_was_not_shown_can_be_rendered_once_more(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None, sample_result=True)
    report_result(service, node, training)
    missed = service.store.load("open_samples", parent=training.job)[0]["id"]
    steer.cancel(service.deployment, missed, service.now_ms)
    told = view(service, training.job).samples
    assert (told.failed, told.because) == (1, f"{missed}: canceled by its owner")
    steer.submit_again(service.deployment, PROJECT, missed, service.now_ms)
    assert rendered(service, node, service.claim(node)) == Done()
    assert (view(service, training.job).samples.failed, view(service, training.job).samples.because) == (0, "")


def test_two_servers_that_get_the_same_retry_of_a_missed_result_render_it_once(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None, sample_result=True)
    report_result(service, node, training)
    missed = service.store.load("open_samples", parent=training.job)[0]["id"]
    steer.cancel(service.deployment, missed, service.now_ms)
    theirs = list[str]()

    def retry(deployment: Deployment) -> str:
        asker = Asker(fingerprint="f")
        return steer.submit_again(deployment, PROJECT, missed, service.now_ms, request="once", asker=asker)

    def other_server() -> None:
        if not theirs:
            theirs.append(retry(service.deployment))

    mine = retry(replace(service.deployment, store=Before(service.store, "apply", other_server)))
    assert [mine] == theirs


def test_of_a_job_that_failed_there_is_no_result_to_show(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None, sample_result=True, attempts_max=1)
    finish(service.deployment, node, training.hold, Failed(kind="crashed", because="boom"), service.now_ms)
    assert service.state(training.job) == "failed"
    assert open_samples(service, training.job) == []


def test_who_wants_no_picture_of_it_gets_none(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None, sample_result=False)
    assert report_result(service, node, training) == Done()
    assert open_samples(service, training.job) == []


# What becomes of them


def test_a_newer_checkpoint_takes_the_place_of_one_that_waits(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    for step in (10, 20, 30):
        commit(service, first, training, step)
    assert open_samples(service, training.job) == [("queued", 30)]
    assert service.claim(second).spec["step"] == 30
    dropped = service.look("SELECT because FROM job WHERE kind = 'sample' AND state = 'canceled' ORDER BY id")
    assert [row["because"] for row in dropped] == [
        f"step {step} was reached before a node was free" for step in (20, 30)
    ]


def test_a_checkpoint_is_kept_while_pictures_of_it_are_to_be_made_and_no_longer(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    rendering = service.claim(second)
    for step in (11, 12, 13):
        commit(service, first, training, step)
    assert [row["step"] for row in service.store.load("checkpoints", job=training.job)] == [13, 12, 10]
    urls = checkpoint.sign_downloads(
        service.deployment,
        second,
        rendering.hold,
        Downloads(keys=tuple(stored.key for stored in rendering.inputs)),
        service.now_ms,
    )
    assert isinstance(urls, Urls)
    assert service.send("GET", urls.urls[1]).content == b"weights"
    assert rendered(service, second, rendering) == Done()
    assert [row["step"] for row in service.store.load("checkpoints", job=training.job)] == [13, 12]


def test_one_that_is_overtaken_lets_its_checkpoint_go(service: Service) -> None:
    first = service.join("node-a")
    service.join("node-b")
    training = train(service, first)
    for step in (10, 20, 30, 40):
        commit(service, first, training, step)
    assert [row["step"] for row in service.store.load("checkpoints", job=training.job)] == [40, 30]


def test_a_late_one_delays_no_success_and_its_pictures_still_come(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    succeed(service, first, training.hold)
    before = view(service, training.job)
    assert (before.summary.state, before.samples.waiting) == ("succeeded", 1)
    assert service.claim_nothing(second) == BASE_IS_ELSEWHERE
    assert rendered(service, first, service.claim(first)) == Done()
    after = view(service, training.job)
    assert pictures(service, training.job) == [f"samples/step-000010/{PNG}"]
    assert after.summary == before.summary
    assert (after.samples.pictures, after.samples.waiting) == (1, 0)


def test_what_fails_is_no_failure_of_the_training(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first, attempts_max=1)
    commit(service, first, training, 10)
    for node in (second, service.join("node-c")):
        rendering = service.claim(node)
        failed = Failed(kind="crashed", because="boom")
        assert finish(service.deployment, node, rendering.hold, failed, service.now_ms) == Done()
        go_on_training(service, first, training, 60)
    assert service.state(rendering.job) == "failed" and "boom" in because(service, rendering.job)
    shown = view(service, training.job)
    assert (shown.summary.state, shown.samples.failed) == ("running", 1)
    assert service.store.load("job", id=training.job)[0]["attempts_failed"] == 0


def test_pictures_of_who_lost_the_lease_are_nobodys(service: Service) -> None:
    first, second, third = (service.join(name) for name in ("node-a", "node-b", "node-c"))
    training = train(service, first)
    commit(service, first, training, 10)
    old = service.claim(second)
    file = hand_over(service, second, old.hold, "output", PNG)
    go_on_training(service, first, training, POLICY.lease_s + 1)
    service.tick()
    new = service.claim(third)
    assert new.job == old.job
    assert isinstance(finish(service.deployment, second, old.hold, Succeeded(output=(file,)), service.now_ms), Stale)
    assert pictures(service, training.job) == []
    assert rendered(service, third, new) == Done()
    assert len(pictures(service, training.job)) == 1


def test_who_renders_may_read_the_base_and_the_weights_and_nothing_else(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    other = service.upload(b"another photo", "b.png")
    training = train(service, first, photos=(other,), base=FilesBase(files=(service.photo,)))
    commit(service, first, training, 10)
    rendering = service.claim(second)
    photo = next(stored for stored in training.inputs if stored.path == "photos/b.png")
    asked = Downloads(keys=(photo.key,))
    assert isinstance(
        checkpoint.sign_downloads(service.deployment, second, rendering.hold, asked, service.now_ms), Refused
    )


def test_a_canceled_job_is_shown_no_more(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    rendering = service.claim(second)
    commit(service, first, training, 20)
    assert steer.cancel(service.deployment, training.job, service.now_ms)
    assert open_samples(service, training.job) == []
    assert service.state(rendering.job) == "canceled"
    end = Succeeded(output=(service.photo,))
    assert isinstance(finish(service.deployment, second, rendering.hold, end, service.now_ms), Stale)


def test_what_no_node_came_for_is_given_up_after_a_while(service: Service) -> None:
    first = service.join("node-a")
    service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    succeed(service, first, training.hold)
    service.wait(POLICY.samples_wait_s + 1)
    service.tick()
    assert open_samples(service, training.job) == []
    given_up = service.look("SELECT state, because FROM job WHERE kind = 'sample'")
    assert given_up == [{"state": "canceled", "because": "no node had time for it in 1 h"}]


def test_pictures_are_swept_with_nothing_but_what_nobody_refers_to(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    rendering = service.claim(second)
    hand_over(service, second, rendering.hold, "output", "left-over.png")
    assert rendered(service, second, rendering) == Done()
    service.wait(POLICY.orphans_s + 1)
    service.tick()
    keys = list(service.objects.list(f"projects/{PROJECT}/jobs/{rendering.job}"))
    assert [key.rsplit("/", 1)[1] for key in keys] == [PNG]


def test_what_they_cost_is_told_with_the_training_and_apart_from_it(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    alone = view(service, training.job).summary.cost_usd
    rendering = service.claim(second)
    service.wait(20)
    assert rendered(service, second, rendering) == Done()
    shown = view(service, training.job)
    assert shown.samples.cost_usd == 20 * PRICE / 3600 / 1e6
    assert shown.summary.cost_usd == alone + 20 * PRICE / 3600 / 1e6  # its own node's 20 s, not the other's
    lines = service.look(f"SELECT cause, micro_usd FROM ledger WHERE job = '{rendering.job}'")
    assert lines == [{"cause": "samples", "micro_usd": 2000}]


def test_they_are_in_no_list_of_jobs_and_found_by_their_name(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    rendering = service.claim(second)
    page = page_of_jobs(service.deployment, PROJECT, JobFilters(), service.now_ms, limit=50)
    assert [job.id for job in page.jobs] == [training.job]
    assert view(service, rendering.job).summary.kind == "sample"


def test_a_user_hands_in_no_sample_job(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    commit(service, first, train(service, first), 10)
    rendering = service.claim(second)
    body = {"spec": rendering.spec}
    assert service.ask("POST", "/v1/jobs", json=body).status_code == 422
    steer.cancel(service.deployment, rendering.job, service.now_ms)
    with pytest.raises(BadInput, match="renders a checkpoint"):
        steer.submit_again(service.deployment, PROJECT, rendering.job, service.now_ms)


# Between the steps of training


def shown(service: Service, node: str, training: Assignment, step: int, content: bytes = b"a picture") -> Any:
    name = f"step-{step:06d}/{PNG}"
    file = hand_over(service, node, training.hold, "samples", name, content)
    listed = hand_over(service, node, training.hold, "samples", f"step-{step:06d}/{PICTURES}")
    return samples.keep_samples(
        service.deployment, node, training.hold, Show(step=step, files=(file, listed)), service.now_ms
    )


def test_the_training_nodes_own_pictures_are_results_as_they_come(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    assert shown(service, node, training, 10) == Done()
    assert set(pictures(service, training.job)) >= PICTURES_OF_10
    assert shown(service, node, training, 10) == Done()  # the answer was lost
    assert kinds(service, training.job).count("rendered") == 1
    release(service, node, training.hold)
    assert set(pictures(service, training.job)) >= PICTURES_OF_10


def test_what_was_not_uploaded_is_not_shown(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    file = File(path=f"step-000010/{PNG}", bytes=3, sha256="0" * 64)
    answer = samples.keep_samples(service.deployment, node, training.hold, Show(step=10, files=(file,)), service.now_ms)
    assert isinstance(answer, Refused)
    assert pictures(service, training.job) == []


def test_prompts_with_settings_of_their_own_come_to_the_node_as_they_were_sent_and_are_counted(
    service: Service,
) -> None:
    wide = {"prompt": "sks dog at sea", "negative_prompt": "blurry", "width": 832, "seeds": [42]}
    given = to_json(service.spec(sample_result=True)) | {"sample_prompts": ["sks dog", wide]}
    answer = service.ask("POST", "/v1/jobs", json={"spec": given, "name": "dog"})
    assert answer.status_code == 201, answer.text
    node = service.join()
    training = service.claim(node)
    assert training.spec["sample_prompts"] == ["sks dog", wide]
    assert len(previews_of(parse_task(training.spec))) == 2  # type: ignore[arg-type]
    assert report_result(service, node, training) == Done()
    rendering = service.claim(node)
    assert rendering.spec["of"]["sample_prompts"] == ["sks dog", wide]
    assert view(service, rendering.job).summary.steps == 2 * 3, "two seeds and one, with the LoRA and without"


def test_a_prompt_with_a_wrong_setting_is_refused_with_its_place(service: Service) -> None:
    given = to_json(service.spec()) | {"sample_prompts": [{"prompt": "sks dog", "width": 500}]}
    answer = service.ask("POST", "/v1/jobs", json={"spec": given, "name": "dog"})
    assert answer.status_code == 422
    assert answer.json()["problems"] == [
        {"field": "sample_prompts.0.width", "message": "should be a multiple of 8, not 500"}
    ]
