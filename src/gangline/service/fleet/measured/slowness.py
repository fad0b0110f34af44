"""Load why a node is slow: what its gauges say of its card, and what its trainers hold of its memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.fleet.gauges import Gauges, GaugesPoint, GaugesView, point_of
from gangline.core.fleet.slowness import SlowCause, Spill, Throttle, slowed, spill_of, throttle_of, why_slow
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.fleet.measured.gauges import gauges_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CardsState:
    """What the gauges of a node say of its cards now, and over the last minutes."""

    throttle: Throttle | None
    gauges: Gauges | None

    @property
    def cause(self) -> SlowCause:
        return why_slow(self.throttle, self.gauges)

    def spill(self, lease: Row) -> Spill | None:
        return spill_of(lease["memory_bytes"], self.gauges)

    def says(self, leases: Sequence[Row]) -> str:
        """Return what an operator should know of the cards, and of the jobs with these leases; empty if there is nothing."""
        return slowed(self.throttle, [spill for lease in leases if (spill := self.spill(lease))])


def cards_state(gauges: GaugesView | None, history: Sequence[GaugesPoint], now_ms: int) -> CardsState:
    # The newest gauges are a point of the history as well in one minute of two: the same moment counts once.
    points = {point.at_ms: point for point in (*history, *([point_of(gauges, gauges.at_ms)] if gauges else []))}
    return CardsState(throttle=throttle_of(tuple(points.values()), now_ms), gauges=gauges)


def load_cards_state(deployment: Deployment, node: str, now_ms: int) -> CardsState:
    return cards_state(*gauges_of(deployment, node, now_ms), now_ms)
