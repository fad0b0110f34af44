"""Serve server-sent events to many followers with one reader.

A follower occupies no thread. Once a second, one task reads every job and project that is followed; all followers of one share what it
finds, and the bytes that are sent of it. Only the newest page is kept: a follower who missed it, as it reads slowly or has just connected,
reads by itself. So no memory grows with a slow reader.
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

from gangline.api.answers.waiters import Waiters
from gangline.api.lanes import FOLLOWING, USERS
from gangline.core.errors import TooMany, Unreachable
from gangline.core.server.limits import Limits
from gangline.core.views import ProgressView
from gangline.service.access.access import lost_credentials
from gangline.service.deployment import Deployment
from gangline.service.jobs.follow import Channel, StreamPage, StreamPosition, cursor, read_stream

POLL_S = 1.0
FOLLOW_AGAIN_S = 15.0
BATCH = 32
"""The number of jobs that one hop to the lane reads."""
CHECK_S = 15.0
"""Seconds between two looks at whether the keys of all followers are still valid."""
PAGES_AT_ONCE = 20
"""The most pages of one job or project that are read before the others have their turn again."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
RETRY = b"retry: 1000\n\n"
"""Makes browsers reconnect after a second."""
KEEP_ALIVE = b":\n\n"
END = "end"
SentMessage = tuple[StreamPosition, bytes]
log = logging.getLogger("gangline.api")


class Tail:
    """A followed job or project: what the last read of it found, which is everything after `start`."""

    def __init__(self, channel: Channel, of: str, first: StreamPage) -> None:
        self.channel = channel
        self.of = of
        self.start = first.newest
        self.latest = replace(first, pieces=(), position=first.newest)
        self.followers = 0
        self.waiters = Waiters()
        self._messages: list[SentMessage] = []
        self._all_of_them = b""
        self._progress = _message("progress", first.progress)

    def keep(self, found: StreamPage) -> bool:
        """Keep what a read has found. Return whether the followers are to hear of it."""
        before, self.latest = self.latest, found
        self.start = before.position
        self._messages = self._rendered(found)
        self._all_of_them = b"".join(message for _, message in self._messages)
        if found.progress != before.progress:
            self._progress = _message("progress", found.progress)
        return bool(found.pieces or found.end) or found.progress != before.progress

    def sent_of(self, page: StreamPage, position: StreamPosition) -> bytes:
        """Return what a follower at this position is sent of a page, in one piece, as each piece costs the event loop a write. That of the
        latest page is made once for all followers."""
        messages = self._messages if page is self.latest else self._rendered(page)
        if messages is self._messages and messages and messages[0][0] > position:
            return self._all_of_them
        return b"".join(message for place, message in messages if place > position)

    def progress_of(self, page: StreamPage) -> bytes:
        return self._progress if page.progress == self.latest.progress else _message("progress", page.progress)

    def _rendered(self, page: StreamPage) -> list[SentMessage]:
        return [
            (piece.position, _message(self.channel.name, piece.value, cursor(piece.position))) for piece in page.pieces
        ]

    def has_more(self, position: StreamPosition) -> bool:
        """Return whether there is more for a follower at this position, even if it has missed the page that had it."""
        return position < self.latest.position or self.latest.end is not None


