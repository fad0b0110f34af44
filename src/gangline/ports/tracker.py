"""Where a job's metrics are shown besides here: one run for one job, written by the server alone.

Every call may raise `GanglineError`: `Unreachable` where the tracker is away, anything else where it does not take this run. Both
are tried again, and harm no job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gangline.core.job import JobState
from gangline.core.runs.metrics import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A job, as a tracker shows it. `settings` are those of its spec, without what is long."""

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
    """How a job ended, and what it came to."""

    state: JobState
    summary: Mapping[str, float | str]


class Tracker(Protocol):
    name: str

    def open(self, run: TrackedRun, told: int) -> int:
        """Go on with a run, or begin it. `told`: up to this step it was told before, as far as the service knows. Answers with the
        last step that need not be told again: what it holds counts, where it can say that. Opening again is no error."""
        ...

    def write(self, run: str, points: Sequence[Measured], pictures: Sequence[TrackedPicture]) -> None:
        """Points after all that the run holds, and pictures beside the last of them."""
        ...

    def end(self, run: str, ending: Ending) -> None:
        """All of it is where it belongs on return."""
        ...

    def close(self) -> None:
        """Let go of all runs; they can be opened again, here or by another server. No error if there is none."""
        ...
