"""Simulate time: an event heap, a seed, and a trace by which two runs can be compared. It knows nothing of Gangline."""

import hashlib
import heapq
from collections.abc import Callable
from random import Random

START_MS = 1_700_000_000_000
"""The start of every simulation, in milliseconds UTC."""

Act = Callable[[], None]


class World:
    """A world with virtual time. Events happen in the order of their time, then of their scheduling. All chance is a function of (seed,
    purpose), so that a run can be repeated, and one more draw for one purpose changes no other."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ms = START_MS
        self.events = 0
        self._heap: list[tuple[int, int, str, Act]] = []
        self._made = 0
        self._trace = hashlib.blake2b(digest_size=16)

    @property
    def now_s(self) -> float:
        """Return the seconds since the start."""
        return (self.now_ms - START_MS) / 1000

    def rng(self, purpose: str) -> Random:
        return Random(f"{self.seed}/{purpose}")  # noqa: S311 - it must be repeatable, not secret

    def at(self, ms: int, what: str, act: Act) -> None:
        self._made += 1
        heapq.heappush(self._heap, (max(ms, self.now_ms), self._made, what, act))

    def after(self, seconds: float, what: str, act: Act) -> None:
        self.at(self.now_ms + round(seconds * 1000), what, act)

    def step(self, *, until_ms: int) -> bool:
        """Run the next event if it is due by `until_ms`. An event may run others by calling this."""
        if not self._heap or self._heap[0][0] > until_ms:
            return False
        ms, _, what, act = heapq.heappop(self._heap)
        self.now_ms = max(self.now_ms, ms)
        self.events += 1
        self.note(what)
        act()
        return True

    def note(self, what: str) -> None:
        """Add an entry with the current time to the trace."""
        self._trace.update(f"{self.now_ms} {what}\n".encode())

    def trace(self) -> str:
        return self._trace.hexdigest()
