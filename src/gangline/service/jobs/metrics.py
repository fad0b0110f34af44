"""Store the batches of metrics that nodes send, and show them to users as one run of a job."""

from itertools import groupby

from gangline.core.job import ENDED
from gangline.core.runs.metrics import (
    AttemptPoints,
    Measured,
    last_loss,
    pack_points,
    series,
    unpack_points,
    with_smoothed_loss,
)
from gangline.core.views import MetricsView, TrackedView
from gangline.ports.server import Done, Hold, Points, Stale
from gangline.ports.store import write
from gangline.service.attempts import LOST, holding, job_of_hold
from gangline.service.deployment import Deployment
from gangline.service.jobs.query import owned


def take(deployment: Deployment, node: str, hold: Hold, request: Points, now_ms: int) -> Done | Stale:
    """Store a batch of points. The first one of a job starts its tracking by every tracker."""
    job = job_of_hold(deployment, node, hold)
    if job is None:
        return LOST
    held = deployment.store.apply(
        holding(node, hold, now_ms, step=request.points[-1].step, loss=last_loss(request.points)),
        write(
            "add_metric",
            attempt=hold.attempt,
            step=request.points[-1].step,
            points=pack_points(request.points),
            now=now_ms,
        ),
        *(write("begin_tracking", job=job["id"], tracker=tracker.name) for tracker in deployment.trackers),
    )
    return Done() if held else LOST


def metrics_after(deployment: Deployment, project: str, job_id: str, after: int) -> MetricsView:
    """Return the points after a step. Points beyond `next` may be returned again later, and then belong to another attempt."""
    job = owned(deployment, project, job_id)
    committed = max((row["step"] for row in deployment.store.load("checkpoints", job=job_id)), default=0)
    points = load_series(deployment, job_id)
    last = points[-1].step if points else 0
    return MetricsView(
        points=tuple(point for point in points if point.step > after),
        committed_step=committed,
        next=last if job["state"] in ENDED else min(committed, last),
        trackers=tuple(
            TrackedView(tracker=row["tracker"], step=row["step"], ended=row["ended"] == 1, because=row["because"])
            for row in deployment.store.load("trackers_of", job=job_id)
        ),
    )


def load_series(deployment: Deployment, job: str, up_to: int | None = None) -> list[Measured]:
    """Return the points of a job that count, with their smoothed loss: those of steps that a later attempt redid are left out."""
    rows = deployment.store.load("metrics", job=job)
    attempts = [
        AttemptPoints(
            from_step=batches[0]["from_step"],
            points=tuple(
                point for row in batches if row["points"] for point in unpack_points(row["points"], row["at_ms"])
            ),
        )
        for batches in (list(found) for _, found in groupby(rows, lambda row: row["fencing"]))
    ]
    return with_smoothed_loss(series(attempts, up_to))
