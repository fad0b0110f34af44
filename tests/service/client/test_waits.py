"""Waiting for a job, and following streams for a time: both clients do the same, and neither asks again and again."""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Protocol

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gangline import AsyncClient, Client, JobFailed, Unreachable, WaitTimeout
from gangline.api.answers import streams
from gangline.api.answers.streams import Followers
from gangline.api.app import make_app
from gangline.core.server.limits import Limits
from gangline.core.views import FactView, JobView
from gangline.ports.server import Beat, Hold
from gangline.service.jobs import renew, steer
from tests.service.conftest import OPERATOR, Service
from tests.service.served import Served, serving
from tests.service.test_rules import release

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
Wait = Callable[..., JobView]
SOON_S = 0.3
SLACK_S = 5.0
"""How late a busy machine may be. It is less than a keep-alive of the server, which would hide that nobody stops a read."""


@pytest.fixture(params=["sync", "async"])
def wait(request: pytest.FixtureRequest, served: Served) -> Wait:
    """`jobs.wait` of either client."""

    def of_sync(job: str, **options: Any) -> JobView:
        with Client(served.url, OPERATOR) as client:
            return client.jobs.wait(job, **options)

    async def waiting(job: str, **options: Any) -> JobView:
        async with AsyncClient(served.url, OPERATOR) as client:
            return await client.jobs.wait(job, **options)

    return of_sync if request.param == "sync" else lambda job, **options: asyncio.run(waiting(job, **options))


class Doorman:
    """A proxy before the server. Each request to a job that `turn` counts as none of the server's is answered with 502."""

    def __init__(self, app: ASGIApp, turn: Callable[[str, int], bool]) -> None:
        self._app, self._turn = app, turn
        self.asked: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            what = "stream" if scope["path"].endswith("/stream") else "job"
            self.asked[what] += 1
            if not await asyncio.to_thread(self._turn, what, self.asked[what]):
                await PlainTextResponse("bad gateway", 502)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Waited(Protocol):
    def __call__(self, service: Service, turn: Callable[[str, int], bool], job: str, **options: Any) -> JobView: ...


@pytest.fixture(params=["sync", "async"])
def waited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Waited:
    """`jobs.wait` of either client, with a proxy before the server."""
    monkeypatch.setattr(streams, "POLL_S", 0.02)

    async def waiting(url: str, job: str, **options: Any) -> JobView:
        async with AsyncClient(url, OPERATOR) as client:
            return await client.jobs.wait(job, **options)

    def wait(service: Service, turn: Callable[[str, int], bool], job: str, **options: Any) -> JobView:
        app = make_app(service.deployment, service.objects, Limits())
        app.add_middleware(Doorman, turn=turn)
        with serving(app) as served:
            if request.param == "async":
                return asyncio.run(waiting(served.url, job, **options))
            with Client(served.url, OPERATOR) as client:
                return client.jobs.wait(job, **options)

    return wait


@on_sqlite
def test_a_server_that_restarts_between_the_requests_of_a_wait_does_not_end_it(
    service: Service, waited: Waited
) -> None:
    job, said = service.submit(), list[str]()

    def turn(what: str, number: int) -> bool:
        if (what, number) == ("stream", 2):
            steer.cancel(service.deployment, job, service.now_ms)
        return (what, number) not in (("stream", 1), ("job", 2))

    found = waited(service, turn, job, timeout_s=60, waiting=lambda error: said.append(error.message))
    assert found.state == "canceled"
    assert len(said) == 2 and all("failed (HTTP 502)" in message for message in said)


@on_sqlite
def test_a_server_that_stays_away_does_not_make_a_wait_longer(service: Service, waited: Waited) -> None:
    job, began_s = service.submit(), time.monotonic()
    with pytest.raises(WaitTimeout, match=rf"{job} is not known to be ended after 0.3 s: .* failed \(HTTP 502\)"):
        waited(service, lambda what, number: (what, number) == ("job", 1), job, timeout_s=SOON_S)
    assert SOON_S <= time.monotonic() - began_s < SOON_S + SLACK_S


@on_sqlite
def test_a_server_that_is_not_there_at_first_is_not_waited_for(service: Service, waited: Waited) -> None:
    with pytest.raises(Unreachable):
        waited(service, lambda _what, _number: False, service.submit())


@on_sqlite
def test_a_job_that_is_interrupted_as_soon_as_it_runs_has_run(service: Service, waited: Waited) -> None:
    job, node, claimed = service.submit(), service.join(), list[Hold]()

    def turn(what: str, _: int) -> bool:
        if what == "stream":
            claimed.append(service.claim(node).hold)
        elif claimed:
            release(service, node, claimed[-1])
        return True

    found = waited(service, turn, job, until="running", timeout_s=20)
    assert (found.state, len(claimed), found.summary.attempts) == ("queued", 1, 1)


