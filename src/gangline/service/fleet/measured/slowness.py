"""Load why a node is slow: what its gauges say of its card, and what its trainers hold of its memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.fleet.gauges import Gauges, GaugesPoint, GaugesView, point_of
from gangline.core.fleet.slowness import (
    SlowCause,
    Spill,
    Throttle,
    may_tell_later,
    recent_limits,
    slowed,
    spill_of,
    throttle_of,
    why_slow,
)
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.fleet.measured.gauges import gauges_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CardsState:
    """What the gauges of a node say of its cards now, and over the last minutes. It is not `settled` while they were measured too seldom
    to say."""

    throttle: Throttle | None
    gauges: Gauges | None
    settled: bool

    def spill(self, lease: Row) -> Spill | None:
        return spill_of(lease["memory_bytes"], self.gauges)

    def cause(self, lease: Row) -> SlowCause:
        return why_slow(self.throttle, self.gauges, self.spill(lease))

    def says(self, leases: Sequence[Row]) -> str:
        """Return what an operator should know of the cards, and of the jobs with these leases; empty if there is nothing."""
        return slowed(self.throttle, [spill for lease in leases if (spill := self.spill(lease))])


def cards_state(
    gauges: GaugesView | None, history: Sequence[GaugesPoint], now_ms: int, since_ms: int = 0
) -> CardsState:
    # The newest gauges may be a point of the history as well: the same moment counts once.
    by_time = {point.at_ms: point for point in (*history, *([point_of(gauges, gauges.at_ms)] if gauges else []))}
    points = tuple(by_time.values())
    recent = recent_limits(points, now_ms, since_ms)
    later = may_tell_later(points, recent, now_ms - since_ms)
    return CardsState(throttle=throttle_of(recent), gauges=gauges, settled=not later)


def load_cards_state(deployment: Deployment, lease: Row, now_ms: int) -> CardsState:
    """Load the state of the cards on which an attempt trains, since it does."""
    gauges, history = gauges_of(deployment, lease["node"], now_ms)
    return cards_state(gauges, history, now_ms, since_ms=lease["training_ms"] or 0)
