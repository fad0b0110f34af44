"""Promise 1: a job has at most one live attempt, and nothing a worker does after losing its lease changes anything."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gangline.core.files import PART_BYTES, Beginning, Beginnings
from gangline.core.runs.contract import Prepared
from gangline.core.runs.metrics import Point
from gangline.core.runs.prepared import embeddings_key
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import parse_spec
from gangline.core.views import JobView
from gangline.ports.server import (
    Assignment,
    Beat,
    Beaten,
    Commit,
    Committed,
    Done,
    Downloads,
    Failed,
    Hold,
    Keep,
    Log,
    Points,
    Refused,
    Reject,
    Released,
    Show,
    Stale,
    Succeeded,
    Uploads,
)
from gangline.service.content import prepared
from gangline.service.fleet.nodes import leave_pool
from gangline.service.jobs import checkpoint, metrics, query, renew, samples
from gangline.service.jobs.claim import claim
from gangline.service.jobs.finish import finish
from gangline.service.jobs.steer import cancel
from tests.conftest import as_upload
from tests.service.conftest import POLICY, PROJECT, Service

Answer = Any


def upload(service: Service, node: str, hold: Hold, step: int, content: bytes = b"weights") -> None:
    manifest = service.manifest(step, content)
    request = Uploads(folder="checkpoints", step=step, files=(as_upload(manifest.files[0], content),))
    grants = checkpoint.sign_uploads(service.deployment, node, hold, request, service.now_ms)
    assert not isinstance(grants, Stale)
    service.put(grants.files[0], content)


def commit(service: Service, node: str, hold: Hold, step: int, content: bytes = b"weights") -> Answer:
    request = Commit(manifest=service.manifest(step, content).to_json())
    return checkpoint.commit_checkpoint(service.deployment, node, hold, request, service.now_ms)


def view(service: Service, job: str) -> JobView:
    return query.job(service.deployment, PROJECT, job, service.now_ms)


def result(service: Service, node: str, hold: Hold, content: bytes = b"result") -> Succeeded:
    file = service.manifest(1, content).files[0]
    grants = checkpoint.sign_uploads(
        service.deployment, node, hold, Uploads(folder="output", files=(as_upload(file, b"weights"),)), service.now_ms
    )
    assert not isinstance(grants, Stale)
    service.put(grants.files[0], content)
    return Succeeded(output=(file,))


def writes(service: Service, node: str, old: Assignment) -> dict[str, Callable[[], Answer]]:
    """Everything that a worker can ask about an attempt."""
    at, hold = service.deployment, old.hold
    manifest = service.manifest(30)
    file = manifest.files[0]
    beginning = Beginning(path=file.path, bytes=PART_BYTES + 1, parts=(file.sha256,))
    return {
        "heartbeats": lambda: renew.renew(at, node, hold, Beat(phase="training", step=99), service.now_ms),
        "uploads": lambda: checkpoint.sign_uploads(
            at, node, hold, Uploads(folder="output", files=(as_upload(file, b"weights"),)), service.now_ms
        ),
        "beginnings": lambda: checkpoint.sign_beginnings(
            at, node, hold, Beginnings(step=30, files=(beginning,)), service.now_ms
        ),
        "downloads": lambda: checkpoint.sign_downloads(
            at, node, hold, Downloads(keys=(old.inputs[0].key,)), service.now_ms
        ),
        "checkpoints": lambda: commit(service, node, hold, 30),
        "samples": lambda: samples.keep_samples(at, node, hold, Show(step=30, files=(file,)), service.now_ms),
        "metrics": lambda: metrics.take(
            at, node, hold, Points(points=(Point(step=30, values={"loss": 0.5}),)), service.now_ms
        ),
        "prepared": lambda: prepared.record_prepared(
            at, node, hold, Keep(manifest=a_prepared(service, old)), service.now_ms
        ),
        "rejections": lambda: checkpoint.reject_damaged(
            at, node, hold, Reject(checkpoint="checkpoint-x", because="no"), service.now_ms
        ),
        "logs": lambda: renew.append_log(at, node, hold, Log(first_byte=0, text="late"), service.now_ms),
        "end, succeeded": lambda: finish(at, node, hold, Succeeded(output=(file,)), service.now_ms),
        "end, failed": lambda: finish(at, node, hold, Failed(kind="crashed", because="x"), service.now_ms),
        "end, released": lambda: finish(at, node, hold, Released(), service.now_ms),
    }


def a_prepared(service: Service, taken: Assignment) -> dict[str, Any]:
    """Of the job's own words; its file is not looked for where the lease is lost."""
    spec = parse_spec(taken.spec)
    assert isinstance(spec, LoraSpec)
    return Prepared(key=embeddings_key(spec, {}), files=service.manifest(30).files).to_json()


