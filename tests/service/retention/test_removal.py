"""A job that its owner deletes: all that is its alone goes, what others use stays, and its bills stay."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase
from gangline.ports.server import Failed, Log, Succeeded
from gangline.service.access.projects import project as project_view
from gangline.service.attempts import LOST
from gangline.service.content import bases
from gangline.service.content.sweep import sweep_attempts
from gangline.service.controller import Controller
from gangline.service.jobs import query, renew, samples, steer
from gangline.service.jobs.finish import finish
from gangline.service.retention import removal
from tests.service.conftest import PROJECT, Before, Service
from tests.service.jobs.test_one_at_a_time import upload
from tests.service.jobs.test_samples import commit as commit_of
from tests.service.jobs.test_samples import rendered, train
from tests.service.retention.test_ages import blobs, stored
from tests.service.test_http import problem
from tests.service.test_rules import succeed

PROMPT = "zyx the dog of my neighbour"


def made(service: Service, **settings: Any) -> str:
    """A job that has ended with all that a job can leave: photo, checkpoint, pictures, log, result."""
    trainer, other = service.join("a"), service.join("b")
    photo = service.upload(b"its own photo", "own.png")
    training = train(service, trainer, prompt=PROMPT, photos=(photo,), **settings)
    commit_of(service, trainer, training, 10)
    renew.append_log(service.deployment, trainer, training.hold, Log(first_byte=0, text="step 10"), service.now_ms)
    rendered(service, other, service.claim(other))
    succeed(service, trainer, training.hold)
    return training.job


def remove(service: Service, job: str) -> dict[str, Any]:
    answer = service.ask("DELETE", f"/v1/jobs/{job}")
    assert answer.status_code == 200, answer.text
    return {each["kind"]: (each["files"], each["bytes"]) for each in answer.json()["kept"]}


def sweep(service: Service) -> None:
    service.wait(61)
    service.tick()


def test_a_job_goes_with_its_photos_weights_pictures_and_log(service: Service) -> None:
    job = made(service)
    answer = service.ask("GET", f"/v1/jobs/{job}/removal").json()
    what = {each["kind"]: (each["files"], each["bytes"]) for each in answer["kept"]}
    assert stored(service, "attempts"), "to ask deletes nothing"
    assert remove(service, job) == what
    assert {kind for kind, (files, _) in what.items() if files} == {
        "uploads",
        "checkpoints",
        "results",
        "previews",
        "logs",
    }
    assert what["uploads"] == (2, 20), "its photo and its base, which nothing else uses"
    assert stored(service, "attempts") == [], "at once"
    sweep(service)
    assert list(service.objects.list("")) == []


def test_nothing_that_its_owner_wrote_is_left_in_the_database(service: Service) -> None:
    job = made(service)
    finished = service.join("c")
    failing = service.submit(prompt=PROMPT, attempts_max=1)
    hold = service.claim(finished).hold
    finish(service.deployment, finished, hold, Failed(kind="crashed", because=f"no {PROMPT}.png"), service.now_ms)
    assert PROMPT in service.dump()
    remove(service, job)
    remove(service, failing)
    assert PROMPT not in service.dump()


def test_it_is_not_found_any_more_and_its_bills_are_as_they_were(service: Service) -> None:
    service.change_policy(storage_usd_per_gb_month=1e9)
    job = made(service)
    service.wait(3600)
    before = query.job(service.deployment, PROJECT, job, service.now_ms)
    spent = project_view(service.deployment, PROJECT)
    billed = before.summary.cost_usd + before.samples.cost_usd
    removal.remove(service.deployment, job, service.now_ms)
    for path in ("", "/events", "/logs", "/artifacts", "/metrics", "/checkpoints", "/removal"):
        problem(service.ask("GET", f"/v1/jobs/{job}{path}"), 404, "not-found")
    for path in ("cancel", "pause", "resume", "retry"):
        problem(service.ask("POST", f"/v1/jobs/{job}/{path}"), 404, "not-found")
    problem(service.ask("DELETE", f"/v1/jobs/{job}"), 404, "not-found")
    assert service.ask("GET", "/v1/jobs").json()["jobs"] == []
    assert project_view(service.deployment, PROJECT) == spent
    [ledger] = service.look("SELECT SUM(micro_usd) AS total FROM ledger WHERE job <> ''")
    assert abs(int(ledger["total"]) / 1e6 - billed) < 1e-5


def test_photos_that_another_job_uses_stay(service: Service) -> None:
    job = made(service)
    photo = service.store.load("blobs_of_job", job=job)
    other = service.submit()  # on the same base, with another photo
    assert remove(service, job)["uploads"] == (1, len(b"its own photo"))
    sweep(service)
    assert blobs(service) == [service.photo.sha256]
    steer.cancel(service.deployment, other, service.now_ms)
    assert remove(service, other)["uploads"] == (1, service.photo.bytes)
    sweep(service)
    assert (blobs(service), len(photo)) == ([], 2)


def test_a_base_with_a_name_stays(service: Service) -> None:
    job = made(service)
    base = FilesBase(files=(service.photo,))
    bases.add(service.deployment, PROJECT, "mine", base, None, bases.BaseStatement(), service.now_ms)
    assert remove(service, job)["uploads"][0] == 1
    sweep(service)
    assert blobs(service) == [service.photo.sha256]


def test_what_was_uploaded_again_a_moment_ago_is_about_to_be_used(service: Service) -> None:
    job = made(service)
    service.wait(60)
    service.upload(b"its own photo", "own.png")
    assert remove(service, job)["uploads"] == (1, service.photo.bytes)
    sweep(service)
    again = service.upload(b"its own photo", "own.png")
    service.submit(base=FilesBase(files=(again,)), photos=(again,))


@pytest.mark.parametrize("state", ["queued", "running", "paused"])
def test_what_has_not_ended_is_refused_with_what_to_do(service: Service, state: str) -> None:
    job = service.submit()
    if state == "running":
        service.claim(service.join())
    if state == "paused":
        steer.pause(service.deployment, job, service.now_ms)
    for method, path in (("GET", "/removal"), ("DELETE", "")):
        found = problem(service.ask(method, f"/v1/jobs/{job}{path}"), 422, "bad-input")
        assert f"{job} is {state}, and only a job that has ended can be deleted" in found["detail"]
        assert found["hint"] == f"cancel it first: gangline jobs cancel {job}"


def test_pictures_that_are_still_to_be_rendered_are_given_up_with_it(service: Service) -> None:
    trainer = service.join("a")
    training = train(service, trainer, sample_result=True)
    succeed(service, trainer, training.hold)
    sample = service.claim(trainer)
    remove(service, training.job)
    assert service.look("SELECT state FROM job WHERE kind = 'sample'") == [{"state": "canceled"}]
    assert service.look("SELECT * FROM lease") == []
    assert finish(service.deployment, trainer, sample.hold, Succeeded(output=()), service.now_ms) == LOST
    service.wait(2 * 3600)
    service.tick()
    assert stored(service, "attempts") == []


def test_a_result_that_is_rendered_once_more_in_this_moment_is_given_up_too(service: Service) -> None:
    trainer = service.join("a")
    training = train(service, trainer, sample_result=True)
    succeed(service, trainer, training.hold)
    [sample] = service.store.load("open_samples", parent=training.job)
    steer.cancel(service.deployment, sample["id"], service.now_ms)
    ended = service.store.load("job", id=sample["id"])[0]
    again: list[str] = []
    deployment = service.deployment

    def once_more() -> None:
        if not again:
            again.append(samples.retry_samples(deployment, ended, service.now_ms))

    service.deployment = _with(deployment, store=Before(deployment.store, "apply", once_more))
    removal.remove(service.deployment, training.job, service.now_ms)
    service.deployment = deployment
    states = service.look("SELECT state, removed_ms FROM job")
    assert {row["state"] for row in states} == {"succeeded", "canceled"}
    assert all(row["removed_ms"] for row in states)
    with pytest.raises(BadInput, match="was deleted"):
        samples.retry_samples(deployment, ended, service.now_ms)


def _with(deployment: Any, **changes: Any) -> Any:
    return replace(deployment, **changes)


def test_two_who_delete_at_once_delete_once(service: Service) -> None:
    service.change_policy(storage_usd_per_gb_month=1e9)
    job, deployment = made(service), service.deployment
    service.wait(3600)
    done: list[Any] = []

    def other() -> None:
        if not done:
            done.append(None)
            done.append(removal.remove(deployment, job, service.now_ms))

    first = removal.remove(_with(deployment, store=Before(deployment.store, "apply", other)), job, service.now_ms)
    assert first.kept[0].files == 0
    lines = service.look("SELECT attempt, from_ms FROM ledger WHERE cause = 'storage'")
    assert len(lines) == len({tuple(row.values()) for row in lines}) > 0


def test_a_checkpoint_that_goes_by_its_age_in_this_moment_is_billed_once(service: Service) -> None:
    service.change_policy(storage_usd_per_gb_month=1e9)
    job, deployment = made(service), service.deployment
    service.wait(2 * 86_400)
    ticked: list[bool] = []

    def tick() -> None:
        if not ticked:
            ticked.append(True)
            Controller(deployment).tick(service.now_ms)

    removal.remove(_with(deployment, store=Before(deployment.store, "apply", tick)), job, service.now_ms)
    [line] = service.look(
        "SELECT micro_usd, to_ms - from_ms AS lasted FROM ledger JOIN checkpoint ON checkpoint.attempt = ledger.attempt "
        "AND checkpoint.committed_ms = ledger.from_ms WHERE cause = 'storage' AND ledger.from_ms = committed_ms"
    )[:1]
    assert line["lasted"] == 2 * 86_400_000


def test_what_the_server_could_not_delete_is_swept(service: Service) -> None:
    """It ends after the transaction."""
    job, deployment = made(service), service.deployment

    def end() -> None:
        raise SystemExit

    dying = _with(deployment, objects=Before(deployment.objects, "delete", end))
    with pytest.raises(SystemExit):
        removal.remove(dying, job, service.now_ms)
    assert stored(service, "attempts")
    service.wait(2 * 3600)
    service.tick()
    assert list(service.objects.list("")) == []


def test_an_upload_that_comes_late_is_swept(service: Service) -> None:
    trainer = service.join("a")
    job = service.submit()
    hold = service.claim(trainer).hold
    upload(service, trainer, hold, 10)
    steer.cancel(service.deployment, job, service.now_ms)
    remove(service, job)
    assert stored(service, "attempts") == []
    service.wait(2 * 3600)
    sweep_attempts(service.deployment, service.now_ms)
    assert stored(service, "attempts") == []


def test_its_request_may_be_used_again(service: Service) -> None:
    headers = {"Authorization": "Bearer gl_operator_test", "Idempotency-Key": "k"}
    body = {"spec": to_json(service.spec())}
    first = service.http.post("/v1/jobs", json=body, headers=headers).json()["summary"]["id"]
    steer.cancel(service.deployment, first, service.now_ms)
    remove(service, first)
    sweep(service)
    service._keep_photo(PROJECT)
    second = service.http.post("/v1/jobs", json=body, headers=headers)
    assert second.status_code == 201
    assert second.json()["summary"]["id"] != first
