"""Read server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) until their end, across interruptions."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import TypeAdapter

from gangline.core.errors import Unreachable
from gangline.core.jobs.retry import retry_s
from gangline.wire.http import Http

SILENT_S_MAX = 45.0
"""Seconds of silence after which the connection counts as lost: the server sends a keep-alive every 15 s."""
END = "end"
Waiting = Callable[[Unreachable], None]


@dataclass(frozen=True, slots=True)
class Message:
    event: str
    data: str
    id: str


def follow_stream(http: Http, path: str, last_id: str, waiting: Waiting) -> Iterator[Message]:
    """Yield every message once, up to the `end`. Raise the error of a problem, and `Unreachable` if the first connection fails."""
    tries, began, rng = 0, False, Random()  # noqa: S311 - for jitter
    while True:
        try:
            with http.stream(path, last_id, silent_s_max=SILENT_S_MAX) as answer:
                tries, began = 0, True
                for message in messages(lines_of(answer.iter_bytes())):
                    last_id = message.id or last_id
                    yield message
                    if message.event == END:
                        return
        except Unreachable as error:
            if not began:
                raise
            waiting(error)
        threading.Event().wait(retry_s(tries, rng))
        tries += 1


def lines_of(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines, each ended by LF or CR LF: Python and httpx also split at U+2028 and form feeds."""
    held = b""
    for chunk in chunks:
        *whole, held = (held + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r").decode(errors="replace") for line in whole)


def messages(lines: Iterator[str]) -> Iterator[Message]:
    """Yield the messages. A blank line ends a message; one that is cut off is dropped."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
        elif "data" in fields:
            yield Message(fields.get("event", "message"), fields["data"], fields.get("id", ""))
        if not line:
            fields = {}


def parse_message(message: Message, kinds: Mapping[str, type]) -> Any:
    try:
        return TypeAdapter(kinds[message.event]).validate_json(message.data)
    except (KeyError, ValueError):
        raise Unreachable(
            f"the stream has a message {message.event!r}, which no Gangline server of this version sends",
            hint="check the address of the server, and that its version is not newer",
        ) from None