def later(act: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(SOON_S, act)
    timer.start()
    return timer


@on_sqlite
def test_a_wait_ends_with_the_job(service: Service, wait: Wait) -> None:
    job = service.submit()
    timer = later(lambda: steer.cancel(service.deployment, job, service.now_ms))
    found = wait(job, timeout_s=60)
    timer.join()
    assert (found.id, found.state, found.because) == (job, "canceled", "canceled by its owner")


@on_sqlite
def test_a_wait_ends_once_the_job_runs(service: Service, wait: Wait) -> None:
    job, node = service.submit(), service.join()
    timer = later(lambda: service.claim(node))
    assert wait(job, until="running", timeout_s=60).state == "running"
    timer.join()


@on_sqlite
def test_a_state_that_is_there_is_not_waited_for(service: Service, wait: Wait) -> None:
    job = service.submit()
    assert wait(job, until="queued", timeout_s=0).state == "queued"


@on_sqlite
def test_a_job_that_can_no_longer_reach_the_state_ends_the_wait(service: Service, wait: Wait) -> None:
    job = service.submit()
    steer.cancel(service.deployment, job, service.now_ms)
    assert wait(job, until="running").state == "canceled"


@on_sqlite
def test_who_checks_is_told_that_the_job_failed(service: Service, wait: Wait) -> None:
    job = service.submit()
    steer.cancel(service.deployment, job, service.now_ms)
    with pytest.raises(JobFailed, match=f"{job} canceled: canceled by its owner"):
        wait(job, check=True)
    assert wait(job, until="canceled", check=True).state == "canceled", "that was wanted"


@on_sqlite
def test_a_wait_of_too_long_says_how_far_the_job_is(service: Service, wait: Wait) -> None:
    job, began_s = service.submit(), time.monotonic()
    with pytest.raises(WaitTimeout, match=f"{job} is still queued after 0.3 s: ") as raised:
        wait(job, timeout_s=SOON_S)
    assert isinstance(raised.value, TimeoutError)
    assert SOON_S <= time.monotonic() - began_s < SOON_S + SLACK_S
    assert service.state(job) == "queued", "the job continues"


@on_sqlite
def test_messages_do_not_make_a_wait_longer(service: Service, wait: Wait) -> None:
    job, node = service.submit(), service.join()
    hold, ends = service.claim(node).hold, threading.Event()

    def progress() -> None:
        step = 0
        while not ends.wait(0.05):
            step += 1
            renew.beat(service.deployment, node, hold, Beat(phase="training", step=step), service.now_ms)

    thread = threading.Thread(target=progress)
    thread.start()
    began_s = time.monotonic()
    with pytest.raises(WaitTimeout):
        wait(job, timeout_s=SOON_S)
    ends.set()
    thread.join()
    assert time.monotonic() - began_s < SOON_S + SLACK_S


@on_sqlite
def test_the_facts_of_a_time_are_each_given_once_and_may_be_resumed(service: Service, served: Served) -> None:
    """A busy machine may need the whole time for the connection: whoever asks again goes on after the last fact."""
    jobs = [service.submit(seed=seed) for seed in range(3)]
    service.tick()

    async def of_async() -> list[FactView]:
        found = list[FactView]()
        async with AsyncClient(served.url, OPERATOR) as client:
            while len(found) < len(jobs):
                after = found[-1].number if found else 0
                found += [fact async for fact in client.facts.follow(after, timeout_s=SOON_S)]
            assert [fact async for fact in client.facts.list(found[0].number)] == found[1:]
        return found

    found = list[FactView]()
    with Client(served.url, OPERATOR) as client:
        while len(found) < len(jobs):
            found += client.facts.follow(found[-1].number if found else 0, timeout_s=SOON_S)
        assert list(client.facts.list()) == found
    assert [fact.job for fact in found] == jobs
    assert asyncio.run(of_async()) == found


@on_sqlite
def test_a_stream_that_is_left_holds_no_connection(service: Service, served: Served) -> None:
    job = service.submit()
    followers: Followers = served.app.state.followers

    async def look() -> None:
        async with AsyncClient(served.url, OPERATOR) as client:
            async with aclosing(client.events.follow(job)) as messages:
                assert (await anext(messages)).kind == "submitted"  # type: ignore[union-attr]
            await until_none(followers)

    with Client(served.url, OPERATOR) as client:
        for _ in client.events.follow(job):
            break
        asyncio.run(until_none(followers))
    asyncio.run(look())


@on_sqlite
def test_a_canceled_wait_leaves_no_connection(service: Service, served: Served) -> None:
    job = service.submit()
    followers: Followers = served.app.state.followers

    async def look() -> None:
        async with AsyncClient(served.url, OPERATOR) as client:
            task = asyncio.create_task(client.jobs.wait(job))
            while not followers.count:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until_none(followers)
            assert (await client.jobs.get(job)).state == "queued", "the client is as good as before"

    asyncio.run(look())


async def until_none(followers: Followers) -> None:
    """The server notices when it next writes, at the latest at its keep-alive; an end of the connection it notices at once."""
    async with asyncio.timeout(SLACK_S):
        while followers.count:
            await asyncio.sleep(0.01)


def test_a_time_limit_holds_for_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        async def look() -> list[object]:
            async with AsyncClient(url, OPERATOR) as client:
                return [fact async for fact in client.facts.follow(timeout_s=SOON_S)]

        began_s = time.monotonic()
        assert asyncio.run(look()) == []
        with Client(url, OPERATOR) as client:
            assert list(client.facts.follow(timeout_s=SOON_S)) == []
        assert 2 * SOON_S <= time.monotonic() - began_s < 2 * SOON_S + SLACK_S