NAMES = [
    "heartbeats",
    "uploads",
    "beginnings",
    "downloads",
    "checkpoints",
    "samples",
    "metrics",
    "prepared",
    "rejections",
    "logs",
]
ENDS = ["end, succeeded", "end, failed", "end, released"]


def test_every_route_about_an_attempt_is_among_the_writes_that_are_tried(service: Service) -> None:
    routes = {
        path.rsplit("/", 1)[1] for path in service.http.get("/openapi.json").json()["paths"] if "/attempts/" in path
    }
    assert routes == set(NAMES) | {"end"}


def facts(service: Service, job: str) -> object:
    """All that users see of a job, its results and its bill."""
    found = view(service, job)
    return (
        found,
        query.events_after(service.deployment, PROJECT, job, 0),
        query.log_page(service.deployment, PROJECT, job, None),
        [row["id"] for row in service.store.load("checkpoints", job=job)],
        [artifact.sha256 for artifact in query.artifacts_of(service.deployment, PROJECT, job, service.now_ms)],
        metrics.metrics_after(service.deployment, PROJECT, job, 0),
        service.store.load("prepared_unused", before=service.now_ms + 1, limit=100),
    )


@pytest.mark.parametrize("ended", ["by time", "by cancel", "by its own finish"])
@pytest.mark.parametrize("what", NAMES + ENDS)
def test_a_stale_worker_changes_nothing(service: Service, what: str, ended: str) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    old = service.claim(first)
    upload(service, first, old.hold, 30)  # its bytes are there; nothing names them
    late = writes(service, first, old)[what]
    if ended == "by time":
        service.wait(POLICY.lease_s + 1)
        new = service.claim(second)
        assert new.hold.fencing == old.hold.fencing + 1
    elif ended == "by cancel":
        assert cancel(service.deployment, job, service.now_ms)
    else:
        done = result(service, first, old.hold)
        assert finish(service.deployment, first, old.hold, done, service.now_ms) == Done()
        if what == "end, succeeded":
            return  # the same end told twice is no news; see below
    before = facts(service, job)
    assert isinstance(late(), Stale)
    assert facts(service, job) == before


def test_a_late_upload_with_a_url_that_is_still_valid_changes_nothing(service: Service) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    old = service.claim(first)
    content = b"late weights"
    file = service.manifest(30, content).files[0]
    request = Uploads(folder="checkpoints", step=30, files=(as_upload(file, b"late weights"),))
    grants = checkpoint.sign_uploads(service.deployment, first, old.hold, request, service.now_ms)
    assert not isinstance(grants, Stale)
    service.wait(POLICY.lease_s + 1)
    new = service.claim(second)
    upload(service, second, new.hold, 30, b"good weights")
    assert commit(service, second, new.hold, 30, b"good weights") == Committed()
    before = facts(service, job)
    service.put(grants.files[0], content)
    assert facts(service, job) == before
    committed = service.store.load("checkpoints", job=job)[0]
    assert service.objects.read(f"{committed['prefix']}/weights.safetensors") == b"good weights"


def test_another_nodes_token_does_not_open_a_lease(service: Service) -> None:
    service.submit()
    first, stranger = service.join("node-a"), service.join("node-b")
    hold = service.claim(first).hold
    assert isinstance(
        renew.renew(service.deployment, stranger, hold, Beat(phase="training", step=1), service.now_ms), Stale
    )


