"""What ended jobs keep goes by its age, once, and is never what a live job needs."""

from typing import Any

import pytest

from gangline.core.errors import BadInput, Unreachable
from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase
from gangline.ports.server import Hold, Log
from gangline.service.content import bases
from gangline.service.content.blobs import delete_given_up, giving_up
from gangline.service.jobs import query, renew, steer
from gangline.service.jobs.submit import blob_here, submit
from gangline.service.retention import storage
from tests.service.conftest import PROJECT, Service
from tests.service.jobs.test_one_at_a_time import commit, upload
from tests.service.jobs.test_samples import commit as commit_of
from tests.service.jobs.test_samples import pictures, rendered, train
from tests.service.test_rules import succeed

DAY_S = 86_400
UNUSED = {"before": 2**62, "limit": 1}


def trained(service: Service, *steps: int, log: bytes = b"") -> tuple[str, str, Hold]:
    """A job at work, with checkpoints of these steps."""
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    for step in steps:
        upload(service, node, hold, step, b"step %d" % step)
        commit(service, node, hold, step, b"step %d" % step)
    if log:
        renew.append_log(service.deployment, node, hold, Log(first_byte=0, text=log.decode()), service.now_ms)
    return job, node, hold


def after(service: Service, days: float) -> None:
    """Long enough later, with what the service does of itself, twice: what is forgotten first, is deleted then."""
    service.wait(days * DAY_S)
    service.tick()
    service.wait(61)
    service.tick()


def stored(service: Service, part: str) -> list[str]:
    return [key for key in service.objects.list("") if f"/{part}/" in key]


def steps(service: Service, job: str) -> list[int]:
    return [row["step"] for row in service.store.load("checkpoints", job=job)]


def told(service: Service, job: str) -> list[str]:
    return [
        event.because for event in query.events_after(service.deployment, PROJECT, job, 0) if event.kind == "cleaned up"
    ]


def test_a_day_after_a_success_its_checkpoints_go_and_its_weights_stay(service: Service) -> None:
    job, node, hold = trained(service, 10, 20)
    succeed(service, node, hold)
    after(service, 0.9)
    assert steps(service, job) == [20, 10]
    after(service, 0.2)
    assert (steps(service, job), stored(service, "checkpoints")) == ([], [])
    assert len(stored(service, "output")) == len(service.store.load("artifacts", job=job)) > 0
    assert told(service, job) == ["2 checkpoints were deleted: the job succeeded more than 1 day ago"]
    assert query.job(service.deployment, PROJECT, job, service.now_ms).summary.committed_step == 20


def test_a_week_after_any_other_end_they_go(service: Service) -> None:
    job, _, _ = trained(service, 10)
    steer.cancel(service.deployment, job, service.now_ms)
    after(service, 6.9)
    assert steps(service, job) == [10]
    after(service, 0.2)
    assert (steps(service, job), stored(service, "checkpoints")) == ([], [])


def test_a_job_that_runs_waits_or_is_paused_keeps_them_whatever_their_age(service: Service) -> None:
    job, _node, _hold = trained(service, 10, 20)
    steer.pause(service.deployment, job, service.now_ms)
    after(service, 400)
    assert steps(service, job) == [20, 10]
    assert len(stored(service, "checkpoints")) == 2
    steer.resume(service.deployment, job, service.now_ms)
    assert [found.step for found in service.claim(service.join("b")).resume] == [20, 10]


def test_what_is_pinned_stays_until_it_is_unpinned(service: Service) -> None:
    job, node, hold = trained(service, 10, 20)
    assert service.ask("PUT", f"/v1/jobs/{job}/checkpoints/10/pin").status_code == 200
    upload(service, node, hold, 30, b"step 30")
    commit(service, node, hold, 30, b"step 30")
    upload(service, node, hold, 40, b"step 40")
    commit(service, node, hold, 40, b"step 40")
    assert steps(service, job) == [40, 30, 10], "no newer one takes its place"
    succeed(service, node, hold)
    after(service, 30)
    assert steps(service, job) == [10]
    [found] = service.ask("GET", f"/v1/jobs/{job}/checkpoints").json()
    assert (found["step"], found["pinned"], found["goes_ms"]) == (10, True, None)
    [found] = service.ask("DELETE", f"/v1/jobs/{job}/checkpoints/10/pin").json()
    assert found["goes_ms"] < service.now_ms
    after(service, 0)
    service.wait(600)
    after(service, 0)
    assert steps(service, job) == []


