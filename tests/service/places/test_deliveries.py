"""Results go to a bucket or to the hub after a job's success, as often as it takes, and never at the cost of the job."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.adapters.places.bucket import BucketKey, SourceBucket
from gangline.adapters.places.deliverer import PlacesDeliverer
from gangline.compose.places import make_deliverer
from gangline.core.errors import BadInput, Unreachable
from gangline.core.jobs.retry import PAUSE_S_FIRST
from gangline.core.server.settings import ServerSettings, merge_file
from gangline.service.content.deliver import PICTURES_S, TURN_S, deliver
from gangline.service.deployment import Deployment
from gangline.service.jobs import steer
from gangline.service.jobs.submit import submit
from gangline.service.retention.removal import remove
from tests.hub_commits import CommitHub, commit_hub
from tests.servers import ACCESS_KEY, SECRET_KEY
from tests.service.conftest import PROJECT, Service
from tests.service.test_rules import succeed

TOKEN = "hf_test"
SETTINGS = """
[sources.results]
place = "s3://gangline/results/"
projects = ["default"]
deliver = true
key_env = "RESULTS_KEY"
secret_env = "RESULTS_SECRET"
endpoint = "{endpoint}"

[sources.hub]
place = "hf://kennel/"
projects = ["default"]
deliver = true
key_env = "HUB_TOKEN"
endpoint = "{hub}"

[sources.photos]
place = "s3://gangline/photos/"
projects = ["default"]
"""


class Shelf:
    """A bucket in memory; `before` may raise."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.before: Any = lambda key: None

    def put(self, key: str, content: Any) -> None:
        self.puts.append(key)
        self.before(key)
        self.objects[key] = b"".join(content)


@pytest.fixture
def hub() -> Iterator[CommitHub]:
    with commit_hub(TOKEN) as hub:
        yield hub


@pytest.fixture
def shelf(service: Service) -> Shelf:
    shelf, settings = (
        Shelf(),
        merge_file(ServerSettings, SETTINGS.format(endpoint="http://x", hub=""), "gangline.toml").settings,
    )
    sources = {name: source.named(name) for name, source in settings.sources.items()}
    deliverer = PlacesDeliverer(sources, lambda source, name: shelf, lambda source, repo: pytest.fail("no hub"))
    service.deployment = replace(service.deployment, deliverer=deliverer)
    service.app.state.deployment = service.deployment
    return shelf


def ask(service: Service, address: str, **settings: Any) -> str:
    return service.submit(deliver=address, **settings)


def train(service: Service, job: str) -> None:
    node = service.join()
    assignment = service.claim(node)
    assert assignment.job == job
    succeed(service, node, assignment.hold)


def deliver_all(deployment: Deployment) -> None:
    for _ in deliver(deployment):
        pass


def shown(service: Service, job: str) -> dict[str, Any]:
    return service.ask("GET", f"/v1/jobs/{job}").json()["delivery"]


def kinds(service: Service, job: str) -> list[str]:
    return [event["kind"] for event in service.ask("GET", f"/v1/jobs/{job}/events").json()]


def test_results_are_copied_after_success(service: Service, shelf: Shelf) -> None:
    job = ask(service, "s3://gangline/results/timber/")
    deliver_all(service.deployment)
    assert shown(service, job)["state"] == "waiting" and shelf.objects == {}
    train(service, job)
    deliver_all(service.deployment)
    assert shelf.objects == {"results/timber/weights.safetensors": b"result"}
    assert shown(service, job) == {
        "to": "s3://gangline/results/timber/",
        "state": "delivered",
        "because": "",
        "files": 1,
    }
    assert kinds(service, job)[-2:] == ["succeeded", "delivered"]
    deliver_all(service.deployment)
    assert len(shelf.puts) == 1


def test_a_job_that_asks_for_none_has_none(service: Service, shelf: Shelf) -> None:
    job = service.submit()
    train(service, job)
    deliver_all(service.deployment)
    assert shown(service, job) is None and service.look("SELECT * FROM delivery") == []


