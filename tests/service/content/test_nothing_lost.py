"""Promise 2: a job never falls behind its last committed checkpoint; and every end has its bill."""

from dataclasses import replace

from gangline.ports.server import (
    Beat,
    Beaten,
    Commit,
    Committed,
    Done,
    Downloads,
    Failed,
    Refused,
    Reject,
    Released,
    Urls,
)
from gangline.service.content.sweep import sweep_attempts
from gangline.service.controller import Controller
from gangline.service.fleet import operating
from gangline.service.jobs import checkpoint, query, renew
from gangline.service.jobs.finish import finish
from gangline.service.jobs.steer import cancel
from tests.service.conftest import POLICY, PROJECT, Before, Service
from tests.service.jobs.test_one_at_a_time import commit, result, upload, view


def test_a_checkpoint_is_committed_when_its_bytes_are_there_and_not_before(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    assert isinstance(commit(service, node, hold, 10), Refused)
    assert view(service, job).summary.committed_step == 0
    upload(service, node, hold, 10)
    assert commit(service, node, hold, 10) == Committed()
    assert commit(service, node, hold, 10) == Committed()
    assert view(service, job).summary.committed_step == 10
    kinds = [event.kind for event in query.events_after(service.deployment, PROJECT, job, 0)]
    assert kinds == ["submitted", "claimed", "committed"]
    assert service.store.load("checkpoints", job=job)[0]["verified"] == 1


def refused(service: Service, manifest: dict[str, object]) -> str:
    service.submit()
    node = service.join()
    hold = service.claim(node).hold
    upload(service, node, hold, 10)
    answer = checkpoint.commit_checkpoint(service.deployment, node, hold, Commit(manifest=manifest), service.now_ms)
    assert isinstance(answer, Refused)
    return answer.because


def test_a_manifest_that_was_changed_is_refused(service: Service) -> None:
    assert "digest" in refused(service, service.manifest(10).to_json() | {"step": 11})


def test_garbage_for_a_manifest_is_refused(service: Service) -> None:
    assert "the manifest is malformed" in refused(service, {"files": 3})


def test_another_jobs_checkpoint_is_refused(service: Service) -> None:
    assert "another job" in refused(service, service.manifest(10, spec_hash="0" * 64).to_json())


def test_a_step_beyond_the_jobs_end_is_refused(service: Service) -> None:
    assert "not one of this job's 100" in refused(service, service.manifest(101).to_json())


def test_other_bytes_than_the_manifests_are_refused(service: Service) -> None:
    longer = service.manifest(10, b"longer weights than those that were uploaded")
    assert "does not match the manifest" in refused(service, longer.to_json())


def test_the_next_attempt_goes_on_from_the_newest_committed_step(service: Service) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    hold = service.claim(first).hold
    for step in (10, 20):
        upload(service, first, hold, step, b"step %d" % step)
        assert commit(service, first, hold, step, b"step %d" % step) == Committed()
    upload(service, first, hold, 30, b"step 30")  # uploaded, never committed
    renew.renew(service.deployment, first, hold, Beat(phase="training", step=33, loss=0.1), service.now_ms)
    service.wait(POLICY.lease_s + 1)
    new = service.claim(second)
    assert [resumable.step for resumable in new.resume] == [20, 10]
    found = view(service, job)
    assert (found.attempts[1].from_step, found.steps_redone) == (20, 13)
    keys = tuple(file.key for file in new.resume[0].files)
    urls = checkpoint.sign_downloads(service.deployment, second, new.hold, Downloads(keys=keys), service.now_ms)
    assert isinstance(urls, Urls)
    assert service.http.get(urls.urls[0].url).content == b"step 20"


def test_a_damaged_checkpoint_is_rejected_and_the_one_before_is_used(service: Service) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    hold = service.claim(first).hold
    for step in (10, 20):
        upload(service, first, hold, step, b"step %d" % step)
        commit(service, first, hold, step, b"step %d" % step)
    finish(service.deployment, first, hold, Released(), service.now_ms)
    new = service.claim(second)
    request = Reject(checkpoint=new.resume[0].id, because="a bit flipped")
    assert checkpoint.reject_damaged(service.deployment, second, new.hold, request, service.now_ms) == Done()
    assert checkpoint.reject_damaged(service.deployment, second, new.hold, request, service.now_ms) == Done()
    found = view(service, job)
    assert (found.summary.committed_step, found.attempts[1].from_step) == (10, 10)
    rejected = [event for event in query.events_after(service.deployment, PROJECT, job, 0) if event.kind == "rejected"]
    assert [event.because for event in rejected] == ["a bit flipped"]


def test_what_is_rejected_while_its_attempt_is_swept_goes_with_the_next_sweep(service: Service) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    hold = service.claim(first).hold
    upload(service, first, hold, 10)
    commit(service, first, hold, 10)
    (prefix,) = (row["prefix"] for row in service.store.load("checkpoints", job=job))
    finish(service.deployment, first, hold, Released(), service.now_ms)
    service.wait(service.deployment.policy.orphans_s + 1)
    new = service.claim(second)
    request = Reject(checkpoint=new.resume[0].id, because="a bit flipped")

    def reject() -> None:
        assert checkpoint.reject_damaged(service.deployment, second, new.hold, request, service.now_ms) == Done()

    sweep_attempts(replace(service.deployment, objects=Before(service.objects, "delete", reject)), service.now_ms)
    assert service.objects.stat(f"{prefix}/weights.safetensors") is not None
    sweep_attempts(service.deployment, service.now_ms)
    assert service.objects.stat(f"{prefix}/weights.safetensors") is None


def test_a_node_reads_only_what_belongs_to_its_job(service: Service) -> None:
    service.submit()
    node = service.join()
    hold = service.claim(node).hold
    stranger = Downloads(keys=("projects/default/jobs/other/attempts/x/output/w",))
    assert isinstance(checkpoint.sign_downloads(service.deployment, node, hold, stranger, service.now_ms), Refused)


def test_old_checkpoints_go_and_two_are_kept(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    for step in (10, 20, 30, 40):
        upload(service, node, hold, step, b"step %d" % step)
        commit(service, node, hold, step, b"step %d" % step)
    service.tick()
    left = service.store.load("checkpoints", job=job)
    assert [row["step"] for row in left] == [40, 30]
    prefix = left[0]["prefix"].rsplit("/", 1)[0]
    assert service.objects.stat(f"{prefix}/000040/weights.safetensors") is not None
    assert service.objects.stat(f"{prefix}/000020/weights.safetensors") is None


def test_after_an_outage_of_our_own_the_holder_keeps_its_job(service: Service) -> None:
    from dataclasses import replace

    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    service.wait(600)
    back = replace(service.deployment, up_since_ms=service.now_ms)
    service.wait(POLICY.lease_s - 1)
    Controller(back).tick(service.now_ms)
    assert renew.renew(back, node, hold, Beat(phase="training", step=1), service.now_ms) == Beaten()
    assert service.state(job) == "running"


def test_a_job_that_fails_too_often_ends_and_says_why(service: Service) -> None:
    job = service.submit(attempts_max=2)
    for name in ("node-a", "node-b"):
        node = service.join(name)
        service.wait(POLICY.retry_first_s)
        hold = service.claim(node).hold
        finish(service.deployment, node, hold, Failed(kind="crashed", because="exit code 1"), service.now_ms)
    found = view(service, job).summary
    assert found.state == "failed"
    assert found.because == "the trainer crashed: exit code 1 (the job has failed twice, which is its limit)"


def test_bad_input_ends_a_job_once_a_second_machine_says_so(service: Service) -> None:
    job = service.submit()
    for name, state in (("node-a", "queued"), ("node-b", "failed")):
        node = service.join(name)
        hold = service.claim(node).hold
        finish(service.deployment, node, hold, Failed(kind="bad data", because="a.png is not an image"), service.now_ms)
        assert service.state(job) == state
    assert view(service, job).summary.because == "the input is bad: a.png is not an image (so says a second machine)"


def test_a_canceled_job_is_not_revived(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    done = result(service, node, hold)
    assert cancel(service.deployment, job, service.now_ms)
    finish(service.deployment, node, hold, done, service.now_ms)
    assert service.state(job) == "canceled"
    assert not cancel(service.deployment, job, service.now_ms)
    assert query.artifacts_of(service.deployment, PROJECT, job, service.now_ms) == []


def test_a_queued_job_can_be_canceled(service: Service) -> None:
    job = service.submit()
    assert cancel(service.deployment, job, service.now_ms)
    assert service.claim_nothing(service.join()) == "no waiting job may run on this node"


def test_each_attempt_costs_its_time_on_the_node(service: Service) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    hold = service.claim(first).hold
    service.wait(20)
    renew.renew(service.deployment, first, hold, Beat(phase="training", step=1), service.now_ms)
    assert view(service, job).summary.cost_usd == 0.002  # while it runs: 20 s at 100 micro-dollars a second
    finish(service.deployment, first, hold, Released(), service.now_ms)
    service.wait(1000)  # nobody pays for a job that waits
    hold = service.claim(second).hold
    service.wait(10)
    done = result(service, second, hold)
    finish(service.deployment, second, hold, done, service.now_ms)
    service.wait(1000)
    found = view(service, job)
    assert [attempt.cost_usd for attempt in found.attempts] == [0.002, 0.001]
    assert found.summary.cost_usd == 0.003


def test_a_silent_node_is_given_up_and_its_token_with_it(service: Service) -> None:
    node = service.join()
    service.claim_nothing(node)
    service.wait(POLICY.node_silent_s + 1)
    service.tick()
    assert operating.nodes(service.deployment, None, service.now_ms) == []
