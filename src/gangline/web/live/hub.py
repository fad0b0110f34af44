"""Send what changes on open screens as server-sent events, with one reader for all of them.

A stream is an asynchronous generator and occupies no thread. Once a second one task looks at the projects whose screens are open, refreshes
the screens that a change concerns, and gives the same bytes to all who look at one. A message has the number of the screen's last change:
a browser that reconnects with it gets what it missed, or `stale` if that is not known any more, and then loads the screen again.
"""

import asyncio
import logging
import re
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gangline.api.lanes import Lane
from gangline.core.errors import GanglineError, TooMany, Unreachable
from gangline.core.server.limits import Limits
from gangline.service.access.access import lost_credentials
from gangline.service.deployment import Deployment
from gangline.web.live.feed import NO_CHANGES, ProjectFeed
from gangline.web.live.screens import LiveScreen

LIVE = Lane("live", threads=1, waiting_max=2_000, wait_s=30)
ROUND_S = 1.0
SLOW_ROUND_S = 2.0
"""Seconds between two looks at a screen that shows no project's jobs, such as the fleet."""
AGAIN_S = 30.0
"""Seconds after which a screen is read as a whole: reasons to wait change with time alone, and a deleted job has no fact."""
KEPT_BYTES = 1_000_000
"""What is kept of a screen's last changes, for browsers that reconnect."""
KEEP_ALIVE_S = 15.0
CHECK_S = 15.0
WOKEN_AT_ONCE = 25
FOLLOW_AGAIN_S = 15.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
log = logging.getLogger("gangline.web")


@dataclass(slots=True)
class _Sent:
    number: int
    message: bytes


class OpenScreen:
    """A screen that somebody looks at, and the messages of its last changes."""

    def __init__(self, screen: LiveScreen) -> None:
        self.screen = screen
        self.followers = 0
        self.number = 0
        self.read_s = 0.0
        self.gone: GanglineError | None = None
        self._name = secrets.token_urlsafe(6)
        self._log = deque[_Sent]()
        self._bytes = 0
        self._waiting: list[asyncio.Future[None]] = []

    def keep(self, html: str) -> None:
        """Keep what all who look at it are sent next."""
        self.number += 1
        message = _message(html, f"{self._name}.{self.number}")
        self._log.append(_Sent(self.number, message))
        self._bytes += len(message)
        while self._bytes > KEPT_BYTES and len(self._log) > 1:
            self._bytes -= len(self._log.popleft().message)

    def beginning(self, last: str) -> tuple[bytes, int]:
        """Return what a follower is sent first, and the number of the change up to which it then knows all.

        `last` is the id of the last message that it got; empty for a page that was just loaded.
        """
        if not last:
            return _message(self.screen.whole(), f"{self._name}.{self.number}"), self.number
        name, _, number = last.rpartition(".")
        known = int(number) if name == self._name and number.isdecimal() and len(number) < 16 else None
        if known is None or self.after(known) is None:
            return _event("stale", f"{self._name}.{self.number}"), self.number
        return b"", known

    def after(self, number: int) -> bytes | None:
        """Return the messages after this change; None if some of them are not kept any more."""
        if number > self.number or (number < self.number and self._log[0].number > number + 1):
            return None
        return b"".join(sent.message for sent in self._log if sent.number > number)

    def stale(self) -> bytes:
        return _event("stale", f"{self._name}.{self.number}")

    async def woken(self) -> bool:
        """Wait for news. Return False if there was none for `KEEP_ALIVE_S`."""
        news = asyncio.get_running_loop().create_future()
        self._waiting.append(news)
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await news
        except TimeoutError:
            return False
        finally:
            with suppress(ValueError):
                self._waiting.remove(news)
        return True

    async def wake(self) -> None:
        """Wake who waits, some at a time: what a heartbeat sends is read between them."""
        waiting, self._waiting = self._waiting, []
        for begin in range(0, len(waiting), WOKEN_AT_ONCE):
            for news in waiting[begin : begin + WOKEN_AT_ONCE]:
                if not news.done():
                    news.set_result(None)
            await asyncio.sleep(0)


