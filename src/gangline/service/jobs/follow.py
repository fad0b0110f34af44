"""Read the news of a stream since the last read: a job's events or its log, or the facts of a project. Writes nothing."""

from collections.abc import Callable
from dataclasses import dataclass

from gangline.core.errors import NotFound
from gangline.core.job import ENDED
from gangline.core.views import EndView, EventView, FactView, LogView, ProgressView
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.facts import facts_after, last_fact
from gangline.service.jobs.query import is_number, read_log

LOG_PIECE_BYTES = 64 * 1024
EVENTS_MAX = 500
StreamPosition = tuple[int, ...]
"""A position in a stream: (number of the last event or fact), or (fencing number, first byte not yet sent) of the log."""


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """A message of a stream. `position` is the one after it."""

    position: StreamPosition
    value: EventView | LogView | FactView


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHead:
    """How far a stream has come. `end` is set once nothing is added after `newest`; a project's facts have neither progress nor end."""

    newest: StreamPosition
    progress: ProgressView | None = None
    end: EndView | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """A kind of stream: `look` and `read` are called with the id of the job or the project that it is of."""

    name: str
    start: StreamPosition
    look: Callable[[Deployment, str], StreamHead]
    read: Callable[[Deployment, str, StreamPosition], list[StreamPiece]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPage:
    """The next messages. They end at `position`, which may be before `newest`. If `end` is set, nothing more will come."""

    pieces: tuple[StreamPiece, ...]
    position: StreamPosition
    newest: StreamPosition
    progress: ProgressView | None
    end: EndView | None


def read_stream(deployment: Deployment, channel: Channel, of: str, after: StreamPosition) -> StreamPage:
    """Read the next messages. The head is read first, so that everything that happened before an end is among the messages before it."""
    head = channel.look(deployment, of)
    pieces = tuple(channel.read(deployment, of, after)) if head.newest > after else ()
    position = pieces[-1].position if pieces else max(head.newest, after)
    return StreamPage(
        pieces=pieces,
        position=position,
        newest=head.newest,
        progress=head.progress,
        end=head.end if position >= head.newest else None,
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


def refuse_beyond(position: StreamPosition, newest: StreamPosition) -> None:
    """Raise `NotFound` if a reader has received what this stream does not have yet: it would wait for good, or miss what comes.

    A log is compared by attempts, as its newest position is the beginning of a piece.
    """
    if position[0] > newest[0]:
        raise NotFound(
            f"{cursor(position)} is after the last message of this stream, {cursor(newest)}",
            hint="the database may be an older copy: follow again from the start, without a number",
        )


def _events(deployment: Deployment, job: str, after: StreamPosition) -> list[StreamPiece]:
    rows = deployment.store.load("events", job=job, after=after[0])[:EVENTS_MAX]
    return [StreamPiece((row["number"],), EventView(**row)) for row in rows]


def _log(deployment: Deployment, job: str, after: StreamPosition) -> list[StreamPiece]:
    fencing, first_byte = after
    found = read_log(deployment, job, fencing, first_byte, LOG_PIECE_BYTES)
    return [StreamPiece(position_of(LOG, found.next), found)] if found.text else []


def _facts(deployment: Deployment, project: str, after: StreamPosition) -> list[StreamPiece]:
    return [StreamPiece((fact.number,), fact) for fact in facts_after(deployment, project, after[0])]


def _of_job(newest: Callable[[Row], StreamPosition]) -> Callable[[Deployment, str], StreamHead]:
    """Return what looks at a job; `newest` returns the position up to which there is something, from its row."""

    def look(deployment: Deployment, job: str) -> StreamHead:
        row = deployment.store.load("followed", id=job)[0]
        return StreamHead(
            newest=newest(row),
            progress=ProgressView(**{name: row[name] for name in ProgressView.__slots__}),
            end=EndView(state=row["state"], because=row["because"]) if row["state"] in ENDED else None,
        )

    return look


def _of_project(deployment: Deployment, project: str) -> StreamHead:
    return StreamHead(newest=(last_fact(deployment, project),))


EVENTS = Channel("event", (0,), _of_job(lambda row: (row["number"] or 0,)), _events)
LOG = Channel(
    "log",
    (0, 0),
    _of_job(lambda row: (row["fencing"], 0 if row["first_byte"] is None else row["first_byte"] + 1)),
    _log,
)
FACTS = Channel("fact", (0,), _of_project, _facts)
