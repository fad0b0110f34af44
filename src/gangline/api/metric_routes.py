"""Routes for metrics: nodes send them, viewers read them."""

from typing import Annotated

from fastapi import APIRouter, Query

from gangline.api.answers.problems import accepted
from gangline.api.by_hand import AttemptRoutes
from gangline.api.lanes import WORKERS, UserRoute
from gangline.api.who import NUMBER_MAX, HeldLease, Holder, Now, ThisDeployment, ViewerOf
from gangline.core.views import MetricsView
from gangline.ports.server import Done, Points
from gangline.service.jobs import metrics

of_workers = AttemptRoutes(WORKERS)
of_users = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)


@of_workers.post("metrics")
def take_metrics(deployment: ThisDeployment, now: Now, node: Holder, hold: HeldLease, request: Points) -> Done:
    """Store a batch of metrics. Sending a batch again changes nothing."""
    return accepted(metrics.take(deployment, node, hold, request, now))


@of_users.get("/jobs/{job}/metrics")
def show_metrics(
    deployment: ThisDeployment, project: ViewerOf, job: str, after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0
) -> MetricsView:
    """Return the metrics of all attempts as one run, after the step `after`."""
    return metrics.metrics_after(deployment, project, job, after)
