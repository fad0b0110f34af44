"""Serve server-sent events to many followers with one reader.

A follower occupies no thread. Once a second, one task reads every job that is followed, and all followers of a job share what it finds.
Only the newest page is kept: a follower who missed it, as it reads slowly or has just connected, reads by itself. So no memory grows with a
slow reader.
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
"""The number of jobs that one hop to the lane reads."""
KEEP_ALIVE_S = 15.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
RETRY = b"retry: 1000\n\n"
"""Makes browsers reconnect after a second."""
KEEP_ALIVE = b":\n\n"
END = "end"
log = logging.getLogger("gangline.api")


class Tail:
    """A followed job: what the last read of it found, which is everything after `start`."""

    def __init__(self, channel: Channel, job: str, first: StreamPage) -> None:
        self.channel = channel
        self.job = job
        self.start = first.newest
        self.latest = replace(first, pieces=(), position=first.newest)
        self.followers = 0
        self.news = asyncio.Event()

    def keep(self, found: StreamPage) -> None:
        before, self.latest = self.latest, found
        self.start = before.position
        if found.pieces or found.end or found.progress != before.progress:
            self.wake()

    def has_more(self, position: StreamPosition) -> bool:
        """Return whether there is more for a follower at this position, even if it has missed the page that had it."""
        return position < self.latest.position or self.latest.end is not None

    async def woken(self) -> bool:
        """Wait for news. Return False if there was none for `KEEP_ALIVE_S`."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self.news.wait()
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        # A new event instead of `clear`: all waiters wake, and later ones wait for the next news.
        self.news.set()
        self.news = asyncio.Event()


class Followers:
    """All streams of this process."""

    def __init__(self, deployment: Deployment, limits: Limits) -> None:
        self._deployment = deployment
        self._limits = limits
        self._of_projects: Counter[str] = Counter()
        self._tails: dict[tuple[str, str], Tail] = {}
        self._reading: asyncio.Task[None] | None = None
        self.count = 0
        self._closing = False

    def follow(
        self, channel: Channel, project: str, job: str, first: StreamPage, *, progress: bool = True
    ) -> StreamingResponse:
        """Return a stream of the pieces of `first` and everything after them; with `progress`, also of what the job is doing.

        Raise `TooMany` if the project has too many streams, `Unreachable` if the server has.
        """
        if self.count >= self._limits.followers_max or self._closing:
            raise Unreachable("the server has too many open streams", hint="try again later")
        if self._of_projects[project] >= self._limits.followers_per_project_max:
            raise TooMany(
                f"{self._of_projects[project]} streams of {project} are open, the most that a project may have",
                wait_s=FOLLOW_AGAIN_S,
            )
        tail = self._tails.setdefault((channel.name, job), Tail(channel, job, first))
        tail.followers += 1
        self.count += 1
        self._of_projects[project] += 1
        if self._reading is None:
            self._reading = asyncio.create_task(self._keep_reading())
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
        """End all streams now. Followers reconnect, to the next server."""
        self._closing = True
        for tail in self._tails.values():
            tail.wake()

    async def tell(self, tail: Tail, found: StreamPage, *, progress: bool) -> AsyncIterator[bytes]:
        """Yield messages until the job ends, the server stops or an error occurs; in the last two cases the follower reconnects."""
        position = tail.channel.start
        told: ProgressView | None = None
        yield RETRY
        while not self._closing:
            for piece in found.pieces:
                if piece.position > position:
                    yield _message(tail.channel.name, piece.value, cursor(piece.position))
            position = max(position, found.position)
            if progress and found.progress != told:
                told = found.progress
                yield _message("progress", told)
            if found.end:
                yield _message(END, found.end, END)
                return
            while not (tail.has_more(position) or (progress and tail.latest.progress != told) or self._closing):
                if not await tail.woken():
                    yield KEEP_ALIVE
            found = tail.latest if position >= tail.start else await self._read_again(tail, position)

    async def _read_again(self, tail: Tail, position: StreamPosition) -> StreamPage:
        return await USERS.run(partial(read_stream, self._deployment, tail.channel, tail.job, position))

    async def _keep_reading(self) -> None:
        """Read every followed job once in `POLL_S`; a few at a time, so that their followers do not all wake at once."""
        while self._tails and not self._closing:
            tails = list(self._tails.values())
            batches = [tails[begin : begin + BATCH] for begin in range(0, len(tails), BATCH)]
            for batch in batches:
                await asyncio.sleep(POLL_S / len(batches))
                with suppress(Unreachable):  # the next read finds the same
                    await self._read_batch(batch)
        self._reading = None

    async def _read_batch(self, batch: list[Tail]) -> None:
        asked = [(tail.channel, tail.job, tail.latest.position) for tail in batch]
        pages = await FOLLOWING.run(lambda: [self._try_to_read(*one) for one in asked])
        for tail, found in zip(batch, pages, strict=True):
            if found:
                tail.keep(found)

    def _try_to_read(self, channel: Channel, job: str, after: StreamPosition) -> StreamPage | None:
        try:
            return read_stream(self._deployment, channel, job, after)
        except Unreachable:
            return None  # the controller logs it
        except Exception:
            log.exception("%s could not be read for its streams; the next read tries again", job)
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
            log.warning("a stream has ended: %s", error)
        finally:
            self._leave()


def _message(name: str, value: Any, number: str = "") -> bytes:
    """Return a message in the format of the HTML standard.

    JSON in ASCII has no line breaks of its own, even for readers that take U+2028 or U+0085 for one.
    """
    head = f"event: {name}\nid: {number}\n" if number else f"event: {name}\n"
    data = json.dumps(to_jsonable_python(value, inf_nan_mode="null"), separators=(",", ":"))
    return f"{head}data: {data}\n\n".encode()
