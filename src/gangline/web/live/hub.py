"""Send what changes on open screens as server-sent events, with one reader for all of them.

A stream is an asynchronous generator and occupies no thread. Once a second one task looks at the projects whose screens are open, refreshes
the screens that a change concerns, and gives the same bytes to all who look at one. A message has the number of the screen's last change:
a browser that reconnects with it gets what it missed, or `stale` if that is not known any more, and then loads the screen again. A reader
that is slow holds up its own generator alone: it has the place that it has read to, and no copy of what comes after it.
"""

import asyncio
import logging
import re
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gangline.api.answers.waiters import Waiters
from gangline.api.lanes import Lane
from gangline.core.errors import GanglineError, TooMany, Unreachable
from gangline.core.server.limits import Limits
from gangline.service.access.access import lost_credentials
from gangline.service.deployment import Deployment
from gangline.web.frame.rendering import digest_of_html
from gangline.web.live.feed import Changes, ProjectFeed
from gangline.web.live.left import LeftScreens
from gangline.web.live.screens import LiveScreen

LIVE = Lane("live", threads=1, waiting_max=2_000, wait_s=30)
ROUND_S = 1.0
PAUSE_PER_ROUND = 3.0
"""A pause is at least this many times as long as the round before it, so that many open screens take a quarter of a core at most."""
SLOW_ROUND_MS = 2_000
"""The time between two looks at a screen that shows no project's jobs, such as the fleet."""
AGAIN_MS = 30_000
"""The time after which a screen is read as a whole: reasons to wait change with time alone."""
SCREENS_MAX = 300
"""The most screens that differ: each keeps its fragments and its last changes, and is looked up by itself."""
SCREENS_PER_KEY_MAX = 60
"""The most of them that all sessions of one key follow: nobody takes all of them from the others."""
KEPT_BYTES = 1_000_000
"""What is kept of a screen's last changes, for browsers that reconnect."""
PIECE_BYTES = 65_536
"""A reader gets its messages in pieces of about this size: each piece costs the event loop a write."""
CHECK_MS = 15_000
FOLLOW_AGAIN_S = 15.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
KEEP_ALIVE = b"event: alive\ndata: .\n\n"
"""An event, and no comment: the page's script sees it, and so notices a stream that is cut without a word."""
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
        self.read_ms: int | None = None
        """When it was read as a whole last; None: it has not been since its project is watched, so changes may have been missed."""
        self.gone: GanglineError | None = None
        self._name = secrets.token_urlsafe(6)
        self._log = deque[_Sent]()
        self._bytes = 0
        self._whole = (b"", "", -1)
        self.waiters = Waiters()

    def keep(self, html: str) -> None:
        """Keep what all who look at it are sent next."""
        self.number += 1
        message = _message(html, f"{self._name}.{self.number}")
        self._log.append(_Sent(self.number, message))
        self._bytes += len(message)
        while self._bytes > KEPT_BYTES and len(self._log) > 1:
            self._bytes -= len(self._log.popleft().message)

    def known(self, last: str) -> int | None:
        """Return the number of the change that a browser with this last message's id knows; None if what came after is not kept."""
        name, _, number = last.rpartition(".")
        known = int(number) if name == self._name and number.isdecimal() and len(number) < 16 else None
        return None if known is None or self.after(known) is None else known

    def after(self, number: int) -> tuple[bytes, int] | None:
        """Return the next messages after this change, and the number of the last of them; None if some are not kept any more."""
        if number > self.number or (number < self.number and self._log[0].number > number + 1):
            return None
        found, taken = list[bytes](), 0
        while number < self.number and taken < PIECE_BYTES:
            message = self._log[number + 1 - self._log[0].number].message
            found.append(message)
            number, taken = number + 1, taken + len(message)
        return b"".join(found), number

    def whole(self, number: int, shown: str) -> bytes:
        """Return the message that brings a page up to date, as of this change: without HTML if that is what it has `shown` since it was
        loaded. It is made once for all who come before the next."""
        name = f"{self._name}.{number}"
        if self._whole[2] != number:
            html = self.screen.whole()
            self._whole = _message(html, name), digest_of_html(html), number
        return _event("alive", name) if shown == self._whole[1] else self._whole[0]

    def stale(self) -> bytes:
        return _event("stale", f"{self._name}.{self.number}")