def test_where_it_goes_changes_no_result(service: Service, shelf: Shelf) -> None:
    jobs = [ask(service, "s3://gangline/results/a/"), service.submit()]
    assert len({service.store.load("job", id=job)[0]["spec_hash"] for job in jobs}) == 1


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://gangline/elsewhere/", "has no source for s3://gangline/elsewhere/"),
        ("s3://gangline/photos/", "results may not be delivered to s3://gangline/photos/"),
        ("hf://another/timber", "has no source for hf://another/timber"),
        ("/tmp/results", "is not a place for results"),
    ],
)
def test_a_place_that_the_operator_did_not_open_is_refused_at_once(
    service: Service, shelf: Shelf, address: str, said: str
) -> None:
    body = {"base": {"source": "hub", "repo": "a/b", "revision": "c" * 40}, "prompt": "sks dog", "deliver": address}
    photo = {"path": "a.png", "bytes": 7, "sha256": service.photo.sha256}
    with pytest.raises(BadInput, match=said):
        submit(service.deployment, PROJECT, body | {"photos": [photo]}, name="", request=None, now_ms=service.now_ms)
    assert service.look("SELECT * FROM job") == []


def test_a_server_that_delivers_nothing_says_so(service: Service) -> None:
    with pytest.raises(BadInput, match="this server delivers no results"):
        ask(service, "s3://gangline/results/")


def test_what_may_pass_is_tried_again_later_each_time_and_only_what_is_missing(service: Service, shelf: Shelf) -> None:
    job = ask(service, "s3://gangline/results/timber/")
    train(service, job)

    def away(key: str) -> None:
        raise Unreachable("the bucket does not answer")

    shelf.before = away
    deliver_all(service.deployment)
    found = shown(service, job)
    assert (found["state"], found["because"]) == ("waiting", "the bucket does not answer")
    deliver_all(service.deployment)
    assert len(shelf.puts) == 1, "not before its time"
    shelf.before = lambda key: None
    service.wait(PAUSE_S_FIRST + 1)
    deliver_all(service.deployment)
    assert shown(service, job)["state"] == "delivered" and len(shelf.puts) == 2


@pytest.mark.parametrize("error", [BadInput("the key may not write there"), Unreachable("the bucket does not answer")])
def test_what_does_not_pass_fails_the_delivery_and_not_the_job(
    service: Service, shelf: Shelf, error: Exception
) -> None:
    job = ask(service, "s3://gangline/results/timber/")
    train(service, job)

    def refuse(key: str) -> None:
        raise error

    shelf.before = refuse
    for _ in range(service.deployment.fetching.tries_max + 1):
        deliver_all(service.deployment)
        service.wait(1000)
    assert service.state(job) == "succeeded" and shown(service, job)["state"] == "failed"
    assert kinds(service, job)[-1] == "not delivered"
    said = service.ask("GET", f"/v1/jobs/{job}/events").json()[-1]["because"]
    assert said.startswith("the results could not be delivered to s3://gangline/results/timber/: the ")


def test_pictures_of_the_result_follow(service: Service, shelf: Shelf) -> None:
    job = ask(service, "s3://gangline/results/timber/", sample_result=True)
    node = service.join()
    training = service.claim(node)
    succeed(service, node, training.hold)
    deliver_all(service.deployment)
    assert shown(service, job)["state"] == "waiting" and len(shelf.objects) == 1
    rendering = service.claim(node)
    steer.cancel(service.deployment, rendering.job, service.now_ms)
    service.wait(PICTURES_S + 1)
    deliver_all(service.deployment)
    assert shown(service, job)["state"] == "delivered"
    assert len(shelf.puts) == 1, "what is there is not sent again"


