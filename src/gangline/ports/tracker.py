"""A tracker, which shows jobs' metrics outside Gangline: one run per job, written by the server alone.

Every call may raise `GanglineError`: `Unreachable` if the tracker does not answer, anything else if it does not accept this run. Both are
retried and harm no job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gangline.core.job import JobState
from gangline.core.runs.metrics import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A job as a tracker shows it. `settings` are its spec's, without long values."""

    id: str
    project: str
    name: str
    tags: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedPicture:
    """A sample that a job rendered after `step` steps."""

    path: str
    step: int
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a job, with a summary of its cost and attempts."""

    state: JobState
    summary: Mapping[str, float | str]


class Tracker(Protocol):
    name: str

    def open(self, run: TrackedRun, told: int) -> int:
        """Resume a run, or begin it, and return the last step that need not be sent again. Opening again is no error.

        `told` is the last step that the service knows was sent. What the tracker itself has counts instead, if it can tell.
        """
        ...

    def write(self, run: str, points: Sequence[Measured], pictures: Sequence[TrackedPicture]) -> None:
        """Send points after all those that the run has, and pictures beside the last of them."""
        ...

    def end(self, run: str, ending: Ending) -> None:
        """End the run. On return, the tracker has all of it."""
        ...

    def close(self) -> None:
        """Close all runs; they can be opened again, here or by another server. It is no error if none is open."""
        ...
