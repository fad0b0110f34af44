"""Files between the node and the object store, a few at once, tried again as long as that can help."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gangline.core.errors import Denied, GanglineError, Unreachable
from gangline.core.failure import FailureKind
from gangline.core.files import File
from gangline.ports.server import Grants, Refused, Stale, Urls
from gangline.ports.transfer import Task
from gangline.worker.edges import NEWS, Activity, Clock, Edges, patiently, retry_s, wait

T = TypeVar("T")

AT_ONCE = 8
TRIES_MAX = 3
TRIES_OF_A_URL = 40


class LeaseLost(Exception):
    """Whatever this node still does about the attempt counts for nothing."""


class AttemptFailed(Exception):
    """This node cannot bring the attempt to its end."""

    def __init__(self, kind: FailureKind, because: str) -> None:
        super().__init__(because)
        self.kind: FailureKind = kind
        self.because = because


@dataclass(frozen=True, slots=True)
class Move:
    """One file, its place on the node, and the name by which its URL is asked for."""

    file: File
    local: Path
    name: str


def move_all(
    edges: Edges,
    clock: Clock,
    moves: list[Move],
    *,
    ask: Callable[[tuple[Move, ...]], Urls | Grants | Stale | Refused],
    start: Callable[[Any, Move], Task],
) -> Activity[None]:
    """Until all are there. Raises `LeaseLost`, or the error of a file that failed `TRIES_MAX` times.

    A store that is away and a URL that has expired are waited for without counting. A URL serves until it is refused, or the
    store was away for `TRIES_OF_A_URL` tries (it may have moved): what is downloaded is billed by the URLs that were asked for.
    """
    waiting, urls, failures, pauses = list(moves), dict[Move, Any](), 0, 0
    while waiting:
        now, later = tuple(waiting[:AT_ONCE]), waiting[AT_ONCE:]
        lacking = tuple(move for move in now if move not in urls)
        if lacking:
            granting = yield from granted(edges, clock, lambda lacking=lacking: ask(lacking))
            given = granting.urls if isinstance(granting, Urls) else granting.files
            urls |= dict(zip(lacking, given, strict=True))
        tasks = [start(urls[move], move) for move in now]
        while not all(task.done for task in tasks):
            yield NEWS
        failed = [(move, task.error) for move, task in zip(now, tasks, strict=True) if task.error is not None]
        waiting = [move for move, _ in failed] + later
        for move, error in failed:
            if not isinstance(error, Unreachable) or pauses % TRIES_OF_A_URL == TRIES_OF_A_URL - 1:
                del urls[move]
        if not failed:
            failures = pauses = 0
            continue
        final = next((error for _, error in failed if not isinstance(error, Unreachable | Denied)), None)
        failures += final is not None
        if final is not None and failures >= TRIES_MAX:
            raise final
        yield from wait(clock, retry_s(pauses, edges.rng))
        pauses += 1


def granted(edges: Edges, clock: Clock, ask: Callable[[], Urls | Grants | Stale | Refused]) -> Activity[Urls | Grants]:
    answer = yield from held(edges, clock, ask)
    if isinstance(answer, Refused):
        raise GanglineError(answer.because)
    return answer


def held(edges: Edges, clock: Clock, ask: Callable[[], T | Stale]) -> Activity[T]:
    """What the server answers, however long that takes, to one who holds the lease. Raises `LeaseLost` otherwise."""
    answer = yield from patiently(ask, clock, edges.rng)
    if isinstance(answer, Stale):
        raise LeaseLost
    return answer
