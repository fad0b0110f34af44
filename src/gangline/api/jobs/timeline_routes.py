"""The route of a job's timeline."""

from fastapi import APIRouter

from gangline.api.lanes import UserRoute
from gangline.api.who import Now, ThisDeployment, ViewerOf
from gangline.core.jobs.story.views import TimelineView
from gangline.service.jobs.story.timeline import timeline_of

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)


@router.get("/jobs/{job}/timeline")
def show_timeline(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str) -> TimelineView:
    """Show what happened to a job: the phases of its whole time, marked moments, its cost over time, and the pace of others at it."""
    return timeline_of(deployment, project, job, now)
