"""Load two jobs to compare them, as `gangline jobs diff` does."""

import json
from statistics import fmean

from gangline.core.errors import BadInput, NotFound
from gangline.core.jobs.lists.diff import ComparedJob, JobOutcome, JobsDiff, compare
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.runs.contract import REPORT
from gangline.core.views import JobView
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.jobs.metrics import load_series
from gangline.service.jobs.query import job as job_view

REPORT_BYTES_MAX = 2**20
"""A report of our own trainers is much shorter; a command's file of that name may be anything."""


def compared_jobs(deployment: Deployment, project: str, first: str, second: str, now_ms: int) -> JobsDiff:
    """Return what differs between a job, by its id, and a second one, by its id or its name, and what came of each.

    Raise `NotFound` for a job that the project has not, and `BadInput` for a name that several jobs have.
    """
    one = _compared(deployment, job_view(deployment, project, first, now_ms), now_ms)
    other = _find(deployment, project, second, now_ms)
    return compare(one, _compared(deployment, job_view(deployment, project, other, now_ms), now_ms))


def _find(deployment: Deployment, project: str, named: str, now_ms: int) -> str:
    found = [job.id for job in page_of_jobs(deployment, project, JobFilters(named=named), now_ms, limit=2).jobs]
    if not found:
        raise NotFound(f"there is no job {named}", hint="write its id, or its name")
    if len(found) > 1 and named not in found:
        raise BadInput(f"several jobs are called {named}", hint="write the id of one of them")
    return named if named in found else found[0]


def _compared(deployment: Deployment, view: JobView, now_ms: int) -> ComparedJob:
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
            held_out_loss=_held_out_loss(deployment, view),
            loss=summary.loss,
            seconds=round(max(0.0, spent), 1),
            cost_usd=summary.cost_usd,
            cost_lacks=summary.cost_lacks,
            gpus=tuple(dict.fromkeys(each.gpu for each in view.attempts)),
            numerics=tuple(dict.fromkeys(each.numerics for each in view.attempts if each.numerics)),
        ),
    )


def _held_out_loss(deployment: Deployment, view: JobView) -> float | None:
    """Return the last held-out loss that was measured while the job trained, or else the one of its result."""
    measured = [point.values.get("held_out_loss") for point in load_series(deployment, view.id)]
    known = [loss for loss in measured if loss is not None]
    if known or not view.spec.get("held_out") or view.state != "succeeded":
        return known[-1] if known else None
    for row in deployment.store.load("artifacts", job=view.id):
        if row["path"] == REPORT and row["bytes"] <= REPORT_BYTES_MAX:
            photos = json.loads(deployment.objects.read(row["key"])).get("held_out") or []
            return fmean(each["loss_after"] for each in photos) if photos else None
    return None