def test_of_several_servers_one_delivers_and_another_goes_on(service: Service, shelf: Shelf) -> None:
    job = ask(service, "s3://gangline/results/timber/")
    train(service, job)
    other = replace(service.deployment, server="other")
    first = deliver(service.deployment)
    next(first)
    deliver_all(other)
    assert len(shelf.puts) == 1
    service.wait(TURN_S + 1)
    deliver_all(other)
    assert shown(service, job)["state"] == "delivered" and len(shelf.puts) == 1
    before = service.look("SELECT * FROM event")
    assert list(first) == [] and service.look("SELECT * FROM event") == before


@pytest.mark.parametrize("end", ["canceled", "removed"])
def test_a_job_that_did_not_succeed_delivers_nothing(service: Service, shelf: Shelf, end: str) -> None:
    job = ask(service, "s3://gangline/results/timber/")
    steer.cancel(service.deployment, job, service.now_ms)
    if end == "removed":
        remove(service.deployment, job, service.now_ms)
        assert service.look("SELECT * FROM delivery") == []
    deliver_all(service.deployment)
    assert shelf.puts == []
    if end == "canceled":
        found = shown(service, job)
        assert (found["state"], found["because"]) == ("dropped", "its job is canceled")


# With a real S3 server, and a stub of the hub's commit API


@pytest.fixture
def real(service: Service, bucket: S3Bucket, hub: CommitHub, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setenv("RESULTS_KEY", ACCESS_KEY)
    monkeypatch.setenv("RESULTS_SECRET", SECRET_KEY)
    monkeypatch.setenv("HUB_TOKEN", f"{TOKEN}\n")
    settings = merge_file(
        ServerSettings, SETTINGS.format(endpoint=bucket.endpoint, hub=hub.url), "gangline.toml"
    ).settings
    service.deployment = replace(service.deployment, deliverer=make_deliverer(settings))
    service.app.state.deployment = service.deployment
    return service


def test_results_arrive_in_a_bucket(real: Service, bucket: S3Bucket, tmp_path: Path) -> None:
    job = ask(real, "s3://gangline/results/rex")
    train(real, job)
    deliver_all(real.deployment)
    assert shown(real, job)["state"] == "delivered", shown(real, job)
    there = SourceBucket(bucket.name, BucketKey(access=ACCESS_KEY, secret=SECRET_KEY, endpoint=bucket.endpoint))
    there.fetch("results/rex/weights.safetensors", tmp_path / "w", bytes_max=1000, seconds=20, check=lambda: None)
    assert (tmp_path / "w").read_bytes() == b"result"


def test_results_arrive_on_the_hub_in_one_commit(real: Service, hub: CommitHub) -> None:
    job = ask(real, "hf://kennel/timber")
    node = real.join()
    assignment = real.claim(node)
    succeed(real, node, assignment.hold)
    deliver_all(real.deployment)
    assert shown(real, job)["state"] == "delivered", shown(real, job)
    assert hub.repos == {"kennel/timber": {"weights.safetensors": b"result"}} and hub.private == {"kennel/timber": True}
    assert hub.verified == [hashlib.sha256(b"result").hexdigest()]
    assert [line["key"] for line in hub.commits[0]] == ["header", "lfsFile"]
    again = ask(real, "hf://kennel/timber", seed=7)
    train(real, again)
    deliver_all(real.deployment)
    assert shown(real, again)["state"] == "delivered" and len(hub.verified) == 1, "the bytes are there already"


@pytest.mark.parametrize(("status", "state"), [(503, "waiting"), (429, "waiting"), (403, "failed"), (400, "failed")])
@pytest.mark.parametrize("path", ["/api/repos/create", "/preupload/", "/objects/batch", "/commit/"])
def test_what_the_hub_answers_is_told_without_its_token(
    real: Service, hub: CommitHub, status: int, state: str, path: str
) -> None:
    job = ask(real, "hf://kennel/timber")
    train(real, job)
    hub.refuse = lambda asked: status if path in asked else None
    deliver_all(real.deployment)
    found = shown(real, job)
    assert found["state"] == state and TOKEN not in json.dumps(found) and str(status) in found["because"]
    assert real.state(job) == "succeeded" and hub.commits == []