def test_only_what_is_kept_can_be_pinned(service: Service) -> None:
    job, _, _ = trained(service, 10)
    answer = service.ask("PUT", f"/v1/jobs/{job}/checkpoints/11/pin")
    assert (answer.status_code, "keeps no checkpoint of step 11" in answer.text) == (404, True)
    assert "these steps: 10" in answer.json()["hint"]


def test_a_checkpoint_that_is_still_to_be_shown_stays(service: Service) -> None:
    service.change_policy(samples_wait_s=10 * DAY_S)
    trainer, _other = service.join("a"), service.join("b")
    training = train(service, trainer)
    commit_of(service, trainer, training, 10)
    succeed(service, trainer, training.hold)
    after(service, 2)
    assert steps(service, training.job) == [10]
    [sample] = service.store.load("open_samples", parent=training.job)
    steer.cancel(service.deployment, sample["id"], service.now_ms)
    service.wait(600)
    after(service, 0)
    assert steps(service, training.job) == []


def test_each_is_billed_until_it_goes_and_once(service: Service) -> None:
    service.change_policy(storage_usd_per_gb_month=1e6)
    _job, node, hold = trained(service, 10)
    succeed(service, node, hold)
    after(service, 2)
    before = service.look("SELECT * FROM ledger WHERE cause = 'storage'")
    after(service, 2)
    assert service.look("SELECT * FROM ledger WHERE cause = 'storage'") == before != []
    assert before[0]["to_ms"] - before[0]["from_ms"] == 2 * DAY_S * 1000


def test_logs_and_pictures_of_steps_have_an_age_and_pictures_of_the_result_stay(service: Service) -> None:
    trainer, other = service.join("a"), service.join("b")
    training = train(service, trainer)
    commit_of(service, trainer, training, 10)
    renew.append_log(service.deployment, trainer, training.hold, Log(first_byte=0, text="step 10"), service.now_ms)
    sample = service.claim(other)
    rendered(service, other, sample)
    succeed(service, trainer, training.hold)
    after(service, 89)
    assert [len(stored(service, part)) for part in ("logs", "attempts")] == [1, 3]
    after(service, 2)
    assert stored(service, "logs") == []
    paths = [row["path"] for row in service.store.load("artifacts", job=training.job)]
    assert paths
    assert not any(path.startswith("samples/step-") for path in paths)
    assert told(service, training.job)[1:] == [
        "the log was deleted: the job succeeded more than 90 days ago",
        "the pictures of its steps were deleted: the job succeeded more than 90 days ago",
    ]
    assert query.log_page(service.deployment, PROJECT, training.job, None).text == ""
    after(service, 90)
    assert len(told(service, training.job)) == 3, "each once"
    assert len(stored(service, "output")) == 1


def test_pictures_that_come_long_after_the_end_are_shown_as_long_as_all_others(service: Service) -> None:
    service.change_policy(previews_s=600)
    trainer, other = service.join("a"), service.join("b")
    training = train(service, trainer)
    commit_of(service, trainer, training, 10)
    succeed(service, trainer, training.hold)
    service.wait(900)
    rendered(service, other, service.claim(other))
    [shown] = [kind for kind in storage.storage_view(service.deployment, PROJECT).kinds if kind.kind == "previews"]
    assert shown.next_ms == service.now_ms + 600_000
    service.tick()
    service.wait(500)
    service.tick()
    assert len(pictures(service, training.job)) == 1
    service.wait(200)
    service.tick()
    assert pictures(service, training.job) == []


# Uploaded files


def blobs(service: Service) -> list[str]:
    return [key.rsplit("/", 1)[1] for key in stored(service, "blobs")]


def upload_photo(service: Service, content: bytes) -> Any:
    return service.upload(content, f"{content.decode()}.png")


