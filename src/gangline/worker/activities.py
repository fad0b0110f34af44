"""Activities side by side: each is resumed at each step, and none of them blocks."""

from collections.abc import Iterable

from gangline.worker.edges import Activity, Clock


class Activities:
    """They are resumed in the order in which they began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[Activity[None], float] = {}

    def begin(self, *activities: Activity[None]) -> None:
        """Add them. Their first turn is in the next step, which is due at once: who begins them is in the midst of its own."""
        for activity in activities:
            self._until_s[activity] = self._clock.now_s

    def go_on(self) -> None:
        """Resume each of them once. What one raises goes through to the caller, and the rest have no turn in this step."""
        for activity in list(self._until_s):
            until_s = next(activity, None)
            if until_s is None:
                del self._until_s[activity]
            else:
                self._until_s[activity] = until_s

    def drop(self) -> None:
        """Resume none of them again."""
        self._until_s.clear()

    def any_running(self, activities: Iterable[Activity[None]]) -> bool:
        """Return whether one of these has not ended."""
        return any(activity in self._until_s for activity in activities)

    @property
    def all_ended(self) -> bool:
        return not self._until_s

    @property
    def due_s(self) -> float:
        """When one of them is to be resumed at the latest, if no edge has news before. Some have not ended."""
        return min(self._until_s.values())
