"""Nobody's requests take the threads that others need."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from gangline.api.app import make_app
from gangline.api.lanes import HEARTBEATS, PROVIDERS, USERS, WORKERS, Lane
from gangline.api.serve import listen
from gangline.core.errors import Unreachable
from gangline.core.files import PART_BYTES
from gangline.ports.store import Row
from tests.service.conftest import JOIN, OPERATOR, Service
from tests.service.jobs.test_one_at_a_time import ENDS, NAMES
from tests.shop import ShopPool

IN_TIME_S = 20


class HeldUp:
    """The real store; some of its queries do not return until they are let go."""

    queries: frozenset[str] = frozenset()

    def hold_up(self, *queries: str) -> None:
        self.queries, self.go, self.waiting = frozenset(queries), threading.Event(), threading.Semaphore(0)

    def load(self, name: str, /, **values: object) -> list[Row]:
        if name in self.queries:
            self.waiting.release()
            assert self.go.wait(IN_TIME_S)
        return super().load(name, **values)  # type: ignore[misc]


@contextmanager
def holding_up(service: Service, *queries: str) -> Iterator[HeldUp]:
    service.store.__class__ = type("HeldUp", (HeldUp, type(service.store)), {})
    store: Any = service.store
    store.hold_up(*queries)
    try:
        yield store
    finally:
        store.go.set()


def at_work(service: Service) -> tuple[str, str, dict[str, Any]]:
    """A node's token, the path of its attempt, and its fence."""
    service.submit()
    joined = service.ask("POST", "/v1/nodes", JOIN, json={"machine": "m", "name": "n"}).json()
    hold = service.ask("POST", "/v1/claims", joined["token"]).json()["hold"]
    return joined["token"], f"/v1/attempts/{hold['attempt']}", {"fencing": hold["fencing"]}


BEAT = {"phase": "training", "step": 1}


@pytest.mark.parametrize(
    ("lane", "query", "blocked", "answered"),
    [
        (USERS, "jobs_by_time", ("GET", "/v1/jobs"), ("heartbeat", "claim", "health")),
        (WORKERS, "node", ("POST", "/v1/claims"), ("heartbeat", "jobs", "health")),
        (HEARTBEATS, "credential", ("POST", "{attempt}/heartbeats?fencing=1"), ("health",)),
    ],
)
def test_where_the_threads_of_one_kind_are_all_taken_the_others_answer(
    service: Service, lane: Lane, query: str, blocked: tuple[str, str], answered: tuple[str, ...]
) -> None:
    token, attempt, fence = at_work(service)

    async def together() -> None:
        transport = httpx.ASGITransport(app=make_app(service.deployment, service.objects))
        async with httpx.AsyncClient(transport=transport, base_url="http://gangline", timeout=IN_TIME_S) as http:

            def ask(method: str, path: str, bearer: str, **rest: Any) -> Any:
                return http.request(method, path, headers={"Authorization": f"Bearer {bearer}"}, **rest)

            others = {
                "heartbeat": lambda: ask("POST", f"{attempt}/heartbeats", token, params=fence, json=BEAT),
                "claim": lambda: ask("POST", "/v1/claims", token),
                "jobs": lambda: ask("GET", "/v1/jobs", OPERATOR),
                "health": lambda: ask("GET", "/healthz", ""),
            }
            with holding_up(service, query) as store:
                method, path = blocked
                bearer = OPERATOR if method == "GET" else token
                path = path.format(attempt=attempt)
                stuck = [asyncio.create_task(ask(method, path, bearer, json=BEAT)) for _ in range(lane.threads + 1)]
                for _ in range(lane.threads):
                    assert await asyncio.to_thread(store.waiting.acquire, timeout=IN_TIME_S)
                for name in answered:
                    assert (await others[name]()).status_code == 200, name
                assert not any(task.done() for task in stuck)
            for task in stuck:
                assert (await task).status_code == 200

    asyncio.run(together())