def test_what_no_job_uses_goes_after_a_while(service: Service) -> None:
    used, unused = upload_photo(service, b"used"), upload_photo(service, b"unused")
    job = service.submit(photos=(used,))
    after(service, 31)
    assert unused.sha256 not in blobs(service)
    assert {used.sha256, service.photo.sha256} <= set(blobs(service)), "of a job that waits"
    steer.cancel(service.deployment, job, service.now_ms)
    after(service, 29)
    assert used.sha256 in blobs(service)
    after(service, 2)
    assert blobs(service) == []
    assert service.look("SELECT * FROM blob") == []


def test_a_retry_brings_its_files_a_longer_life_and_says_when_they_are_gone(service: Service) -> None:
    job = service.submit()
    steer.cancel(service.deployment, job, service.now_ms)
    after(service, 29)
    again = steer.submit_again(service.deployment, PROJECT, job, service.now_ms)
    steer.cancel(service.deployment, again, service.now_ms)
    after(service, 29)
    assert blobs(service) == [service.photo.sha256]
    after(service, 2)
    with pytest.raises(BadInput, match="not in the object store") as found:
        steer.submit_again(service.deployment, PROJECT, job, service.now_ms)
    assert "deleted after a while" in found.value.hint


def test_what_is_uploaded_again_starts_over(service: Service) -> None:
    photo = upload_photo(service, b"again")
    after(service, 29)
    assert blob_here(service.deployment, PROJECT, photo.sha256, photo.bytes, service.now_ms).present
    after(service, 29)
    assert photo.sha256 in blobs(service)


def test_files_of_a_base_with_a_name_stay(service: Service) -> None:
    file = service.upload(b"weights", "model.safetensors")
    bases.add(
        service.deployment, PROJECT, "mine", FilesBase(files=(file,)), None, bases.BaseStatement(), service.now_ms
    )
    after(service, 400)
    assert blobs(service) == [file.sha256]
    bases.forget(service.deployment, PROJECT, "mine")
    after(service, 1)
    assert blobs(service) == []


def test_another_projects_use_keeps_nothing_here(service: Service) -> None:
    other = service.add_project("other")
    service.submit(other)
    after(service, 31)
    assert [key.split("/")[1] for key in stored(service, "blobs")] == [other]


def test_while_one_is_being_deleted_it_is_neither_uploaded_nor_named(service: Service) -> None:
    service.store.apply(giving_up(PROJECT, service.store.load("blobs_unused", **UNUSED)[0], service.now_ms))
    with pytest.raises(Unreachable, match="being deleted"):
        blob_here(service.deployment, PROJECT, service.photo.sha256, service.photo.bytes, service.now_ms)
    with pytest.raises(BadInput, match="not in the object store"):
        service.submit()
    delete_given_up(service.deployment, service.now_ms)
    assert not blob_here(service.deployment, PROJECT, service.photo.sha256, service.photo.bytes, service.now_ms).present
    again = upload_photo(service, b"a photo")
    assert blobs(service) == [again.sha256]
    service.submit()


def test_what_was_submitted_by_a_server_that_lists_nothing_is_listed_before_anything_goes(service: Service) -> None:
    job = service.submit()
    service.execute("DELETE FROM job_file", "UPDATE job SET listed = 0")
    after(service, 31)
    assert blobs(service) == [service.photo.sha256]
    assert service.look("SELECT job FROM job_file") == [{"job": job}]
    service.wait(600)
    after(service, 1)
    assert blobs(service) == [service.photo.sha256]


def test_the_same_request_gives_the_same_job_and_another_spec_is_refused(service: Service) -> None:
    value: dict[str, object] = to_json(service.spec())
    first = submit(service.deployment, PROJECT, value, name="", request="r", now_ms=service.now_ms)
    assert submit(service.deployment, PROJECT, value, name="", request="r", now_ms=service.now_ms) == first
    with pytest.raises(BadInput, match="another spec"):
        submit(service.deployment, PROJECT, {**value, "seed": 5}, name="", request="r", now_ms=service.now_ms)
