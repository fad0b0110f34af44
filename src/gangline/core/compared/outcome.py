"""What came of a job, as it is compared with another one."""

import json
from collections.abc import Callable, Iterable
from statistics import fmean

from gangline.core.jobs.lists.diff import ComparedJob, JobOutcome
from gangline.core.runs.metrics import Measured
from gangline.core.views import JobView

REPORT_BYTES_MAX = 2**20
"""A report of our own trainers is much shorter; a command's file of that name may be anything."""


def compared_job(
    view: JobView, points: Iterable[Measured], read_report: Callable[[], str | None], now_ms: float
) -> ComparedJob:
    """Return a job with what came of it. `points` are its metrics; `read_report` returns the report of its result, None if there is none
    of at most `REPORT_BYTES_MAX`, and is called only if the metrics have no held-out loss."""
    summary = view.summary
    spent = sum((each.ended_ms or now_ms) - each.started_ms for each in view.attempts) / 1000
    return ComparedJob(
        spec=view.spec,
        outcome=JobOutcome(
            id=view.id,
            name=summary.name,
            state=summary.state,
            because=summary.because,
            step=summary.step,
            steps=summary.steps,
            held_out_loss=_held_out_loss(view, points, read_report),
            loss=summary.loss,
            seconds=round(max(0.0, spent), 1),
            cost_usd=summary.cost_usd,
            cost_lacks=summary.cost_lacks,
            gpus=tuple(dict.fromkeys(each.gpu for each in view.attempts)),
            numerics=tuple(dict.fromkeys(each.numerics for each in view.attempts if each.numerics)),
        ),
    )


def _held_out_loss(view: JobView, points: Iterable[Measured], read_report: Callable[[], str | None]) -> float | None:
    """Return the last held-out loss that was measured while the job trained, or else the one of its result."""
    measured = [point.values.get("held_out_loss") for point in points]
    known = [loss for loss in measured if loss is not None]
    if known or not view.spec.get("held_out") or view.state != "succeeded":
        return known[-1] if known else None
    report = read_report()
    photos = json.loads(report).get("held_out") if report is not None else None
    return fmean(each["loss_after"] for each in photos) if photos else None
