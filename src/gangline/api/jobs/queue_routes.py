"""The route of the queue: who waits, why, and what would help."""

from typing import Annotated

from fastapi import APIRouter, Query

from gangline.api.lanes import UserRoute
from gangline.api.who import NUMBER_MAX, Now, ThisDeployment, ViewerReach
from gangline.core.jobs.queue.views import QueueView
from gangline.service.jobs.placing.queue import queue_view

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)

PAGE_MAX = 200


@router.get("/queue")
def show_queue(
    deployment: ThisDeployment,
    now: Now,
    reach: ViewerReach,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    after: Annotated[int, Query(ge=0, le=NUMBER_MAX, description="How many jobs come before the page.")] = 0,
) -> QueueView:
    """Show the project's waiting jobs in the order in which nodes would take them, why each waits, and what would help; those that ask
    the same of a node also as one group. All projects' are shown if an operator names none.

    Repeat the request with `after` set to `next` of the answer for more. Jobs that render pictures are not listed.
    """
    return queue_view(deployment, reach, now, limit=limit, after=after)