def test_a_wrong_fencing_number_does_not_open_a_lease(service: Service) -> None:
    service.submit()
    node = service.join()
    hold = service.claim(node).hold
    wrong = Hold(attempt=hold.attempt, fencing=hold.fencing + 1)
    assert isinstance(
        renew.renew(service.deployment, node, wrong, Beat(phase="training", step=1), service.now_ms), Stale
    )


def test_an_overdue_lease_that_nobody_took_away_can_be_renewed(service: Service) -> None:
    service.submit()
    node = service.join()
    hold = service.claim(node).hold
    service.wait(POLICY.lease_s + 100)
    assert renew.renew(service.deployment, node, hold, Beat(phase="training", step=1), service.now_ms) == Beaten()
    service.tick()
    assert renew.renew(service.deployment, node, hold, Beat(phase="training", step=2), service.now_ms) == Beaten()


def test_many_nodes_at_once_get_distinct_jobs(service: Service) -> None:
    jobs = {service.submit() for _ in range(16)}
    nodes = [service.join(f"node-{n}") for n in range(16)]
    got: list[str] = []
    together = threading.Barrier(16)

    def ask(node: str) -> None:
        together.wait()
        answer = claim(service.deployment, node, service.now_ms)
        if isinstance(answer, Assignment):
            got.append(answer.job)

    threads = [threading.Thread(target=ask, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(jobs)


def test_a_node_never_holds_more_than_its_slots(service: Service) -> None:
    service.submit()
    service.submit()
    node = service.join()
    answers: list[object] = []
    together = threading.Barrier(4)

    def ask() -> None:
        together.wait()
        answers.append(claim(service.deployment, node, service.now_ms))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(answer, Assignment) for answer in answers) == 1


def test_an_interrupted_job_goes_before_a_fresh_one(service: Service) -> None:
    fresh_but_older = service.submit()
    interrupted = service.submit()
    first = service.join("node-a")
    assert service.claim(first).job == fresh_but_older
    second = service.join("node-b")
    assert service.claim(second).job == interrupted
    leave_pool(service.deployment, second, service.now_ms)
    newer = service.submit()
    third = service.join("node-c")
    assert service.claim(third).job == interrupted
    assert newer


def test_the_same_end_told_twice_is_no_surprise(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    done = result(service, node, hold)
    assert finish(service.deployment, node, hold, done, service.now_ms) == Done()
    before = facts(service, job)
    assert finish(service.deployment, node, hold, done, service.now_ms) == Done()
    assert facts(service, job) == before
    assert service.state(job) == "succeeded"


def test_an_end_without_its_files_is_refused_and_the_lease_stays(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    missing = service.manifest(1, b"never uploaded").files[0]
    assert isinstance(finish(service.deployment, node, hold, Succeeded(output=(missing,)), service.now_ms), Refused)
    assert service.state(job) == "running"
    assert renew.renew(service.deployment, node, hold, Beat(phase="uploading", step=100), service.now_ms) == Beaten()


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "released"])
def test_the_same_end_told_eight_times_at_once_is_one_end(service: Service, outcome: str) -> None:
    """As an agent does whose answers are lost."""
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    ends = {
        "succeeded": result(service, node, hold),
        "failed": Failed(kind="crashed", because="boom"),
        "released": Released(),
    }
    begin, answers = threading.Barrier(8), list[Answer]()

    def end() -> None:
        begin.wait()
        answers.append(finish(service.deployment, node, hold, ends[outcome], service.now_ms))

    threads = [threading.Thread(target=end) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [Done()] * 8
    assert [attempt["state"] for attempt in service.look("SELECT state FROM attempt")] == [outcome]
    told = service.look(f"SELECT COUNT(*) AS n FROM event WHERE kind = '{outcome}' AND job = '{job}'")
    assert told == [{"n": 1}]
    assert len(query.artifacts_of(service.deployment, PROJECT, job, service.now_ms)) == (outcome == "succeeded")
    late = Released() if outcome != "released" else Failed(kind="crashed", because="boom")
    assert isinstance(finish(service.deployment, node, hold, late, service.now_ms), Stale), "another end than it was"
