"""The route of reports: what a set of jobs took."""

from typing import Annotated

from fastapi import APIRouter, Query

from gangline.api.jobs.filters import Filtered
from gangline.api.lanes import ReportRoute
from gangline.api.who import Now, ThisDeployment, Viewer, ViewerOf
from gangline.core.reports.view import ReportView
from gangline.service.reports.report import Included, report_of_jobs

router = APIRouter(prefix="/v1", tags=["users"], route_class=ReportRoute)


@router.get("/report")
def show_report(
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    viewer: Viewer,
    asked: Filtered,
    include: Annotated[
        tuple[Included, ...],
        Query(max_length=2, description="`jobs`: also a line for each job; `attempts`: also each attempt."),
    ] = (),
) -> ReportView:
    """Report what the project's jobs took that meet every filter, as for `GET /v1/jobs`: at most 10,000 jobs.

    The figures are those of the ledger and of the attempts: time, interruptions, dollars per job and per step, waste by cause, waits, and
    what nodes of each GPU class and pool did. The time that a node spent for no job is split among the jobs that it worked for. `include`
    adds `lines`, one for each job, or `bars`, one for each attempt, of which there may be at most 5,000.
    """
    return report_of_jobs(deployment, project, asked.read(viewer), now, include)
