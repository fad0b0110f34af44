"""Read the news of a job's events or its log since the last read. Writes nothing."""

from collections.abc import Callable
from dataclasses import dataclass

from gangline.core.errors import NotFound
from gangline.core.job import ENDED
from gangline.core.views import EndView, EventView, LogView, ProgressView
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.jobs.query import is_number, read_log

LOG_PIECE_BYTES = 64 * 1024
EVENTS_MAX = 500
StreamPosition = tuple[int, ...]
"""A position in a stream: (number of the last event), or (fencing number, first byte not yet sent) of the log."""


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """A message of a stream. `position` is the one after it."""

    position: StreamPosition
    value: EventView | LogView


@dataclass(frozen=True, slots=True)
class Channel:
    """A stream of a job: its events or its log. `newest` returns the position up to which there is something, from the job's row."""

    name: str
    start: StreamPosition
    newest: Callable[[Row], StreamPosition]
    read: Callable[[Deployment, str, StreamPosition], list[StreamPiece]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPage:
    """The next messages. They end at `position`, which may be before `newest`. If `end` is set, nothing more will come."""

    pieces: tuple[StreamPiece, ...]
    position: StreamPosition
    newest: StreamPosition
    progress: ProgressView
    end: EndView | None


def read_stream(deployment: Deployment, channel: Channel, job: str, after: StreamPosition) -> StreamPage:
    """Read the next messages. The state is read first, so that everything that happened before an end is among the messages before it."""
    row = deployment.store.load("followed", id=job)[0]
    newest = channel.newest(row)
    pieces = tuple(channel.read(deployment, job, after)) if newest > after else ()
    position = pieces[-1].position if pieces else max(newest, after)
    ended = row["state"] in ENDED and position >= newest
    return StreamPage(
        pieces=pieces,
        position=position,
        newest=newest,
        progress=ProgressView(**{name: row[name] for name in ProgressView.__slots__}),
        end=EndView(state=row["state"], because=row["because"]) if ended else None,
    )


def cursor(position: StreamPosition) -> str:
    return ".".join(map(str, position))


def position_of(channel: Channel, cursor: str | None) -> StreamPosition:
    """Return the position of a cursor; the channel's start if there is none. Raise `NotFound` if it is no cursor of this channel."""
    if not cursor:
        return channel.start
    parts = cursor.split(".")
    if len(parts) != len(channel.start) or not all(is_number(part) for part in parts):
        raise NotFound(
            f"{cursor} is not the id of a message of this stream",
            hint="use the id of the last message that you received",
        )
    return tuple(int(part) for part in parts)


def _events(deployment: Deployment, job: str, after: StreamPosition) -> list[StreamPiece]:
    rows = deployment.store.load("events", job=job, after=after[0])[:EVENTS_MAX]
    return [StreamPiece((row["number"],), EventView(**row)) for row in rows]


def _log(deployment: Deployment, job: str, after: StreamPosition) -> list[StreamPiece]:
    fencing, first_byte = after
    found = read_log(deployment, job, fencing, first_byte, LOG_PIECE_BYTES)
    return [StreamPiece(position_of(LOG, found.next), found)] if found.text else []


EVENTS = Channel("event", (0,), lambda row: (row["number"] or 0,), _events)
LOG = Channel(
    "log",
    (0, 0),
    lambda row: (row["fencing"], 0 if row["first_byte"] is None else row["first_byte"] + 1),
    _log,
)
