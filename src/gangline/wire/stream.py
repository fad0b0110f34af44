"""Read server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): the parts that need no connection."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import httpx
from pydantic import TypeAdapter

from gangline.core.errors import Unreachable

SILENT_S_MAX = 45.0
"""Seconds of silence after which the connection counts as lost: the server sends a keep-alive every 15 s."""
CONNECT_S_MAX = 5.0
END = "end"
Waiting = Callable[[Unreachable], None]


@dataclass(frozen=True, slots=True)
class StreamMessage:
    event: str
    data: str
    id: str


class MessageParser:
    """Makes messages of the bytes of a stream, in whatever pieces these arrive."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> Iterator[StreamMessage]:
        """Yield the messages that a piece completes. One that is cut off at the end of the stream is dropped.

        Lines end with LF or CR LF: Python and httpx also split at U+2028 and form feeds.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield from self._take(line.removesuffix(b"\r").decode(errors="replace"))

    def _take(self, line: str) -> Iterator[StreamMessage]:
        fields = self._fields
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
            return
        self._fields = {}
        if "data" in fields:
            yield StreamMessage(fields.get("event", "message"), fields["data"], fields.get("id", ""))


def parse_message(message: StreamMessage, kinds: Mapping[str, Any]) -> Any:
    try:
        return TypeAdapter(kinds[message.event]).validate_json(message.data)
    except (KeyError, ValueError):
        raise Unreachable(
            f"the stream has a message {message.event!r}, which no Gangline server of this version sends",
            hint="check the address of the server, and that its version is not newer",
        ) from None


def moment_after(seconds: float | None) -> float | None:
    """Return the moment of the monotonic clock that a time limit ends at; None is no limit."""
    return None if seconds is None else monotonic() + seconds


def seconds_left(until_s: float | None, longest_s: float) -> float:
    """Return the seconds until a moment of the monotonic clock, at most `longest_s`."""
    return longest_s if until_s is None else max(0.0, min(longest_s, until_s - monotonic()))


def stream_timeout(until_s: float | None) -> httpx.Timeout:
    """Return the timeouts of a connection that nobody needs after `until_s`. Zero would mean none at all to some of httpx's layers."""
    return httpx.Timeout(
        max(0.01, seconds_left(until_s, SILENT_S_MAX)), connect=max(0.01, seconds_left(until_s, CONNECT_S_MAX))
    )
