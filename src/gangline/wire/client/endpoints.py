# Made of src/gangline/wire/aio/endpoints.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""The client's requests about endpoints and their notices."""

from collections.abc import Iterable, Iterator
from typing import Any

import httpx

from gangline.core.notices.kinds import NoticeKind
from gangline.core.notices.views import (
    EndpointState,
    EndpointView,
    NewEndpoint,
    NoticeChannel,
    NoticePage,
    NoticeTestView,
    NoticeView,
    ReplayView,
)
from gangline.wire.client.calls import Calls
from gangline.wire.http import path_of

# a test waits for the receiver: a minute at most, or for a mail server five (the bounds of `answer_s`)
NOTICE_TEST_TIMEOUT = httpx.Timeout(330, connect=5)


class EndpointCalls(Calls):
    """What a client asks about who receives what happens. `endpoint` is an id or a name."""

    def list(self) -> Iterator[EndpointView]:
        """Yield the project's endpoints, without their addresses."""
        for endpoint in self._http.read(list[EndpointView], "GET", "/v1/notices/endpoints"):
            yield endpoint

    def get(self, endpoint: str) -> EndpointView:
        """Return an endpoint, without its address. Raise `NotFound`."""
        return self._http.read(EndpointView, "GET", _path(endpoint))

    def add(
        self,
        address: str,
        *,
        name: str = "",
        channel: NoticeChannel = "webhook",
        kinds: Iterable[NoticeKind] = (),
        interval_s: float | None = None,
        quiet: str = "",
    ) -> NewEndpoint:
        """Add an endpoint; its name is by default that of its channel. The secret that verifies its webhooks is in this answer alone."""
        body = {"name": name, "address": address, "channel": channel, "kinds": list(kinds), "quiet": quiet}
        body |= {} if interval_s is None else {"interval_s": interval_s}
        return self._http.read(NewEndpoint, "POST", "/v1/notices/endpoints", body)

    def set(
        self,
        endpoint: str,
        *,
        name: str | None = None,
        kinds: Iterable[NoticeKind] | None = None,
        interval_s: float | None = None,
        quiet: str | None = None,
        state: EndpointState | None = None,
    ) -> EndpointView:
        """Change an endpoint; what is None stays."""
        given = {"name": name, "interval_s": interval_s, "quiet": quiet, "state": state}
        given |= {"kinds": None if kinds is None else list(kinds)}
        changes = {field: value for field, value in given.items() if value is not None}
        return self._http.read(EndpointView, "PATCH", _path(endpoint), changes)

    def remove(self, endpoint: str) -> None:
        """Delete an endpoint with its log. Repeating this changes nothing."""
        self._http.ask("DELETE", _path(endpoint))

    def rotate(self, endpoint: str, *, old_s: float | None = None) -> NewEndpoint:
        """Make a new signing secret. Messages are signed with the old one, too, for `old_s` seconds (None: a day)."""
        body = {} if old_s is None else {"old_s": old_s}
        return self._http.read(NewEndpoint, "POST", _path(endpoint, "rotate"), body)

    def test(self, endpoint: str) -> NoticeTestView:
        """Send a test message, and return what came of it."""
        path = _path(endpoint, "test")
        return self._http.read(NoticeTestView, "POST", path, timeout=NOTICE_TEST_TIMEOUT)

    def log(self, endpoint: str) -> Iterator[NoticeView]:
        """Yield the log of deliveries of an endpoint, newest first."""
        before: int | None = None
        while True:
            params: dict[str, Any] = {} if before is None else {"before": before}
            page = self._http.read(NoticePage, "GET", _path(endpoint, "log"), params=params)
            for notice in page.notices:
                yield notice
            before = page.next
            if before is None:
                return

    def replay_message(self, endpoint: str, message: str) -> ReplayView:
        """Send a message of the log again, with the same id."""
        return self._replay(endpoint, {"message": message})

    def replay_facts(self, endpoint: str, *, after: int = 0, since_ms: int = 0) -> ReplayView:
        """Send all facts after a number and since a moment, that the endpoint receives, until as many wait as may. If there may be
        `more` then, ask again after the fact number `through` when some have been delivered."""
        replayed = 0
        while True:
            found = self._replay(endpoint, {"after": after, "since_ms": since_ms})
            replayed, after = replayed + found.replayed, found.through
            if not found.more or not found.replayed:
                return ReplayView(replayed=replayed, through=after, more=found.more)

    def _replay(self, endpoint: str, body: dict[str, Any]) -> ReplayView:
        return self._http.read(ReplayView, "POST", _path(endpoint, "replay"), body)


def _path(endpoint: str, *more: str) -> str:
    return path_of("notices", "endpoints", endpoint, *more)
