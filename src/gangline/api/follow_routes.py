"""Routes that follow a job or a project by server-sent events. A client resumes with the last `id`; `end` says that no more
will come."""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from gangline.api.answers.paging import next_link
from gangline.api.answers.streams import END, Followers
from gangline.api.lanes import USERS, UserRoute, json_response
from gangline.api.who import NUMBER_MAX, ThisDeployment, ViewerLater, ViewerOf, ViewerOfLater
from gangline.core.views import FactView
from gangline.service.facts import FACTS_MAX, facts_after, last_fact, newest_facts
from gangline.service.jobs.follow import (
    EVENTS,
    FACTS,
    LOG,
    Channel,
    StreamPage,
    position_of,
    read_stream,
    refuse_beyond,
)
from gangline.service.jobs.query import owned

NO_MORE = 204
router = APIRouter(prefix="/v1", tags=["users"], default_response_class=StreamingResponse)
of_facts = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)
LastEventId = Annotated[
    str | None, Header(description="The id of the last message that was received; it overrides `after`.")
]
TOLD: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
    NO_MORE: {"description": "The message with this id was the last one: a browser then stops reconnecting."},
}


@router.get("/jobs/{job}/events/stream", responses=TOLD)
async def follow_events(
    request: Request,
    deployment: ThisDeployment,
    project: ViewerOfLater,
    viewer: ViewerLater,
    job: str,
    after: str | None = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow the events of a job. Messages `event` have an EventView, `progress` a ProgressView, `end` an EndView."""
    return await _follow(request, deployment, project, viewer, EVENTS, job, last_event_id or after)


@router.get("/facts/stream", responses=TOLD)
async def follow_facts(
    request: Request,
    deployment: ThisDeployment,
    project: ViewerOfLater,
    viewer: ViewerLater,
    after: str | None = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow the events of all jobs of the project in one stream, which never ends. Messages `fact` have a FactView."""
    return await _follow(request, deployment, project, viewer, FACTS, None, last_event_id or after)


@router.get("/jobs/{job}/logs/stream", responses=TOLD)
async def follow_log(
    request: Request,
    deployment: ThisDeployment,
    project: ViewerOfLater,
    viewer: ViewerLater,
    job: str,
    after: str | None = None,
    last_event_id: LastEventId = None,
    *,
    progress: bool = False,
) -> Response:
    """Follow the log of a job. Messages `log` have a LogView, `end` an EndView and, with `progress=true`, `progress` a ProgressView."""
    return await _follow(request, deployment, project, viewer, LOG, job, last_event_id or after, progress=progress)


async def _follow(
    request: Request,
    deployment: ThisDeployment,
    project: ViewerOfLater,
    viewer: ViewerLater,
    channel: Channel,
    job: str | None,
    told: str | None,
    *,
    progress: bool = True,
) -> Response:
    followers: Followers = request.app.state.followers
    position = position_of(channel, None if told == END else told)

    def first() -> tuple[str, str, str, StreamPage]:
        key, owner = viewer.get().proof, project.get()
        if job:
            owned(deployment, owner, job)
        of = job or owner
        found = read_stream(deployment, channel, of, position)
        refuse_beyond(position, found.newest)
        return key, owner, of, found

    key, owner, of, found = await USERS.run(first)
    if told == END:
        return Response(status_code=NO_MORE)
    return followers.follow(channel, owner, of, found, key=key, progress=progress)


@of_facts.get("/facts")
def list_facts(
    deployment: ThisDeployment,
    project: ViewerOf,
    after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
    last: Annotated[int | None, Query(ge=0, le=FACTS_MAX)] = None,
) -> list[FactView]:
    """List the events of all jobs of the project after the fact number `after`, 500 at most; with `last`, at most this many of the newest.

    Each event has its number within a second. With `last`, the header `Link` names what follows: what is `after` the newest number, also
    where the job that had it is deleted.
    """
    if last is None:
        found = facts_after(deployment, project, after)
        if not found:
            refuse_beyond((after,), (last_fact(deployment, project),))
        return found
    found, newest = newest_facts(deployment, project, last)
    answer = json_response(found)
    answer.headers["Link"] = next_link([("after", str(newest))])
    return cast(list[FactView], answer)
