"""Serve a finished simulation read-only: each request is answered as the server would have answered it at the moment that it asks for."""

import asyncio
import secrets
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from starlette.datastructures import MutableHeaders, State
from starlette.types import Message, Receive, Scope, Send

from gangline.api.app import make_app, over_another
from gangline.api.lanes import json_response
from gangline.api.object_routes import SAVED
from gangline.core.errors import BadInput, GanglineError, NotFound
from gangline.service.access.access import ensure_secret, note_use, recognize
from gangline.service.access.projects import projects
from gangline.service.driving import AtOnce
from gangline.service.recent import Recent
from gangline.sim.replay.closed_pool import ClosedPool
from gangline.sim.replay.objects import ROUTE, ReplayObjects, name_thumbnails
from gangline.sim.replay.recording import Recording, Snapshot
from gangline.sim.replay.store import ReplayStore, read_only_refusal
from gangline.web.frame.routes import guarded, refusal_answer
from gangline.web.page import add_page

if TYPE_CHECKING:
    from gangline.sim.simulation import Simulation

MOMENTS = "/replay"
PARAMETER, COOKIE = "at", "gangline-at"
PROJECT_COOKIE, PROJECT_HEADER = "gangline-project", "gangline-project"
LIVE = "/live/"
DIGITS_MAX = 15
SAFE = ("GET", "HEAD", "OPTIONS")
OPEN_MAX = 4
"""The number of moments whose databases are in memory at a time, but for those that are answering requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMoments:
    """The moments at which a replay can be looked at, in milliseconds UTC of virtual time, in order. The last one is the end."""

    title: str
    seed: int
    start_ms: int
    end_ms: int
    moments_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ServedMoment:
    """A snapshot that is open, as a server, and the projects that it has."""

    app: FastAPI
    store: ReplayStore
    projects: frozenset[str]


@dataclass(slots=True)
class OpenMoment:
    """A snapshot that is being opened, or is open, as a server. `requests` are at it now; it is `left` once other moments are asked for."""

    opening: asyncio.Task[ServedMoment]
    requests: int = 0
    left: bool = False

    def end_streams(self) -> None:
        for each in self.opening.result().app.state.streams if self.opening.done() else ():
            each.close()

    def close_if_unused(self) -> None:
        if self.left and not self.requests and self.opening.done():
            self.opening.result().store.close()


class Replay:
    """The ASGI application of a finished simulation: a server with its page for each moment of its recording.

    The query parameter `at`, else the cookie `gangline-at`, names a moment in milliseconds UTC of virtual time. The newest snapshot until
    then answers, by default the last one. No key is needed, as each request is given one of an operator, which may read every project;
    methods that are not safe (RFC 9110, section 9.2.1) are refused. `GET /replay` answers `RecordedMoments`. The cookie `gangline-project`
    names the project that the page shows. It runs in one event loop.
    """

    def __init__(self, of: "Simulation", recording: Recording) -> None:
        self._snapshots = recording.snapshots
        self._moments_ms = tuple(snapshot.ms for snapshot in self._snapshots)
        self._view = RecordedMoments(
            title=of.scenario.title,
            seed=of.world.seed,
            start_ms=self._moments_ms[0],
            end_ms=self._moments_ms[-1],
            moments_ms=self._moments_ms,
        )
        self._objects = ReplayObjects(of)
        closed, live = AtOnce(ClosedPool()), of.service.deployment
        pools = {name: replace(pool, driving=closed) for name, pool in live.pools.items()}
        self._deployment = replace(live, objects=self._objects, pools=pools)
        self._app = make_app(self._deployment, None)
        add_page(self._app, self._deployment, self._app.state.limits, replay=of.scenario.title)
        self.state = State({"limits": self._app.state.limits, "streams": [self]})
        self._key = secrets.token_urlsafe()
        self._open: OrderedDict[int, OpenMoment] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing is to be done when the server starts or stops
            return
        request = Request(scope, receive)
        try:
            answer = self._answer(request)
            asked_ms = _asked_ms(request)
        except GanglineError as error:
            answer, asked_ms = self._refusal(request, error), None
        if answer:
            await answer(scope, receive, send)
            return
        if PARAMETER in request.query_params:
            send = _kept_by_pages(send, f"{COOKIE}={asked_ms}; Path=/; SameSite=Lax")
        moment = self._moment(self._index(asked_ms))
        moment.requests += 1
        try:
            served = await asyncio.shield(moment.opening)
            await served.app(self._as_asked(request, served.projects), receive, send)
        finally:
            moment.requests -= 1
            moment.close_if_unused()

    def close(self) -> None:
        """End the streams of all moments."""
        for moment in self._open.values():
            moment.end_streams()

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to what is the same at every moment; None if it depends on the moment. Raise `Forbidden` or `NotFound`."""
        if request.method not in SAFE:
            raise read_only_refusal()
        path: str = request.scope["path"]
        if path == MOMENTS:
            return json_response(self._view)
        if path.startswith(LIVE):
            raise NotFound("a replay stands still, so its pages have no stream of changes")
        if path.startswith(ROUTE):
            content = self._objects.read(path.removeprefix(ROUTE))
            return Response(content, headers=SAVED, media_type="application/octet-stream")
        return None

    def _refusal(self, request: Request, error: GanglineError) -> Response:
        asked = Request({**request.scope, "app": self._app})
        return guarded(asked, refusal_answer(asked, error))

    def _index(self, asked_ms: int | None) -> int:
        if asked_ms is None:
            return len(self._snapshots) - 1
        return max(0, bisect_right(self._moments_ms, asked_ms) - 1)

    def _moment(self, index: int) -> OpenMoment:
        if index not in self._open:
            self._open[index] = OpenMoment(asyncio.create_task(asyncio.to_thread(self._serve, self._snapshots[index])))
        self._open.move_to_end(index)
        if len(self._open) > OPEN_MAX:
            _, oldest = self._open.popitem(last=False)
            oldest.left = True
            oldest.end_streams()
            oldest.close_if_unused()
        return self._open[index]

    def _serve(self, snapshot: Snapshot) -> ServedMoment:
        store = ReplayStore(snapshot.database(), snapshot.ms)
        deployment = replace(self._deployment, store=store, up_since_ms=snapshot.ms, recent=Recent())
        ensure_secret(deployment, self._key, "operator", now_ms=snapshot.ms)
        operator = recognize(deployment, self._key, "operator", snapshot.ms)
        note_use(deployment, operator, snapshot.ms)  # else the first request would
        name_thumbnails(store)
        store.freeze()
        found = frozenset(each.project for each in projects(deployment))
        return ServedMoment(over_another(self._app, deployment), store, found)

    def _as_asked(self, request: Request, found: frozenset[str]) -> Scope:
        """Return the scope of a request as the server of its moment gets it: with a key, and for the project of the cookie if there is one.
        Routes ignore parameters that they do not know."""
        headers = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
        headers.append((b"authorization", f"Bearer {self._key}".encode()))
        chosen = request.cookies.get(PROJECT_COOKIE, "")
        if chosen in found and PROJECT_HEADER not in request.headers:
            headers.append((PROJECT_HEADER.encode(), chosen.encode()))
        return {**request.scope, "headers": headers}


def _kept_by_pages(send: Send, cookie: str) -> Send:
    """Return `send` that gives a page its moment as a cookie before the browser asks for anything else that belongs to it."""

    async def with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if headers.get("content-type", "").startswith("text/html"):
                headers.append("set-cookie", cookie)
        await send(message)

    return with_cookie


def _asked_ms(request: Request) -> int | None:
    """Return the moment that a request names; None if it names none. Raise `BadInput` if its parameter is no moment.

    The cookie may be that of another program on this machine: browsers keep one for all ports.
    """
    asked, kept = request.query_params.get(PARAMETER), request.cookies.get(COOKIE, "")
    if asked is None:
        return int(kept) if _is_ms(kept) else None
    if not _is_ms(asked):
        raise BadInput("at is no moment in milliseconds UTC", hint=f"GET {MOMENTS} lists those of this replay")
    return int(asked)


def _is_ms(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
