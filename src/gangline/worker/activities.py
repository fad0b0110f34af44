"""Run activities side by side in one thread: each is resumed at each step, and none of them blocks."""

from collections.abc import Iterable

from gangline.worker.edges import Activity, Clock


class Activities:
    """A set of activities, resumed in the order in which they began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[Activity[None], float] = {}

    def begin(self, *activities: Activity[None]) -> None:
        """Add activities.

        They are first resumed in the next step, which is due at once: the caller may itself be an activity in the middle of this one.
        """
        for activity in activities:
            self._until_s[activity] = self._clock.now_s

    def go_on(self) -> None:
        """Resume each activity once. An exception of one is raised to the caller, and the remaining ones are not resumed in this step."""
        for activity in list(self._until_s):
            until_s = next(activity, None)
            if until_s is None:
                del self._until_s[activity]
            else:
                self._until_s[activity] = until_s

    def drop(self) -> None:
        """Drop all activities; none is resumed again."""
        self._until_s.clear()

    def any_running(self, activities: Iterable[Activity[None]]) -> bool:
        """Return whether one of these has not ended."""
        return any(activity in self._until_s for activity in activities)

    @property
    def all_ended(self) -> bool:
        return not self._until_s

    @property
    def due_s(self) -> float:
        """The latest moment at which one of them must be resumed, unless an edge has news before. At least one has not ended."""
        return min(self._until_s.values())
