"""Tell why a node is slow: its card is throttled, its job spilled into the machine's memory, or it is a slow machine.

Each has another remedy. A throttled card works well once it is cool, a job that spilled needs a larger card, and where
other machines of the class hold the same work it needs one of these: only a machine that is slow without any of these is to blame.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gangline.core.fleet.gauges import ClockLimit, Gauges, GaugesPoint
from gangline.core.jobs.failure import FailureKind

RECENT_MS = 600_000
MEASURED_MIN = 3
"""A card is throttled if more than half of at least this many measurements of the last `RECENT_MS` say so: every card is for moments."""
FULL_SHARE = 0.95
SPILLED_SHARE = 1.01
"""A trainer that holds more than this share of a card's memory holds the rest elsewhere. Less is within the rounding of both."""
GIB = 2**30
LIMITS: Mapping[ClockLimit, str] = {
    "heat": "heat",
    "power brake": "its power supply",
    "hardware": "its own protection",
    "power cap": "its power limit",
}
"""What holds clocks down, in words, the gravest first: many sound cards are at their power limit whenever they work."""


def limits_in_words(limits: Iterable[ClockLimit]) -> str:
    return " and ".join(LIMITS[limit] for limit in limits)


FITS = "the same work fits into the GPU memory of other machines of the class"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """A card whose clocks were held down by `limit` in this share of the last measurements. It was `temperature_c` hot at most."""

    limit: ClockLimit
    share: float
    temperature_c: float | None

    @property
    def is_usual(self) -> bool:
        """Return whether a sound card may be so under full load."""
        return self.limit == "power cap"

    @property
    def says(self) -> str:
        heat = f" ({self.temperature_c:.0f} °C at most)" if self.temperature_c is not None else ""
        return f"{LIMITS[self.limit]} held its clocks down in {self.share:.0%} of the last measurements{heat}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A trainer that holds `used_gb` of a card with `card_gb`, in units of 2^30 bytes. A card with `needs_gb` would hold it all."""

    used_gb: float
    card_gb: float
    needs_gb: float

    @property
    def says(self) -> str:
        return (
            f"it holds {self.used_gb:.1f} GB and its card has {self.card_gb:.1f}, so the rest lies in the machine's memory, "
            "which is many times slower"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCause:
    """The kind of failure as which a job leaves a slow node, and why; `says` is empty for a machine that is slow without a cause."""

    kind: FailureKind
    says: str


def recent_limits(points: Sequence[GaugesPoint], now_ms: int, since_ms: int = 0) -> list[GaugesPoint]:
    """Return the last points of a node's history whose driver says what it limits. Of one that began to work at `since_ms` those from
    before say nothing, as an idle card is not throttled."""
    earliest_ms = max(now_ms - RECENT_MS, since_ms)
    return [point for point in points if point.at_ms > earliest_ms and point.limited_by is not None]


def throttle_of(recent: Sequence[GaugesPoint]) -> Throttle | None:
    """Return what held the clocks of a node's card down at these points; None if nothing did, or they are too few."""
    if len(recent) < MEASURED_MIN:
        return None
    for limit in LIMITS:
        share = sum(limit in (point.limited_by or ()) for point in recent) / len(recent)
        if share > 0.5:
            heat = max((point.temperature_c for point in recent if point.temperature_c is not None), default=None)
            return Throttle(limit=limit, share=share, temperature_c=heat)
    return None


def may_tell_later(points: Sequence[GaugesPoint], recent: Sequence[GaugesPoint], worked_ms: int) -> bool:
    """Return whether a driver says what it limits, but has been measured too seldom in the time that the work takes so far. One that
    still has not said it after `RECENT_MS` no longer answers."""
    measured_later = worked_ms < RECENT_MS and len(recent) < MEASURED_MIN
    return measured_later and any(point.limited_by is not None for point in points)


def spill_of(used_bytes: int | None, gauges: Gauges | None) -> Spill | None:
    """Return how a trainer that holds `used_bytes` of GPU memory has spilled; None if it has not. Of several cards the largest counts."""
    if used_bytes is None or gauges is None or not gauges.gpu_memory_spills:
        return None
    card_bytes = max((gpu.memory_bytes for gpu in gauges.gpus if gpu.memory_bytes), default=0)
    if not card_bytes or used_bytes <= SPILLED_SHARE * card_bytes:
        return None
    # Cards are sold by whole GB, of which their drivers keep a part.
    needs_gb = max(math.ceil(used_bytes / GIB), round(card_bytes / GIB) + 1)
    return Spill(used_gb=used_bytes / GIB, card_gb=card_bytes / GIB, needs_gb=needs_gb)


def is_crowded(gauges: Gauges | None) -> bool:
    """Return whether a card is so full that what its job needs may have spilled, as others hold a part of it."""
    if gauges is None or not gauges.gpu_memory_spills:
        return False
    return any(
        gpu.memory_used_bytes >= FULL_SHARE * gpu.memory_bytes
        for gpu in gauges.gpus
        if gpu.memory_used_bytes is not None and gpu.memory_bytes
    )


def why_slow(throttle: Throttle | None, gauges: Gauges | None, spill: Spill | None = None) -> SlowCause:
    """Return why a node is slow whose job runs faster on others of its class. A `spill` there is what slows it most, and not the job's
    fault, whose work the others hold."""
    if spill is not None:
        return SlowCause(kind="crowded", says=f"{spill.says}; {FITS}")
    if throttle is not None and not throttle.is_usual:
        return SlowCause(kind="throttled", says=throttle.says)
    if is_crowded(gauges):
        return SlowCause(kind="crowded", says=FITS)
    return SlowCause(kind="throttled", says=throttle.says) if throttle else SlowCause(kind="too slow", says="")


def slowed(throttle: Throttle | None, spills: Sequence[Spill]) -> str:
    """Return what an operator should know of a node's card, whoever is slow beside it; empty if there is nothing."""
    said = [f"a job of it has spilled: {spill.says}" for spill in spills]
    if throttle is not None and not throttle.is_usual:
        said.append(f"its card is throttled: {throttle.says}")
    return "; ".join(said)
