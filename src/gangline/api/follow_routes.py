"""Routes that follow a job by server-sent events. A client resumes with the last `id`; `end` says that nothing more will come."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from gangline.api.answers.streams import END, Followers
from gangline.api.lanes import USERS
from gangline.api.who import ThisDeployment, ViewerOfLater
from gangline.service.jobs.follow import EVENTS, LOG, Channel, StreamPage, position_of, read_stream
from gangline.service.jobs.query import owned

NO_MORE = 204
router = APIRouter(prefix="/v1", tags=["users"], default_response_class=StreamingResponse)
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
    job: str,
    after: str | None = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow the events of a job. Messages `event` have an EventView, `progress` a ProgressView, `end` an EndView."""
    return await _follow(request, deployment, project, EVENTS, job, last_event_id or after)


@router.get("/jobs/{job}/logs/stream", responses=TOLD)
async def follow_log(
    request: Request,
    deployment: ThisDeployment,
    project: ViewerOfLater,
    job: str,
    after: str | None = None,
    last_event_id: LastEventId = None,
    *,
    progress: bool = False,
) -> Response:
    """Follow the log of a job. Messages `log` have a LogView, `end` an EndView and, with `progress=true`, `progress` a ProgressView."""
    return await _follow(request, deployment, project, LOG, job, last_event_id or after, progress=progress)


async def _follow(
    request: Request,
    deployment: ThisDeployment,
    project: ViewerOfLater,
    channel: Channel,
    job: str,
    told: str | None,
    *,
    progress: bool = True,
) -> Response:
    followers: Followers = request.app.state.followers
    position = position_of(channel, None if told == END else told)

    def first() -> tuple[str, StreamPage]:
        owner = project.get()
        owned(deployment, owner, job)
        return owner, read_stream(deployment, channel, job, position)

    owner, found = await USERS.run(first)
    if told == END:
        return Response(status_code=NO_MORE)
    return followers.follow(channel, owner, job, found, progress=progress)
