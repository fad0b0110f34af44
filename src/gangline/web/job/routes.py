"""The screen of a job: its page, its stream, what it links to, and its comparison with another job."""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from gangline.api.lanes import USERS
from gangline.api.retention.routes import CheckpointStep
from gangline.api.who import NUMBER_MAX, Now, ThisDeployment, ViewerOf
from gangline.core.display import NAME_MAX
from gangline.core.errors import NotFound, UserError
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.runs.metrics import MEANING
from gangline.service.content.bases import bases_of
from gangline.service.jobs import query
from gangline.service.jobs.lists.compared import compared_jobs
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.jobs.story.timeline import timeline_of
from gangline.service.retention import storage
from gangline.web.frame.routes import like, page_router, part, screen, wants_part
from gangline.web.frame.visitor import Looking, LookingLater
from gangline.web.job.settings import spec_rows
from gangline.web.job.sight import JobScreen, drawn_timeline, look_at
from gangline.web.live.following import Following
from gangline.web.new.asked import KIND
from gangline.wire.problem import of_error

router = page_router()
SUGGESTED = 30
"""Jobs that are suggested for a comparison, the newest first."""
READS = (
    "GET /v1/jobs/{job}",
    "GET /v1/jobs/{job}/timeline",
    "GET /v1/jobs/{job}/events",
    "GET /v1/jobs/{job}/checkpoints",
    "GET /v1/jobs/{job}/artifacts",
    "GET /v1/jobs/{job}/logs",
)


@router.get("/jobs/{job}", **like(*READS, "GET /v1/jobs/{job}/metrics", "GET /v1/bases"))
def open_job(deployment: ThisDeployment, look: Looking, job: str) -> Response:
    """Show a job."""
    return screen(
        look,
        "job/show.html",
        seen=look_at(deployment, look.project, job, look.now_ms),
        rows=spec_rows(query.job(deployment, look.project, job, look.now_ms).spec, bases_of(deployment, look.project)),
        meaning=MEANING,
        may=look.may("member"),
        form_kind=KIND,
    )


@router.get("/live/jobs/{job}", **like(*READS))
async def stream_job(following: Following, deployment: ThisDeployment, look: LookingLater, job: str) -> Response:
    """Follow a job. The stream ends with the key of its session, and says so if the job is deleted."""
    seen = await USERS.run(look.get)
    may = seen.may("member")
    await USERS.run(lambda: query.owned(deployment, seen.project, job))
    return await following.follow(seen, ("job", seen.project, job, may), lambda: JobScreen(seen.project, job, may=may))


@router.get("/jobs/{job}/timeline", **like("GET /v1/jobs/{job}/timeline"))
def show_span_of_timeline(
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    job: str,
    from_ms: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
    to_ms: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
) -> Response:
    """Draw the timeline of a job: the span that its charts are zoomed to, or all of it."""
    found = timeline_of(deployment, project, job, now)
    return HTMLResponse(drawn_timeline(found, (from_ms, to_ms) if from_ms < to_ms else None))


@router.get("/jobs/{job}/events", **like("GET /v1/jobs/{job}", "GET /v1/jobs/{job}/events"))
def open_events(deployment: ThisDeployment, look: Looking, job: str) -> Response:
    """Show all events of a job, the newest first."""
    found = query.job(deployment, look.project, job, look.now_ms)
    events = query.events_after(deployment, look.project, job, 0)[::-1]
    nodes = {each.node: each.node_name for each in found.attempts}
    return screen(look, "job/events.html", job=found, events=events, nodes=nodes)


@router.get("/jobs/{job}/files/{path:path}", **like("GET /v1/jobs/{job}/artifacts"))
def open_file(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str, path: str) -> Response:
    """Lead to a result of a job: the signed addresses of the object store expire, and this one does not."""
    found = next((each for each in query.artifacts_of(deployment, project, job, now) if each.path == path), None)
    if found is None:
        raise NotFound(f"{job} has no file {path}", hint="its screen lists its files")
    return RedirectResponse(found.url, status_code=303)


@router.get("/jobs/{job}/checkpoints/{step}", **like("GET /v1/jobs/{job}/checkpoints/{step}"))
def list_checkpoint_files(
    deployment: ThisDeployment, now: Now, project: ViewerOf, job: str, step: CheckpointStep
) -> Response:
    """Show the files of a checkpoint, to download."""
    found = storage.checkpoint_files(deployment, query.owned(deployment, project, job), step, now)
    return part("job/checkpoint.html", found=found)


@router.get(
    "/jobs/{job}/diff", **like("GET /v1/jobs/{job}", "GET /v1/jobs/{job}/metrics", "GET /v1/jobs/{job}/artifacts")
)
def open_comparison(
    request: Request,
    deployment: ThisDeployment,
    look: Looking,
    job: str,
    other: Annotated[str, Query(alias="with", max_length=NAME_MAX)] = "",
) -> Response:
    """Compare a job with another one. Without one, ask which."""
    here = query.job(deployment, look.project, job, look.now_ms)
    other = other.strip()
    found, refusal = None, None
    try:
        found = compared_jobs(deployment, look.project, job, other, look.now_ms) if other else None
    except UserError as error:  # of the name that was typed: the form stays
        if wants_part(request):
            raise
        refusal = of_error(error)
    listed = page_of_jobs(deployment, look.project, JobFilters(), look.now_ms, limit=SUGGESTED).jobs
    suggested = [each for each in listed if each.id != job]
    answer = screen(look, "job/diff.html", job=here, found=found, refusal=refusal, other=other, suggested=suggested)
    answer.status_code = refusal.status if refusal else answer.status_code
    return answer
