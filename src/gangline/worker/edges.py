"""The ports that an agent uses, and how its activities wait without blocking."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from gangline.core.errors import Unreachable
from gangline.core.fleet.gauges import Gauges
from gangline.core.jobs.retry import retry_s
from gangline.ports.host import Host
from gangline.ports.server import Server
from gangline.ports.trainer import Trainer
from gangline.ports.transfer import NodeTransfer

T = TypeVar("T")

Activity = Generator[float, None, T]
"""A task that takes time.

Each `yield` ends its turn, until the moment (in seconds) that it yields, or until an edge has news: a transfer that ended, a trainer that
wrote something. Resuming it earlier does no harm.
"""

NEWS = math.inf
"""Yielded by an activity that waits for an edge only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The ports of one agent. `gauges` returns what was measured of the node since it was last called, None if there is nothing new; it
    gets the agent's time in seconds, and never blocks."""

    server: Server
    transfer: NodeTransfer
    trainer: Trainer
    host: Host
    rng: Random
    gauges: Callable[[float], Gauges | None] = lambda _now_s: None


@dataclass(slots=True)
class Clock:
    """The time of the agent's current step, in seconds. Only the agent sets it."""

    now_s: float


def wait(clock: Clock, seconds: float) -> Activity[None]:
    until = clock.now_s + seconds
    while clock.now_s < until:
        yield until


def together(*activities: Activity[None]) -> Activity[None]:
    """Resume all activities until each has ended."""
    going = list(activities)
    while going:
        until_s, still = NEWS, list[Activity[None]]()
        for activity in going:
            try:
                until_s = min(until_s, next(activity))
            except StopIteration:
                continue
            still.append(activity)
        going = still
        if going:
            yield until_s


def unless(over: Callable[[], bool], activity: Activity[T]) -> Activity[T | None]:
    """Resume an activity until it ends or `over` returns True. Return its result, or None if it was abandoned."""
    while True:
        try:
            until_s = next(activity)
        except StopIteration as ended:
            return ended.value
        if over():
            return None
        yield until_s


def patiently(call: Callable[[], T], clock: Clock, rng: Random) -> Activity[T]:
    """Return the answer of `call`, retrying while the server does not answer."""
    tries = 0
    while True:
        try:
            return call()
        except Unreachable:
            yield from wait(clock, retry_s(tries, rng))
            tries += 1
