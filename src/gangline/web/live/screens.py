"""What the stream of an open screen is made of: fragments of its page, each under the id of the element that it replaces."""

from collections.abc import Mapping
from typing import Protocol

from gangline.service.deployment import Deployment
from gangline.web.live.feed import Changes


class LiveScreen(Protocol):
    """A screen as all who look at it with one role and one address see it. Its methods are called by one thread at a time."""

    project: str | None
    """Whose jobs it shows; None: it shows none, and is looked up again at every round."""

    def is_about(self, changes: Changes) -> bool:
        """Return whether these changes may concern it."""
        ...

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        """Return the HTML that brings an open page up to date; empty if nothing has changed. Without `changes`, all is read again.

        Elements in it replace those of their id (`hx-swap-oob`). Raise a `GanglineError` if there is no such screen any more.
        """
        ...

    def whole(self) -> str:
        """Return the HTML that brings any page of this screen up to date, from what was read last."""
        ...


class Fragments:
    """The fragments of a screen as they were sent last."""

    def __init__(self) -> None:
        self._sent: dict[str, str] = {}

    def changed(self, rendered: Mapping[str, str]) -> str:
        """Return those that differ from what was sent, and keep them."""
        found = [html for name, html in rendered.items() if self._sent.get(name) != html]
        self._sent |= rendered
        return "".join(found)

    def forget(self, name: str) -> None:
        self._sent.pop(name, None)

    def whole(self) -> str:
        return "".join(self._sent.values())


class ReadPace:
    """When a screen that changes with time alone is read again: every `every_ms` at most, and so that reading it takes at most one part in
    `share` of the server's time."""

    def __init__(self, share: int, every_ms: int = 0) -> None:
        self._share, self._every_ms, self._due_ms = share, every_ms, 0

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self._due_ms

    def was_read(self, begun_ms: int, now_ms: int) -> None:
        self._due_ms = begun_ms + max(self._every_ms, self._share * (now_ms - begun_ms))