class LiveHub:
    """All screens that are open at this server. They are looked up every `round_s`."""

    def __init__(self, deployment: Deployment, limits: Limits, *, round_s: float = ROUND_S) -> None:
        self._deployment = deployment
        self._limits = limits
        self._round_s = round_s
        self._screens: dict[Hashable, OpenScreen] = {}
        self._opening: dict[Hashable, asyncio.Task[OpenScreen]] = {}
        self._left = LeftScreens[OpenScreen]()
        self._feeds: dict[str, ProjectFeed] = {}
        self._keys: Counter[str] = Counter()
        self._of_owners: dict[str, Counter[Hashable]] = {}
        self._lost_keys = set[str]()
        self._checked_ms = 0
        self._reading: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def followers(self) -> int:
        """The pages that are open."""
        return sum(self._keys.values())

    async def follow(
        self, name: Hashable, make: Callable[[], LiveScreen], *, key: str, owner: str, last: str, shown: str = ""
    ) -> StreamingResponse:
        """Return the stream of a screen. All who give the same `name` look at one, which `make` makes for the first of them.

        `last` is the id of the last message that the browser got, and `shown` the digest of what its page was loaded with; empty for none.
        The stream ends once `key`, the proof of the identity that asks, is not valid any more; `owner` is the credential of all its
        sessions. Raise `TooMany`, or what refuses the screen.
        """
        self._refuse()
        self._take(owner, name)
        try:
            found = self._screens.get(name) or await self._open(name, make)
            self._refuse(found.screen.project)  # others came while this one waited
        except BaseException:
            self._give_back(owner, name)
            raise
        found = self._screens.setdefault(name, found)
        found.followers += 1
        self._keys[key] += 1
        if self._reading is None:
            self._reading = asyncio.create_task(self._keep_reading())
        return _Stream(self._messages(found, key, last, shown), lambda: self._leave(name, found, key, owner))

    def close(self) -> None:
        """End all streams now. Browsers reconnect, to the next server."""
        self._closing = True
        for each in self._screens.values():
            each.waiters.wake_all()

    async def round(self) -> None:
        """Look for changes once, and send them to all who follow a screen that they concern."""
        screens = list(self._screens.items())
        projects = {each.screen.project for _, each in screens if each.screen.project is not None}
        self._feeds = {project: self._feeds.get(project) or ProjectFeed(project) for project in projects}
        feeds = list(self._feeds.values())
        now_ms, looked = await LIVE.run(
            lambda: (self._deployment.store.now_ms(), [feed.look(self._deployment) for feed in feeds])
        )
        changes = dict(zip((feed.project for feed in feeds), looked, strict=True))
        for name, each in screens:
            of = changes.get(each.screen.project) if each.screen.project is not None else None
            again_ms = SLOW_ROUND_MS if each.screen.project is None else AGAIN_MS
            again = each.read_ms is None or not 0 <= now_ms - each.read_ms < again_ms
            if each.followers and (again or (of is not None and each.screen.is_about(of))):
                await self._refresh(name, each, None if again else of, now_ms)
        if not 0 <= now_ms - self._checked_ms < CHECK_MS:
            self._checked_ms = now_ms
            await self._check_keys(now_ms)

    def _refuse(self, project: str | None = None) -> None:
        """Raise what refuses one more follower of this project; without one, of any."""
        if self._closing:
            raise Unreachable("the server is stopping", hint="try again")
        if self.followers >= self._limits.followers_max:
            raise TooMany("too many pages of this server are open", wait_s=FOLLOW_AGAIN_S)
        if project is None:
            return
        of_project = sum(each.followers for each in self._screens.values() if each.screen.project == project)
        if of_project >= self._limits.followers_per_project_max:
            raise TooMany("too many pages of this project are open", wait_s=FOLLOW_AGAIN_S)

    def _take(self, owner: str, name: Hashable) -> None:
        """Note that this key follows one more stream. Raise `TooMany` if it follows too many different screens."""
        names = self._of_owners.setdefault(owner, Counter())
        if name not in names and len(names) >= SCREENS_PER_KEY_MAX:
            raise TooMany("too many different pages are open with this key", wait_s=FOLLOW_AGAIN_S)
        names[name] += 1

    def _give_back(self, owner: str, name: Hashable) -> None:
        names = self._of_owners[owner]
        names[name] -= 1
        if not names[name]:
            del names[name]
        if not names:
            del self._of_owners[owner]

    async def _open(self, name: Hashable, make: Callable[[], LiveScreen]) -> OpenScreen:
        """Return a screen as it was just read: once for all who ask for it meanwhile, as browsers do together after a restart."""
        opening = self._opening.get(name)
        if opening is None:
            if len(self._screens) + len(self._opening) >= SCREENS_MAX:
                raise TooMany("too many different pages of this server are open", wait_s=FOLLOW_AGAIN_S)
            left = self._left.take(name)
            reading = self._read_first(make()) if left is None else self._read_again(left)
            opening = self._opening[name] = asyncio.create_task(reading)
            opening.add_done_callback(lambda _: self._opening.pop(name, None))
        return await asyncio.shield(opening)  # the others wait on when one of them leaves

    async def _read_first(self, screen: LiveScreen) -> OpenScreen:
        await LIVE.run(lambda: screen.refresh(self._deployment, None))
        return OpenScreen(screen)

    async def _read_again(self, left: OpenScreen) -> OpenScreen:
        """Return a screen that nobody has followed for a while, with what has changed meanwhile."""
        if html := await LIVE.run(lambda: left.screen.refresh(self._deployment, None)):
            left.keep(html)
        left.read_ms = None
        return left

    async def _messages(self, screen: OpenScreen, key: str, last: str, shown: str) -> AsyncIterator[bytes]:
        first, number = await self._beginning(screen, last, shown)
        yield first
        while not self._has_ended(key):
            if screen.gone is not None:
                yield _event("gone", "")
                return
            news = screen.after(number)
            if news is None:
                number = screen.number
                yield screen.stale()
            elif news[0]:
                number = news[1]
                yield news[0]
            elif not await screen.waiters.woken():
                yield KEEP_ALIVE
        if key in self._lost_keys:
            yield _event("signed-out", "")

    async def _beginning(self, screen: OpenScreen, last: str, shown: str) -> tuple[bytes, int]:
        """Return what a follower is sent first, with the server's time, and the number of the change up to which it then knows all."""
        known = screen.known(last) if last else None
        number = screen.number if known is None else known  # a change that comes meanwhile is sent again: no harm
        stale = screen.stale() if last and known is None else b""

        def read() -> bytes:
            clock = _event("alive", "", str(self._deployment.store.now_ms()))
            return (stale if last else screen.whole(number, shown)) + clock

        return await LIVE.run(read), number

    def _has_ended(self, key: str) -> bool:
        return self._closing or key in self._lost_keys

    def _leave(self, name: Hashable, screen: OpenScreen, key: str, owner: str) -> None:
        self._give_back(owner, name)
        self._keys[key] -= 1
        if not self._keys[key]:
            del self._keys[key]
            self._lost_keys.discard(key)
        screen.followers -= 1
        if not screen.followers and self._screens.get(name) is screen:
            del self._screens[name]
            self._left.keep(name, screen)

    async def _keep_reading(self) -> None:
        loop, took_s = asyncio.get_running_loop(), 0.0
        try:
            while self._screens and not self._closing:
                await asyncio.sleep(max(self._round_s, PAUSE_PER_ROUND * took_s))
                began_s = loop.time()
                try:
                    await self.round()
                except Unreachable:
                    pass  # the controller logs it, and the next round tries again
                except Exception:
                    log.exception("open pages could not be brought up to date; the next round tries again")
                took_s = loop.time() - began_s
        finally:
            self._reading = None
            self._feeds = {}  # one that is old would read all that has happened since

    async def _refresh(self, name: Hashable, each: OpenScreen, changes: Changes | None, now_ms: int) -> None:
        try:
            html = await LIVE.run(lambda: each.screen.refresh(self._deployment, changes))
        except Unreachable:
            return  # the controller logs it, and the next round tries again
        except GanglineError as error:
            each.gone = error
            self._screens.pop(name, None)
            await each.waiters.wake()
            return
        except Exception:
            log.exception("an open screen could not be refreshed; the next round tries again")
            return
        if changes is None:
            each.read_ms = now_ms
        if html:
            each.keep(html)
            await each.waiters.wake()

    async def _check_keys(self, now_ms: int) -> None:
        keys = list(self._keys)
        lost = await LIVE.run(lambda: lost_credentials(self._deployment, keys, now_ms))
        self._lost_keys |= lost & set(self._keys)
        if lost:
            for each in list(self._screens.values()):
                await each.waiters.wake()


class _Stream(StreamingResponse):
    def __init__(self, messages: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(messages, headers=HEADERS, media_type="text/event-stream")
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


def _event(name: str, number: str, data: str = ".") -> bytes:
    return (f"event: {name}\n" + (f"id: {number}\n" if number else "") + f"data: {data}\n\n").encode()
