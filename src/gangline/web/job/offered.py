"""Decide what can be done with a job as it stands, so that the page offers nothing that would be refused. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from gangline.core.job import ENDED
from gangline.core.specs.kinds import KINDS
from gangline.core.views import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedAction:
    """A button: one that acts at once, after the question `confirm` if there is one, or one that opens a `dialog`."""

    name: str
    label: str
    says: str
    confirm: str = ""
    dialog: str = ""
    danger: bool = False


def offered_actions(job: JobView, *, keeps: bool) -> tuple[OfferedAction, ...]:
    """Return what a member may do with a job now; `keeps` says whether it has a checkpoint."""
    kind = KINDS.get(job.summary.kind)
    trains = kind is not None and kind.result in ("lora", "model")
    if job.state in ENDED:
        found = _after(trains=trains, keeps=keeps, clones=_clones(job))
    else:
        found = _before(job, ours=kind is not None and kind.ours, trains=trains, keeps=keeps)
    return tuple(each for each in found if each.name not in job.asked)


def _clones(job: JobView) -> bool:
    kind = KINDS.get(job.summary.kind)
    return kind is not None and not kind.renders and not job.spec.get("continues")


def _before(job: JobView, *, ours: bool, trains: bool, keeps: bool) -> Iterator[OfferedAction]:
    at_work = any(each.ended_ms is None for each in job.attempts)
    if ours and trains and (at_work or keeps):
        yield FINISH
        yield SAMPLE
    if ours and trains and at_work:
        yield SAVE
    yield RESUME if job.state == "paused" else PAUSE
    if _clones(job):
        yield CLONE
    yield CANCEL


def _after(*, trains: bool, keeps: bool, clones: bool) -> Iterator[OfferedAction]:
    if trains and keeps:
        yield EXTEND
    yield RETRY
    if clones:
        yield CLONE
    yield DELETE


FINISH = OfferedAction(
    name="finish",
    label="Finish",
    says="End it now, with the result of what it has",
    confirm="Finish this job now? It takes no more steps, and what it has becomes its result.",
)
SAMPLE = OfferedAction(name="sample", label="Sample now", says="Show pictures of what it has now")
SAVE = OfferedAction(name="save", label="Save now", says="Have its node save a checkpoint now")
PAUSE = OfferedAction(name="pause", label="Pause", says="Save, and give its node back until you resume it")
RESUME = OfferedAction(name="resume", label="Resume", says="Let it wait for a node again")
CANCEL = OfferedAction(
    name="cancel",
    label="Cancel",
    says="End it without a result",
    confirm="Cancel this job? It ends without a result. Its checkpoints stay for a while.",
    danger=True,
)
EXTEND = OfferedAction(name="extend", label="Extend…", says="Continue it to more steps", dialog="extend")
RETRY = OfferedAction(name="retry", label="Retry…", says="Submit the same again", dialog="retry")
CLONE = OfferedAction(name="clone", label="Clone…", says="Submit a new job with other settings", dialog="clone")
DELETE = OfferedAction(name="delete", label="Delete…", says="Delete it and its files", dialog="delete", danger=True)
