"""Server-sent events: many follow, one looks.

A follower holds no thread. Once a second a single hop looks at every job that is followed, and what it finds is shared by all who
follow that job. Only the newest look is kept: who missed it, because he reads slowly or has just come, looks for himself.
So nothing grows with a slow reader.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi.responses import StreamingResponse
from pydantic_core import to_jsonable_python
from starlette.types import Receive, Scope, Send

from gangline.api.lanes import FOLLOWING, USERS
from gangline.core.errors import TooMany, Unreachable
from gangline.core.server.limits import Limits
from gangline.core.views import ProgressView
from gangline.service.deployment import Deployment
from gangline.service.jobs.follow import Channel, StreamPage, StreamPosition, cursor, read_stream

POLL_S = 1.0
FOLLOW_AGAIN_S = 15.0
BATCH = 32
KEEP_ALIVE_S = 15.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
RETRY = b"retry: 1000\n\n"
KEEP_ALIVE = b":\n\n"
END = "end"
log = logging.getLogger("gangline.api")


class Tail:
    """What the last look at a job found: all that came after `start`."""

    def __init__(self, channel: Channel, job: str, first: StreamPage) -> None:
        self.channel = channel
        self.job = job
        self.start = first.newest
        self.latest = replace(first, pieces=(), place=first.newest)
        self.followers = 0
        self.news = asyncio.Event()

    def keep(self, found: StreamPage) -> None:
        before, self.latest = self.latest, found
        self.start = before.place
        if found.pieces or found.end or found.progress != before.progress:
            self.wake()

    def has_more(self, place: StreamPosition) -> bool:
        """For one who was told so much, be it only that he missed something."""
        return place < self.latest.place or self.latest.end is not None

    async def woken(self) -> bool:
        """False where nothing happened for long."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self.news.wait()
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class Followers:
    """All streams of this process."""

    def __init__(self, deployment: Deployment, limits: Limits) -> None:
        self._at = deployment
        self._limits = limits
        self._of_projects: Counter[str] = Counter()
        self._tails: dict[tuple[str, str], Tail] = {}
        self._looking: asyncio.Task[None] | None = None
        self.count = 0
        self._closing = False

    def follow(
        self, channel: Channel, project: str, job: str, first: StreamPage, *, progress: bool = True
    ) -> StreamingResponse:
        """Return the pieces of `first`, and all that come after them; what the job is doing if `progress`. Raises `TooMany` where too
        many of the project follow already, `Unreachable` where too many follow at all."""
        if self.count >= self._limits.followers_max or self._closing:
            raise Unreachable("the server has no more room for those who follow", hint="try again later")
        if self._of_projects[project] >= self._limits.followers_per_project_max:
            raise TooMany(
                f"{self._of_projects[project]} streams of {project} are open, the most that a project may have",
                wait_s=FOLLOW_AGAIN_S,
            )
        tail = self._tails.setdefault((channel.name, job), Tail(channel, job, first))
        tail.followers += 1
        self.count += 1
        self._of_projects[project] += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._keep_looking())
        return _Stream(self, tail, project, first, progress=progress)

    def leave(self, tail: Tail, project: str) -> None:
        tail.followers -= 1
        self.count -= 1
        self._of_projects[project] -= 1
        if not self._of_projects[project]:
            del self._of_projects[project]
        if tail.followers == 0:
            del self._tails[tail.channel.name, tail.job]

    def close(self) -> None:
        """End all streams now. Who followed comes again, to the next server."""
        self._closing = True
        for tail in self._tails.values():
            tail.wake()

    async def tell(self, tail: Tail, found: StreamPage, *, progress: bool) -> AsyncIterator[bytes]:
        """Until the job ends or this server does, or something is wrong: then the follower comes again."""
        place = tail.channel.start
        told: ProgressView | None = None
        yield RETRY
        while not self._closing:
            for piece in found.pieces:
                if piece.place > place:
                    yield _message(tail.channel.name, piece.value, cursor(piece.place))
            place = max(place, found.place)
            if progress and found.progress != told:
                told = found.progress
                yield _message("progress", told)
            if found.end:
                yield _message(END, found.end, END)
                return
            while not (tail.has_more(place) or (progress and tail.latest.progress != told) or self._closing):
                if not await tail.woken():
                    yield KEEP_ALIVE
            found = tail.latest if place >= tail.start else await self._look_back(tail, place)

    async def _look_back(self, tail: Tail, place: StreamPosition) -> StreamPage:
        return await USERS.run(partial(read_stream, self._at, tail.channel, tail.job, place))

    async def _keep_looking(self) -> None:
        """At every job that is followed, once in `POLL_S`; a few at a time, so that those who follow wake one after the other."""
        while self._tails and not self._closing:
            tails = list(self._tails.values())
            batches = [tails[begin : begin + BATCH] for begin in range(0, len(tails), BATCH)]
            for batch in batches:
                await asyncio.sleep(POLL_S / len(batches))
                with suppress(Unreachable):  # the next look tells the same
                    await self._look_at(batch)
        self._looking = None

    async def _look_at(self, batch: list[Tail]) -> None:
        asked = [(tail.channel, tail.job, tail.latest.place) for tail in batch]
        looks = await FOLLOWING.run(lambda: [self._try_to_look(*one) for one in asked])
        for tail, found in zip(batch, looks, strict=True):
            if found:
                tail.keep(found)

    def _try_to_look(self, channel: Channel, job: str, after: StreamPosition) -> StreamPage | None:
        try:
            return read_stream(self._at, channel, job, after)
        except Unreachable:
            return None  # the controller's log tells of it
        except Exception:
            log.exception("%s could not be looked at for those who follow it; the next look tries again", job)
            return None


class _Stream(StreamingResponse):
    def __init__(self, followers: Followers, tail: Tail, project: str, first: StreamPage, *, progress: bool) -> None:
        super().__init__(
            followers.tell(tail, first, progress=progress), headers=HEADERS, media_type="text/event-stream"
        )
        self._leave = partial(followers.leave, tail, project)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except Unreachable as error:
            log.warning("a stream was ended: %s", error)
        finally:
            self._leave()


def _message(name: str, value: Any, number: str = "") -> bytes:
    """As the HTML standard has it. JSON in ASCII has no line breaks of its own, for readers that see one in U+2028 or U+0085 too."""
    head = f"event: {name}\nid: {number}\n" if number else f"event: {name}\n"
    data = json.dumps(to_jsonable_python(value, inf_nan_mode="null"), separators=(",", ":"))
    return f"{head}data: {data}\n\n".encode()
