"""Promises 1 and 2 down to the bytes, on each object store: the folder, an S3 bucket, and one that can do nothing but store."""

import hashlib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_abilities import Abilities, find_abilities
from gangline.adapters.objects.s3_wire import S3Bucket, Wire
from gangline.compose.client import Client
from gangline.core.files import PART_BYTES, File, Grant
from gangline.core.jobs.keys import attempt_prefix, blob_key
from gangline.ports.objects import Objects
from gangline.ports.server import (
    Commit,
    Committed,
    Done,
    Downloads,
    Grants,
    Hold,
    Refused,
    Released,
    Succeeded,
    Uploads,
    Urls,
)
from gangline.service.jobs import checkpoint
from gangline.service.jobs.finish import finish
from gangline.service.jobs.verify import verify
from tests.conftest import as_upload
from tests.servers import Lesser, before, served
from tests.service.conftest import OPERATOR, POLICY, PROJECT, Service
from tests.service.jobs.test_one_at_a_time import commit, facts, result, upload

NONE = Abilities(**dict.fromkeys((field.name for field in fields(Abilities)), False))
LARGE = b"1" * PART_BYTES + b"the rest"


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Which engine it is makes no difference here."""
    return str(tmp_path / "db.sqlite")


@pytest.fixture
def lesser(bucket: S3Bucket, tmp_path: Path) -> Lesser:
    return Lesser(replace(bucket, prefix=tmp_path.name))


@pytest.fixture(params=["folder", "s3", "bare s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Objects]:
    if request.param == "folder":
        yield LocalObjects(tmp_path / "store", "secret")
        return
    if request.param == "a liar":
        with before(request.getfixturevalue("lesser")) as seen:
            wire = Wire(replace(seen, prefix=""))
            yield S3Objects(wire, find_abilities(wire))
        return
    wire = Wire(replace(request.getfixturevalue("bucket"), prefix=tmp_path.name))
    yield S3Objects(wire, find_abilities(wire) if request.param == "s3" else NONE)


def grant(service: Service, node: str, hold: Hold, step: int, content: bytes) -> Grant:
    file = as_upload(service.manifest(step, content).files[0], content)
    request = Uploads(folder="checkpoints", step=step, files=(file,))
    grants = checkpoint.sign_uploads(service.deployment, node, hold, request, service.now_ms)
    assert isinstance(grants, Grants)
    return grants.files[0]


def names(service: Service, job: str, hold: Hold) -> set[str]:
    """What lies below an attempt."""
    prefix = attempt_prefix(PROJECT, job, hold.attempt)
    return {key.removeprefix(f"{prefix}/") for key in service.objects.list(prefix)}


def read_back(service: Service) -> None:
    for _ in verify(service.deployment):
        pass


def test_a_large_checkpoint_comes_in_parts_and_the_next_attempt_gets_it_whole(service: Service) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    hold = service.claim(first).hold
    granted = grant(service, first, hold, 10, LARGE)
    assert len(granted.parts) == 2
    service.put(Grant(parts=granted.parts[:1]), LARGE)
    assert isinstance(commit(service, first, hold, 10, LARGE), Refused)
    rest = grant(service, first, hold, 10, LARGE)
    assert [part is None for part in rest.parts] == [True, False]
    service.put(rest, LARGE)
    assert commit(service, first, hold, 10, LARGE) == commit(service, first, hold, 10, LARGE) == Committed()
    assert grant(service, first, hold, 10, LARGE).parts == (None, None)
    read_back(service)
    assert service.store.load("checkpoints", job=job)[0]["verified"] == 1
    finish(service.deployment, first, hold, Released(), service.now_ms)
    new = service.claim(second)
    keys = Downloads(keys=tuple(file.key for file in new.resume[0].files))
    urls = checkpoint.sign_downloads(service.deployment, second, new.hold, keys, service.now_ms)
    assert isinstance(urls, Urls)
    assert service.send("GET", urls.urls[0]).content == LARGE


@pytest.mark.parametrize("late", [b"late weights", LARGE])
def test_urls_that_outlive_their_lease_touch_nothing_that_is_committed(service: Service, late: bytes) -> None:
    job, first, second = service.submit(), service.join("node-a"), service.join("node-b")
    old = service.claim(first).hold
    upload(service, first, old, 10, b"step 10")
    spent = grant(service, first, old, 20, late)
    assert commit(service, first, old, 10, b"step 10") == Committed()
    finish(service.deployment, first, old, Released(), service.now_ms)
    new = service.claim(second).hold
    upload(service, second, new, 20, b"good weights")
    assert commit(service, second, new, 20, b"good weights") == Committed()
    read_back(service)
    known, lies = facts(service, job), names(service, job, new)
    service.put(spent, late)
    assert commit(service, first, old, 20, late) != Committed()
    finish(service.deployment, first, old, Succeeded(output=service.manifest(20, late).files), service.now_ms)
    assert facts(service, job) == known and names(service, job, new) == lies
    for row, content in zip(service.store.load("checkpoints", job=job), (b"good weights", b"step 10"), strict=True):
        assert service.objects.read(f"{row['prefix']}/weights.safetensors") == content
    service.wait(POLICY.orphans_s + 1)
    service.tick()
    assert names(service, job, old) == {"checkpoints/000010/weights.safetensors"}
    prefix = attempt_prefix(PROJECT, job, old.attempt)
    assert service.objects.uploads(f"{prefix}/checkpoints/000020/weights.safetensors") == []


def test_who_has_lost_the_lease_makes_no_object_of_its_parts(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    service.put(grant(service, node, hold, 10, LARGE), LARGE)
    finish(service.deployment, node, hold, Released(), service.now_ms)
    newer = service.claim(node).hold
    for held in (hold, replace(newer, fencing=hold.fencing)):
        assert commit(service, node, held, 10, LARGE) != Committed()
    assert isinstance(commit(service, node, newer, 10, LARGE), Refused)
    assert names(service, job, hold) == names(service, job, newer) == set()


def test_a_url_used_again_after_the_commit_changes_no_byte(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    first = grant(service, node, hold, 10, b"weights")
    service.put(first, b"weights")
    assert commit(service, node, hold, 10) == Committed()
    for content in (b"weights", b"WEIGHTS", b"", b"longer than the weights"):
        signed = first.parts[0]
        assert signed is not None
        headers = signed.headers | {"Content-Length": str(len(content))}
        service.send("PUT", replace(signed, headers=headers), content)
    [row] = service.store.load("checkpoints", job=job)
    assert service.objects.read(f"{row['prefix']}/weights.safetensors") == b"weights"


def test_a_result_is_there_and_its_owner_gets_it(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    assert finish(service.deployment, node, hold, result(service, node, hold), service.now_ms) == Done()
    [artifact] = service.ask("GET", f"/v1/jobs/{job}/artifacts").json()
    with served(service.app) as url:
        found = next(iter(Client(url, OPERATOR).artifacts.list(job)))
        assert Client(url, OPERATOR).files.download(found, Path(service.database).parent).read_bytes() == b"result"
    assert artifact["bytes"] == len(b"result")


def test_photos_and_bases_of_any_length_are_uploaded_once(service: Service, tmp_path: Path) -> None:
    for name, content in {"empty": b"", "photo": b"a picture", "base": LARGE, "exact": LARGE[:PART_BYTES]}.items():
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in ("empty", "photo", "base", "exact")]
    with served(service.app) as url:
        for _ in range(2):
            handed = Client(url, OPERATOR).files.upload(paths, tmp_path)
    for path, file in zip(paths, handed, strict=True):
        assert service.objects.read(blob_key(PROJECT, file.sha256)) == path.read_bytes()
        assert service.store.load("blob", project=PROJECT, sha256=file.sha256)[0]["bytes"] == file.bytes


def test_what_a_user_began_to_upload_resumes_where_it_was(service: Service, tmp_path: Path) -> None:
    (tmp_path / "base").write_bytes(LARGE)
    file = as_upload(File(path="base", bytes=len(LARGE), sha256=hashlib.sha256(LARGE).hexdigest()), LARGE)
    body = {"sha256": file.sha256, "bytes": file.bytes, "parts": file.parts}
    offered = service.ask("POST", "/v1/blobs", json=body).json()["grant"]["parts"]
    granted = service.as_grant(offered)
    service.put(Grant(parts=granted.parts[:1]), LARGE)
    again = service.ask("POST", "/v1/blobs", json=body).json()["grant"]["parts"]
    assert [part is None for part in again] == [True, False]
    with served(service.app) as url:
        Client(url, OPERATOR).files.upload([tmp_path / "base"], tmp_path)
    assert service.objects.read_back(blob_key(PROJECT, file.sha256)) == file.sha256


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_a_wrong_number_of_parts_is_refused(service: Service, parts: int) -> None:
    sha256 = hashlib.sha256(LARGE).hexdigest()
    body = {"sha256": sha256, "bytes": len(LARGE), "parts": [sha256] * parts}
    answer = service.ask("POST", "/v1/blobs", json=body)
    assert answer.status_code == 422 and "parts" in answer.text
    assert service.ask("POST", "/v1/blobs", json=body | {"bytes": 5, "parts": [sha256]}).status_code == 422


# A store that refuses no wrong bytes and attests none


@pytest.mark.parametrize("objects", ["bare s3"], indirect=True)
def test_a_checkpoint_counts_as_verified_once_it_was_read_back(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    upload(service, node, hold, 10)
    assert commit(service, node, hold, 10) == Committed()
    assert service.store.load("checkpoints", job=job)[0]["verified"] == 0
    read_back(service)
    assert service.store.load("checkpoints", job=job)[0]["verified"] == 1


@pytest.mark.parametrize("objects", ["bare s3"], indirect=True)
def test_wrong_bytes_are_rejected_when_they_are_read_back_and_those_before_are_used(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    upload(service, node, hold, 10)
    assert commit(service, node, hold, 10) == Committed()
    service.put(grant(service, node, hold, 20, b"weights"), b"WEIGHTS")
    assert commit(service, node, hold, 20) == Committed()
    read_back(service)
    assert [row["step"] for row in service.store.load("checkpoints", job=job)] == [10]
    [event] = [row for row in service.store.load("events", job=job, after=0) if row["kind"] == "rejected"]
    assert event["because"].startswith("the checkpoint of step 20 is damaged: weights.safetensors")
    finish(service.deployment, node, hold, Released(), service.now_ms)
    assert [found.step for found in service.claim(node).resume] == [10]


# A store that tells of other bytes than it was given, or is away


@pytest.mark.parametrize("objects", ["a liar"], indirect=True)
@pytest.mark.parametrize(
    ("lie", "content"),
    [
        ("AAAA", b"weights"),
        ("uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=", b"weights"),
        ("no base64", b"weights"),
        ("uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=-2", LARGE),
    ],
)
def test_nothing_is_committed_on_a_lie_and_nothing_lost_once_the_truth_is_told(
    service: Service, lesser: Lesser, lie: str, content: bytes
) -> None:
    service.submit()
    node = service.join()
    hold = service.claim(node).hold
    service.put(grant(service, node, hold, 10, content), content)
    lesser.attests = lie
    refusal = commit(service, node, hold, 10, content)
    assert isinstance(refusal, Refused) and "does not match the manifest" in refusal.because
    lesser.attests = None
    assert commit(service, node, hold, 10, content) == Committed()


@pytest.mark.parametrize("objects", ["s3"], indirect=True)
def test_a_store_that_is_away_is_a_503_and_the_request_goes_through_when_it_is_back(
    service: Service, bucket: S3Bucket
) -> None:
    service.submit()
    joined = service.ask("POST", "/v1/nodes", "gl_join_test", json={"machine": "m", "name": "n"}).json()
    hold = service.ask("POST", "/v1/claims", joined["token"]).json()["hold"]
    node = joined["node"]
    upload(service, node, Hold(**hold), 10)
    here = service.deployment
    away = replace(here, objects=S3Objects(Wire(replace(bucket, endpoint="http://127.0.0.1:9")), NONE))
    service.app.state.deployment = away
    path = f"/v1/attempts/{hold['attempt']}/checkpoints?fencing={hold['fencing']}"
    body = {"manifest": Commit(manifest=service.manifest(10).to_json()).manifest}
    answer = service.ask("POST", path, joined["token"], json=body)
    assert answer.status_code == 503 and "does not answer" in answer.json()["detail"]
    service.app.state.deployment = here
    assert service.ask("POST", path, joined["token"], json=body).status_code == 200
