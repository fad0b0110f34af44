"""Buffer metrics that the server does not have yet. The buffer is bounded, however long the server is unreachable."""

from collections.abc import Sequence

from gangline.core.runs.metrics import Point, Reading, halve, summed_up, thin

KEPT_MAX = 10_000
"""The number of points that are kept; above it, the points are thinned out."""


class MetricsBuffer:
    """A buffer of metrics. `points` are ready to be sent, oldest first."""

    def __init__(self, from_step: int = 0) -> None:
        self.points: list[Point] = []
        self._sent_step = from_step
        self._waiting: list[Reading] = []

    def take(self, readings: Sequence[Reading], *, ended: bool) -> None:
        """Add readings. `ended` says that no more will come, so that incomplete points are completed now."""
        kept, self._waiting = thin([*self._waiting, *readings], self._last_step)
        self.points += kept
        if ended:
            self.points += summed_up(self._waiting, self._last_step)
            self._waiting = []
        if len(self.points) > KEPT_MAX:
            self.points = halve(self.points, self._sent_step)

    def sent(self, count: int) -> None:
        self._sent_step = self.points[count - 1].step
        del self.points[:count]

    @property
    def _last_step(self) -> int:
        return self.points[-1].step if self.points else self._sent_step
