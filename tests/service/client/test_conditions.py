"""What makes a request of either client safe: it is done once, and only to what its caller has seen."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from gangline import AsyncClient, BadInput, Changed, Client, UserError
from gangline.core.parsing import to_json
from gangline.core.specs.fields import HubBase
from gangline.types import BatchLineView, JobView
from gangline.wire.client.calls import Calls
from tests.service.conftest import OPERATOR, Service
from tests.service.served import Served
from tests.service.test_rules import succeed

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
Ask = Callable[..., Any]
MADE: dict[str, tuple[Any, ...]] = {
    "jobs.submit": ({"base": "pony"},),
    "jobs.submit_batch": ([],),
    "jobs.retry": ("job-1",),
    "jobs.extend": ("job-1", 200),
    "jobs.clone": ("job-1", {"rank": 4}),
    "experiments.submit": ({"spec": {"base": "pony"}, "seeds": 2},),
    "bases.add": ("pony", HubBase(repo="a/pony")),
    "keys.add": ("ada",),
    "join_tokens.add": ("machines at home",),
    "projects.add": ("vision",),
    "pools.add": ("cloud", "salad", {}),
}
"""What every method that makes something is called with."""
STEERED = {f"jobs.{name}" for name in ("cancel", "finish", "label", "pause", "remove", "resume", "sample", "save")}


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, served: Served) -> Ask:
    """A method of `jobs` of either client, by its name."""

    def of_sync(name: str, *given: Any, **options: Any) -> Any:
        with Client(served.url, OPERATOR) as client:
            return getattr(client.jobs, name)(*given, **options)

    async def asking(name: str, *given: Any, **options: Any) -> Any:
        async with AsyncClient(served.url, OPERATOR) as client:
            return await getattr(client.jobs, name)(*given, **options)

    return of_sync if request.param == "sync" else lambda *given, **options: asyncio.run(asking(*given, **options))


@on_sqlite
def test_the_jobs_of_a_batch_have_names_and_labels(service: Service, ask: Ask) -> None:
    spec = service.spec()
    lines: list[BatchLineView] = ask(
        "submit_batch",
        [
            spec,
            {"spec": spec, "name": "timber", "labels": {"team": "vision"}},
            to_json(spec) | {"seed": 4},
            {"spec": to_json(spec), "labels": {"Team": "no"}},
        ],
    )
    jobs = [ask("get", line.job).summary for line in lines[:3]]
    assert [(job.name, job.labels) for job in jobs] == [
        ("sks dog", {}),
        ("timber", {"team": "vision"}),
        ("sks dog", {}),
    ]
    assert lines[3].problem is not None and "Team" in str(lines[3].problem)


@on_sqlite
def test_what_is_asked_twice_with_one_key_is_made_once(service: Service, ask: Ask) -> None:
    job, node = service.submit(), service.join()
    succeed(service, node, service.claim(node).hold)
    first, same, other = (ask("retry", job, key=key).id for key in ("one", "one", "two"))
    assert first == same != other
    with pytest.raises(BadInput, match="this Idempotency-Key was used for another"):
        ask("retry", job, from_checkpoint=True, key="one")


@on_sqlite
def test_a_job_that_has_changed_since_it_was_read_is_not_steered(service: Service, ask: Ask) -> None:
    job: str = service.submit()
    read: JobView = ask("get", job)
    paused: JobView = ask("pause", job, version=read.version)
    assert paused.state == "paused"
    with pytest.raises(Changed, match=f"{job} has changed since it was read"):
        ask("resume", job, version=read.version)
    with pytest.raises(Changed):
        ask("label", job, {"team": "vision"}, version=read.version)
    with pytest.raises(Changed):
        ask("remove", job, version=read.version)
    assert ask("get", job).version == paused.version
    assert ask("cancel", job, version=paused.version).state == "canceled"


@on_sqlite
def test_a_change_between_the_two_requests_is_noticed_by_the_server(
    service: Service, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = service.submit()
    with Client(served.url, OPERATOR) as client, httpx.Client(base_url=served.url) as there:
        version, send = client.jobs.get(job).version, there.request

        def change_first(method: str, path: str, **rest: Any) -> httpx.Response:
            if method == "POST":
                service.ask("PATCH", f"/v1/jobs/{job}/labels", json={"labels": {"team": "audio"}}).raise_for_status()
            return send(method, path, **rest)

        monkeypatch.setattr(there, "request", change_first)
        monkeypatch.setattr(client._http, "_client", there)
        with pytest.raises(Changed):
            client.jobs.cancel(job, version=version)
    assert service.state(job) == "queued"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, list[httpx.Request]]]:
    """A client, and what it has sent: a server that does not know entity tags refuses each of its requests."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(404, json={"type": "urn:gangline:problem:not-found"}, request=request)

    with (
        Client("http://127.0.0.1:9", "a-key") as client,
        httpx.Client(transport=httpx.MockTransport(answer), base_url="http://127.0.0.1:9") as there,
    ):
        monkeypatch.setattr(client._http, "_client", there)
        yield client, sent


def test_everything_that_makes_something_takes_a_key_and_all_that_steers_a_version(
    sent: tuple[Client, list[httpx.Request]],
) -> None:
    client, _ = sent
    takes: dict[str, set[str]] = {"key": set(), "version": set()}
    for noun, calls in vars(client).items():
        if isinstance(calls, Calls):
            for name, method in inspect.getmembers(calls, inspect.ismethod):
                for parameter in takes.keys() & inspect.signature(method).parameters.keys():
                    takes[parameter] |= set() if name.startswith("_") else {f"{noun}.{name}"}
    makes_none = {"keys.revoke"}  # its `key` is the one to revoke
    assert takes == {"key": MADE.keys() | makes_none, "version": STEERED}


@pytest.mark.parametrize("name", MADE)
def test_what_makes_something_always_has_a_key(sent: tuple[Client, list[httpx.Request]], name: str) -> None:
    client, requests = sent
    noun, _, method = name.partition(".")
    for options in ({}, {}, {"key": "mine"}):
        with pytest.raises(UserError):
            getattr(getattr(client, noun), method)(*MADE[name], **options)
    keys = [request.headers["Idempotency-Key"] for request in requests]
    assert keys[2] == '"mine"' and len(set(keys)) == 3
