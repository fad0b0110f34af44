"""The answer to who asks for the timeline of a job."""

from dataclasses import dataclass

from gangline.core.charts.phases import TimelineMark, TimelineSegment
from gangline.core.job import JobState
from gangline.core.jobs.story.band import PaceBand
from gangline.core.money.cost import CostPart
from gangline.core.money.spending import SpentPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """What happened to a job from its submission, at `from_ms`, until it ended, or until now.

    `segments` follow each other from `from_ms` to `until_ms` without gap or overlap; `marks` are moments. `spent` is the job's cost over
    time, to be joined by straight lines; its last point is the cost so far, without the parts in `cost_lacks`. `bands` say
    how fast the machines of each class of GPU that worked on the job are at such work. `verdict` and `version` are those of the job.
    """

    job: str
    name: str
    state: JobState
    verdict: str
    from_ms: int
    until_ms: int
    segments: tuple[TimelineSegment, ...]
    marks: tuple[TimelineMark, ...]
    spent: tuple[SpentPoint, ...]
    cost_lacks: tuple[CostPart, ...] = ()
    bands: tuple[PaceBand, ...]
    version: int
