"""What an agent works with, and how an activity of it waits without blocking."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from gangline.core.errors import Unreachable
from gangline.core.jobs.retry import retry_s
from gangline.ports.host import Host
from gangline.ports.server import Server
from gangline.ports.trainer import Trainer
from gangline.ports.transfer import NodeTransfer

T = TypeVar("T")

Activity = Generator[float, None, T]
"""Something that takes time: each `yield` gives the agent's step back, until the moment (in seconds) that it yields, or until
an edge has news: a transfer that ended, a trainer that wrote something. Being resumed earlier does no harm."""

NEWS = math.inf
"""Yielded by who waits for an edge alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    server: Server
    transfer: NodeTransfer
    trainer: Trainer
    host: Host
    rng: Random


@dataclass(slots=True)
class Clock:
    """The moment of the agent's step, in seconds; set by it alone."""

    now_s: float


def wait(clock: Clock, seconds: float) -> Activity[None]:
    until = clock.now_s + seconds
    while clock.now_s < until:
        yield until


def unless(over: Callable[[], bool], activity: Activity[T]) -> Activity[T | None]:
    """Go on with an activity as long as it is not `over`. Return what it came to, or None where it was left in its midst."""
    while True:
        try:
            until_s = next(activity)
        except StopIteration as ended:
            return ended.value
        if over():
            return None
        yield until_s


def patiently(call: Callable[[], T], clock: Clock, rng: Random) -> Activity[T]:
    """What `call` answers, asked again for as long as nobody is there."""
    tries = 0
    while True:
        try:
            return call()
        except Unreachable:
            yield from wait(clock, retry_s(tries, rng))
            tries += 1