class Followers:
    """All streams of this process."""

    def __init__(self, deployment: Deployment, limits: Limits) -> None:
        self._deployment = deployment
        self._limits = limits
        self._of_projects: Counter[str] = Counter()
        self._of_keys: Counter[str] = Counter()
        self._lost_keys = set[str]()
        self._checked_s = 0.0
        self._tails: dict[tuple[str, str], Tail] = {}
        self._reading: asyncio.Task[None] | None = None
        self.count = 0
        self._closing = False

    def follow(
        self, channel: Channel, project: str, of: str, first: StreamPage, *, key: str, progress: bool = True
    ) -> StreamingResponse:
        """Return a stream of the pieces of `first` and everything after them; with `progress`, also of what the job is doing. It ends once
        the `key` (the proof of the identity that asks for it) is no longer valid.

        Raise `TooMany` if the project has too many streams, `Unreachable` if the server has.
        """
        if self.count >= self._limits.followers_max or self._closing:
            raise Unreachable("the server has too many open streams", hint="try again later")
        if self._of_projects[project] >= self._limits.followers_per_project_max:
            raise TooMany(
                f"{self._of_projects[project]} streams of {project} are open, the most that a project may have",
                wait_s=FOLLOW_AGAIN_S,
            )
        tail = self._tails.setdefault((channel.name, of), Tail(channel, of, first))
        tail.followers += 1
        self.count += 1
        self._of_projects[project] += 1
        self._of_keys[key] += 1
        if self._reading is None:
            self._checked_s = asyncio.get_running_loop().time()
            self._reading = asyncio.create_task(self._keep_reading())
        return _Stream(self, tail, project, first, key=key, progress=progress)

    def leave(self, tail: Tail, project: str, key: str) -> None:
        tail.followers -= 1
        self.count -= 1
        self._of_keys[key] -= 1
        if not self._of_keys[key]:
            del self._of_keys[key]
            self._lost_keys.discard(key)
        self._of_projects[project] -= 1
        if not self._of_projects[project]:
            del self._of_projects[project]
        if tail.followers == 0:
            del self._tails[tail.channel.name, tail.of]

    def close(self) -> None:
        """End all streams now. Followers reconnect, to the next server."""
        self._closing = True
        for tail in self._tails.values():
            tail.waiters.wake_all()

    def _has_ended(self, key: str) -> bool:
        return self._closing or key in self._lost_keys

    async def tell(self, tail: Tail, found: StreamPage, *, key: str, progress: bool) -> AsyncIterator[bytes]:
        """Yield messages until the job ends, the key is lost, the server stops or an error occurs; but for the first, the follower
        reconnects, and one without a valid key is then refused."""
        position = tail.channel.start
        told: ProgressView | None = None
        yield RETRY
        while not self._has_ended(key):
            if news := tail.sent_of(found, position):
                yield news
            position = max(position, found.position)
            if progress and found.progress != told:
                told = found.progress
                yield tail.progress_of(found)
            if found.end:
                yield _message(END, found.end, END)
                return
            while not (tail.has_more(position) or (progress and tail.latest.progress != told) or self._has_ended(key)):
                if not await tail.waiters.woken():
                    yield KEEP_ALIVE
            found = tail.latest if position >= tail.start else await self._read_again(tail, position)

    async def _read_again(self, tail: Tail, position: StreamPosition) -> StreamPage:
        return await USERS.run(partial(read_stream, self._deployment, tail.channel, tail.of, position))

    async def _keep_reading(self) -> None:
        """Read every followed job and project once in `POLL_S`; a few at a time, so that their followers do not all wake at once."""
        while self._tails and not self._closing:
            tails = list(self._tails.values())
            batches = [tails[begin : begin + BATCH] for begin in range(0, len(tails), BATCH)]
            for batch in batches:
                await asyncio.sleep(POLL_S / len(batches))
                with suppress(Unreachable):  # the next read finds the same
                    await self._read_batch(batch)
            with suppress(Unreachable):
                await self._check_keys()
        self._reading = None

    async def _check_keys(self) -> None:
        """End the streams of keys that were revoked or have expired, at every `CHECK_S`."""
        now_s, keys = asyncio.get_running_loop().time(), list(self._of_keys)
        if now_s - self._checked_s < CHECK_S:
            return
        self._checked_s = now_s
        lost = await FOLLOWING.run(lambda: self._try_to_check(keys))
        self._lost_keys |= lost & set(self._of_keys)
        if lost:
            for tail in self._tails.values():
                tail.waiters.wake_all()

    def _try_to_check(self, keys: list[str]) -> set[str]:
        try:
            return lost_credentials(self._deployment, keys, self._deployment.store.now_ms())
        except Unreachable:
            return set()  # the controller logs it
        except Exception:
            log.exception("the keys of followers could not be looked up; the next look tries again")
            return set()

    async def _read_batch(self, batch: list[Tail]) -> None:
        """Read these, and at once again those of which a page did not hold everything, so that none falls behind what is written."""
        for _ in range(PAGES_AT_ONCE):
            asked = [(tail.channel, tail.of, tail.latest.position) for tail in batch]
            pages = await FOLLOWING.run(lambda asked=asked: [self._try_to_read(*one) for one in asked])
            behind = list[Tail]()
            for tail, found in zip(batch, pages, strict=True):
                if found and tail.keep(found):
                    await tail.waiters.wake()
                if found and found.position < found.newest:
                    behind.append(tail)
            if not behind:
                return
            batch = behind

    def _try_to_read(self, channel: Channel, of: str, after: StreamPosition) -> StreamPage | None:
        try:
            return read_stream(self._deployment, channel, of, after)
        except Unreachable:
            return None  # the controller logs it
        except Exception:
            log.exception("%s could not be read for its streams; the next read tries again", of)
            return None


class _Stream(StreamingResponse):
    def __init__(
        self, followers: Followers, tail: Tail, project: str, first: StreamPage, *, key: str, progress: bool
    ) -> None:
        told = followers.tell(tail, first, key=key, progress=progress)
        super().__init__(told, headers=HEADERS, media_type="text/event-stream")
        self._leave = partial(followers.leave, tail, project, key)

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
