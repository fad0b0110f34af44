"""Move files between the node and the object store, a few at a time, with retries for as long as they can help."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from gangline.core.errors import Denied, GanglineError, Unreachable
from gangline.core.files import PART_BYTES, Beginning, File, Grant, Signed, part_lengths
from gangline.core.jobs.failure import ReportedKind
from gangline.core.jobs.retry import retry_s
from gangline.ports.server import Downloads, Folder, Hold, Refused, Stale, Upload, Uploads
from gangline.ports.transfer import Task
from gangline.worker.edges import NEWS, Activity, Clock, Edges, patiently, wait

T = TypeVar("T")

AT_ONCE = 8
"""The number of files that are moved at the same time."""
TRIES_MAX = 3
TRIES_OF_A_URL = 40


class LeaseLost(Exception):
    """The lease is lost: whatever this node still does about the attempt has no effect."""


class AttemptFailed(Exception):
    """This node cannot complete the attempt."""

    def __init__(self, kind: ReportedKind, because: str) -> None:
        super().__init__(because)
        self.kind: ReportedKind = kind
        self.because = because


@dataclass(frozen=True, slots=True)
class Move:
    """A file, its place on the node, and the name by which its URL is requested."""

    file: File
    local: Path
    name: str


def download_all(edges: Edges, clock: Clock, hold: Hold, moves: list[Move], *, durable: bool) -> Activity[None]:
    """Download all files. Raise `LeaseLost`, or the error of a file after `TRIES_MAX` failed tries.

    A URL is used until it is refused, or until the store did not answer for `TRIES_OF_A_URL` tries, as it may have moved. Asking for a URL
    counts as a download on the bill, so a new one is requested only then.
    """

    def ask(now: list[Move]) -> Activity[tuple[Signed, ...]]:
        request = Downloads(keys=tuple(move.name for move in now))
        return (yield from _granted(edges, clock, lambda: edges.server.downloads(hold, request))).urls

    def start(url: Signed, move: Move) -> Task[None]:
        return edges.transfer.download(url, move.file, move.local, durable=durable)

    return move_all(clock, edges.rng, moves, ask, start, tries_of_an_answer=TRIES_OF_A_URL)


def upload_all(
    edges: Edges,
    clock: Clock,
    hold: Hold,
    folder: Folder,
    moves: list[Move],
    *,
    step: int = 0,
    announced: tuple[Beginning, ...] = (),
) -> Activity[None]:
    """Upload all files. Raise as `download_all` does. Each try requests new grants, as the answer leaves out parts that have arrived. The
    parts that are `announced` need not be hashed any more."""
    known = {each.path: each for each in announced}
    parts = {move: _whole(move.file, known.get(move.file.path)) for move in moves}
    lacking = [move for move, upload in parts.items() if upload is None]
    uploads = {move: upload for move, upload in parts.items() if upload} | (yield from _describe(edges, lacking))

    def ask(now: list[Move]) -> Activity[tuple[Grant, ...]]:
        request = Uploads(folder=folder, step=step, files=tuple(uploads[move] for move in now))
        return (yield from _granted(edges, clock, lambda: edges.server.uploads(hold, request))).files

    def start(grant: Grant, move: Move) -> Task[None]:
        return edges.transfer.upload(grant, uploads[move], move.local)

    yield from move_all(clock, edges.rng, moves, ask, start, tries_of_an_answer=1)


def _describe(edges: Edges, moves: list[Move]) -> Activity[dict[Move, Upload]]:
    """Return how to declare large files, which are uploaded in parts, each with its own hash."""
    tasks = {move: edges.transfer.describe(move.file, move.local) for move in moves}
    yield from _until_done(tasks.values())
    for task in tasks.values():
        if task.error is not None:
            raise task.error
    return {move: task.result for move, task in tasks.items()}


def _whole(file: File, announced: Beginning | None) -> Upload | None:
    """Return how to declare a file that need not be read for that: a short one, or one whose parts are all announced."""
    if file.bytes <= PART_BYTES:
        return Upload(path=file.path, bytes=file.bytes, sha256=file.sha256)
    if announced and announced.bytes == file.bytes and len(announced.parts) == len(part_lengths(file.bytes)):
        return Upload(path=file.path, bytes=file.bytes, sha256=file.sha256, parts=announced.parts)
    return None


def move_all(
    clock: Clock,
    rng: Random,
    moves: list[Move],
    ask: Callable[[list[Move]], Activity[tuple[T, ...]]],
    start: Callable[[T, Move], Task[None]],
    *,
    tries_of_an_answer: int,
) -> Activity[None]:
    """Move all files, `AT_ONCE` at a time. An unreachable store and an expired URL do not count as failures."""
    waiting, answers, failures, pauses = list(moves), dict[Move, T](), 0, 0
    while waiting:
        now, later = waiting[:AT_ONCE], waiting[AT_ONCE:]
        lacking = [move for move in now if move not in answers]
        if lacking:
            answers |= dict(zip(lacking, (yield from ask(lacking)), strict=True))
        failed = yield from _try(now, [start(answers[move], move) for move in now])
        waiting = [*failed, *later]
        if not failed:
            failures = pauses = 0
            continue
        pauses += 1
        for move, error in failed.items():
            if not isinstance(error, Unreachable) or pauses % tries_of_an_answer == 0:
                del answers[move]
        final = next((error for error in failed.values() if not isinstance(error, Unreachable | Denied)), None)
        failures += final is not None
        if final is not None and failures >= TRIES_MAX:
            raise final
        yield from wait(clock, retry_s(pauses - 1, rng))


def _try(moves: list[Move], tasks: list[Task[None]]) -> Activity[dict[Move, Exception]]:
    """Return the moves that failed, each with its error."""
    yield from _until_done(tasks)
    return {move: task.error for move, task in zip(moves, tasks, strict=True) if task.error is not None}


def _until_done(tasks: Iterable[Task[Any]]) -> Activity[None]:
    while not all(task.done for task in tasks):
        yield NEWS


def _granted(edges: Edges, clock: Clock, ask: Callable[[], T | Stale | Refused]) -> Activity[T]:
    answer = yield from held(edges, clock, ask)
    if isinstance(answer, Refused):
        raise GanglineError(answer.because)
    return answer


def held(edges: Edges, clock: Clock, ask: Callable[[], T | Stale]) -> Activity[T]:
    """Return the server's answer, retrying while it does not answer. Raise `LeaseLost` if the lease is lost."""
    answer = yield from patiently(ask, clock, edges.rng)
    if isinstance(answer, Stale):
        raise LeaseLost
    return answer