def test_while_providers_hang_pools_are_shown_paused_and_removed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for a provider has threads of its own."""
    add = {"name": "cloud-1", "driver": "shop"}
    assert service.ask("POST", "/v1/pools", json=add).status_code == 201
    asked, go = threading.Semaphore(0), threading.Event()

    def hang(_: ShopPool) -> list[Any]:
        asked.release()
        assert go.wait(IN_TIME_S)
        return []

    async def together() -> None:
        transport = httpx.ASGITransport(app=make_app(service.deployment, service.objects))
        headers = {"Authorization": f"Bearer {OPERATOR}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://gangline", headers=headers) as http:
            another = add | {"name": "cloud-2"}
            stuck = [asyncio.create_task(http.post("/v1/pools", json=another)) for _ in range(PROVIDERS.threads)]
            for _ in stuck:
                assert await asyncio.to_thread(asked.acquire, timeout=IN_TIME_S)
            for method, path in (("GET", ""), ("GET", "/cloud-1"), ("POST", "/cloud-1/pause"), ("DELETE", "/cloud-1")):
                assert (await http.request(method, f"/v1/pools{path}")).status_code == 200
            assert not any(task.done() for task in stuck)
            go.set()
            assert sorted([(await task).status_code for task in stuck]) == [201, 422], "one of the two made it"

    monkeypatch.setattr(ShopPool, "offers", hang)
    try:
        asyncio.run(together())
    finally:
        go.set()


@contextmanager
def one_at_work(lane: Lane) -> Iterator[tuple[asyncio.Task[str], threading.Event]]:
    go = threading.Event()

    def work() -> str:
        assert go.wait(IN_TIME_S)
        return "done"

    try:
        yield asyncio.create_task(lane.run(work)), go
    finally:
        go.set()


def test_a_lane_refuses_at_once_what_would_wait_behind_too_many() -> None:
    async def together() -> None:
        lane = Lane("short", threads=1, waiting_max=1, wait_s=IN_TIME_S)
        with one_at_work(lane) as (first, go):
            second = asyncio.create_task(lane.run(lambda: "second"))
            await asyncio.sleep(0)
            with pytest.raises(Unreachable):
                await lane.run(lambda: "third")
            assert not first.done() and not second.done()
            go.set()
            assert (await first, await second) == ("done", "second")
        assert await lane.run(lambda: "again") == "again"

    asyncio.run(together())


def test_what_waited_for_a_thread_too_long_was_never_done() -> None:
    async def together() -> None:
        lane, done = Lane("slow", threads=1, waiting_max=10, wait_s=0.01), list[str]()
        with one_at_work(lane) as (first, go):
            await asyncio.sleep(0)
            with pytest.raises(Unreachable):
                await lane.run(lambda: done.append("late"))
            go.set()
            assert await first == "done", "what has begun is not given up"
        await lane.run(lambda: done.append("next"))
        assert done == ["next"]

    asyncio.run(together())


def test_a_request_that_finds_no_thread_is_told_to_come_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(USERS, "_inside_max", 0)
    answer = service.ask("GET", "/v1/jobs")
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    assert answer.json()["type"] == "urn:gangline:problem:unreachable" and answer.json()["hint"] == "try again"


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("what", NAMES + ENDS)
def test_a_node_that_was_given_up_is_heard_no_more_though_its_token_was_known(
    service: Service, what: str, remembered: bool
) -> None:
    token, attempt, fence = at_work(service)
    if remembered:
        beaten = service.ask("POST", f"{attempt}/heartbeats", token, params=fence, json=BEAT)
        assert beaten.json() == {"stop": "", "save": False, "finish": False}
    service.wait(3600)
    service.tick()
    node = service.store.load("nodes")
    assert not node, "it was given up"
    answer = service.ask(
        "POST", f"{attempt}/{what.partition(',')[0]}", token, params=fence, json=body_of(service, what)
    )
    assert answer.status_code == (409 if remembered else 401), answer.text
    for method, path in (("POST", "/v1/claims"), ("DELETE", "/v1/nodes/self")):
        assert service.ask(method, path, token).status_code == 401


def body_of(service: Service, what: str) -> dict[str, Any]:
    file = {"path": "weights.safetensors", "bytes": 7, "sha256": "0" * 64}
    bodies: dict[str, Callable[[], dict[str, Any]]] = {
        "heartbeats": lambda: BEAT,
        "uploads": lambda: {"folder": "output", "files": [file]},
        "beginnings": lambda: {"step": 30, "files": [file | {"bytes": PART_BYTES + 1, "parts": ["0" * 64]}]},
        "downloads": lambda: {"keys": ["projects/default/x"]},
        "checkpoints": lambda: {"manifest": service.manifest(30).to_json()},
        "samples": lambda: {"step": 30, "files": [file]},
        "metrics": lambda: {"points": [{"step": 30, "values": {"loss": 0.5}}]},
        "prepared": lambda: {"manifest": {}},
        "rejections": lambda: {"checkpoint": "checkpoint-x", "because": "damaged"},
        "logs": lambda: {"first_byte": 0, "text": "late"},
        "end, succeeded": lambda: {"outcome": "succeeded", "output": [file]},
        "end, failed": lambda: {"outcome": "failed", "kind": "crashed", "because": "x"},
        "end, released": lambda: {"outcome": "released"},
    }
    return bodies[what]()


@pytest.mark.parametrize(
    ("query", "body", "field"),
    [
        ("?fencing=x", BEAT, "fencing"),
        ("", BEAT, "fencing"),
        ("?fencing=-1", BEAT, "fencing"),
        (f"?fencing={2**64}", BEAT, "fencing"),
        ("?fencing=1&rank=-1", BEAT, "rank"),
        ("?fencing=1", {"phase": "asleep", "step": 1}, "phase"),
        ("?fencing=1", {"phase": "training"}, "step"),
        ("?fencing=1", {"phase": "training", "step": 1, "seconds_per_step": 0}, "seconds_per_step"),
        ("?fencing=1", [], "body"),
    ],
)
def test_a_wrong_heartbeat_names_the_field(service: Service, query: str, body: Any, field: str) -> None:
    token, attempt, _ = at_work(service)
    answer = service.ask("POST", f"{attempt}/heartbeats{query}", token, json=body)
    assert answer.status_code == 422, answer.text
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]


@pytest.mark.parametrize(
    "query", ["fencing=%ff", "fencing=\xff", "&&=&fencing", "fencing=1&fencing=x", "%00=%00", "fencing=1e3"]
)
@pytest.mark.parametrize(
    "body", [b"", b"null", b"{", b"\xff\xfe", b"[" * 5000, b'{"phase": "training", "step": 1e400}']
)
def test_a_garbled_heartbeat_is_a_4xx(service: Service, query: str, body: bytes) -> None:
    token, attempt, _ = at_work(service)
    headers = {"Authorization": f"Bearer {token}"}
    answer = service.http.post(f"{attempt}/heartbeats?{query}", content=body, headers=headers)
    assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"


def test_the_documentation_of_a_heartbeat_is_of_what_is_read(service: Service) -> None:
    documented = service.http.get("/openapi.json").json()
    route = documented["paths"]["/v1/attempts/{attempt}/heartbeats"]["post"]
    assert [(one["name"], one["in"], one["required"]) for one in route["parameters"]] == [
        ("attempt", "path", True),
        ("fencing", "query", True),
        ("rank", "query", False),
    ]
    assert route["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Beat"}
    assert route["responses"]["200"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Beaten"}


def test_the_second_packet_of_an_answer_does_not_wait_for_the_first() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