class Hub:
    """All screens that are open at this server."""

    def __init__(self, deployment: Deployment, limits: Limits) -> None:
        self._deployment = deployment
        self._limits = limits
        self._screens: dict[Hashable, OpenScreen] = {}
        self._feeds: dict[str, ProjectFeed] = {}
        self._keys: Counter[str] = Counter()
        self._lost_keys = set[str]()
        self._checked_s = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._closing = False

    async def follow(self, name: Hashable, make: Callable[[], LiveScreen], *, key: str, last: str) -> StreamingResponse:
        """Return the stream of a screen. All who give the same `name` look at one, which `make` makes for the first of them.

        It ends once `key`, the id of the credential that asks, is not valid any more. Raise `TooMany`, or what refuses the screen.
        """
        if sum(self._keys.values()) >= self._limits.followers_max:
            raise TooMany("too many pages of this server are open", wait_s=FOLLOW_AGAIN_S)
        if self._closing:
            raise Unreachable("the server is stopping", hint="try again")
        found = self._screens.get(name)
        if found is None:
            made = OpenScreen(make())
            await LIVE.run(lambda: made.screen.refresh(self._deployment, None))
            made.read_s = asyncio.get_running_loop().time()
            found = self._screens.setdefault(name, made)
        found.followers += 1
        self._keys[key] += 1
        if self._reading is None:
            self._reading = asyncio.create_task(self._keep_reading())
        return _Stream(self._told(found, key, last), lambda: self._leave(name, found, key))

    def close(self) -> None:
        """End all streams now. Browsers reconnect, to the next server."""
        self._closing = True
        for each in self._screens.values():
            asyncio.ensure_future(each.wake())  # noqa: RUF006 # it ends with the loop

    async def _told(self, screen: OpenScreen, key: str, last: str) -> AsyncIterator[bytes]:
        first, number = screen.beginning(last)
        yield b"retry: 1000\n\n" + first
        while not self._has_ended(key):
            if screen.gone is not None:
                yield _event("gone", "")
                return
            news = screen.after(number)
            number = screen.number
            if news is None:
                yield screen.stale()
            elif news:
                yield news
            elif not await screen.woken():
                yield b":\n\n"
        if key in self._lost_keys:
            yield _event("signed-out", "")

    def _has_ended(self, key: str) -> bool:
        return self._closing or key in self._lost_keys

    def _leave(self, name: Hashable, screen: OpenScreen, key: str) -> None:
        self._keys[key] -= 1
        if not self._keys[key]:
            del self._keys[key]
            self._lost_keys.discard(key)
        screen.followers -= 1
        if not screen.followers and self._screens.get(name) is screen:
            del self._screens[name]

    async def _keep_reading(self) -> None:
        try:
            while self._screens and not self._closing:
                await asyncio.sleep(ROUND_S)
                with suppress(Unreachable):  # the next round finds the same
                    await self._round()
        finally:
            self._reading = None

    async def _round(self) -> None:
        now_s = asyncio.get_running_loop().time()
        screens = list(self._screens.items())
        projects = {each.screen.project for _, each in screens if each.screen.project is not None}
        self._feeds = {project: self._feeds.get(project) or ProjectFeed(project) for project in projects}
        feeds = list(self._feeds.values())
        looked = await LIVE.run(lambda: [feed.look(self._deployment) for feed in feeds])
        changes = dict(zip((feed.project for feed in feeds), looked, strict=True))
        for name, each in screens:
            of = changes.get(each.screen.project, NO_CHANGES) if each.screen.project is not None else None
            again = now_s - each.read_s >= (SLOW_ROUND_S if of is None else AGAIN_S)
            if each.followers and (again or (of is not None and each.screen.is_about(of))):
                await self._refresh(name, each, None if again else of, now_s)
        if now_s - self._checked_s >= CHECK_S:
            self._checked_s = now_s
            await self._check_keys()

    async def _refresh(self, name: Hashable, each: OpenScreen, changes: object, now_s: float) -> None:
        try:
            html = await LIVE.run(lambda: each.screen.refresh(self._deployment, changes))  # type: ignore[arg-type]
        except Unreachable:
            return  # the controller logs it, and the next round tries again
        except GanglineError as error:
            each.gone = error
            self._screens.pop(name, None)
            await each.wake()
            return
        except Exception:
            log.exception("an open screen could not be refreshed; the next round tries again")
            return
        if changes is None:
            each.read_s = now_s
        if html:
            each.keep(html)
            await each.wake()

    async def _check_keys(self) -> None:
        keys = list(self._keys)
        lost = await LIVE.run(lambda: lost_credentials(self._deployment, keys, self._deployment.store.now_ms()))
        self._lost_keys |= lost & set(self._keys)
        if lost:
            for each in list(self._screens.values()):
                await each.wake()


class _Stream(StreamingResponse):
    def __init__(self, told: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(told, headers=HEADERS, media_type="text/event-stream")
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _message(html: str, number: str) -> bytes:
    """Return HTML as a message of the HTML standard's event stream, which the page swaps in."""
    lines = re.split("\r\n|\r|\n", html)
    return (f"id: {number}\n" + "".join(f"data: {line}\n" for line in lines) + "\n").encode()


def _event(name: str, number: str) -> bytes:
    return (f"event: {name}\n" + (f"id: {number}\n" if number else "") + "data: .\n\n").encode()
