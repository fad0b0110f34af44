"""What users ask."""

from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, MaxLen
from fastapi import APIRouter, Header, Query

from gangline.api.who import NUMBER_MAX, At, Now, Project
from gangline.core.files import FILE_BYTES_MAX, Sha256
from gangline.core.views import ArtifactView, BlobView, EventView, JobPage, JobView, LogView, NodeView, ProjectView
from gangline.service import access, query, steer, submit

router = APIRouter(prefix="/v1", tags=["users"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Bytes to hand in."""

    sha256: Sha256
    bytes: Annotated[int, Ge(0), Le(FILE_BYTES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A spec (see `LoraSpec`) and a name for people; without one, its prompt."""

    spec: dict[str, Any]
    name: Annotated[str, MaxLen(200)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a project may have: its share beside the others', and a budget for all that it ever spends (None: no limit)."""

    share: Annotated[float, Gt(0), Le(1e6)] = 1.0
    budget_usd: Annotated[float, Ge(0), Le(1e9)] | None = None


@router.post("/blobs")
def offer_blob(at: At, now: Now, project: Project, blob: Blob) -> BlobView:
    """Whether these bytes are here; if not, where to put them. Ask again afterwards."""
    return submit.offer_blob(at, project, blob.sha256, blob.bytes, now)


@router.post("/jobs", status_code=201)
def submit_job(
    at: At,
    now: Now,
    project: Project,
    submission: Submission,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> JobView:
    job = submit.submit(at, project, submission.spec, name=submission.name, request=idempotency_key, now_ms=now)
    return query.job(at, project, job, now)


@router.get("/jobs")
def list_jobs(
    at: At,
    now: Now,
    project: Project,
    limit: Annotated[int, Query(ge=1, le=query.PAGE_MAX)] = 50,
    cursor: str | None = None,
) -> JobPage:
    return query.jobs(at, project, now, limit=limit, cursor=cursor)


@router.get("/jobs/{job}")
def show_job(at: At, now: Now, project: Project, job: str) -> JobView:
    return query.job(at, project, job, now)


@router.post("/jobs/{job}/cancel")
def cancel_job(at: At, now: Now, project: Project, job: str) -> JobView:
    """A job that has ended stays as it is."""
    query.owned(at, project, job)
    steer.cancel(at, job, now)
    return query.job(at, project, job, now)


@router.post("/jobs/{job}/pause")
def pause_job(at: At, now: Now, project: Project, job: str) -> JobView:
    """A node at work saves and hands it back first. 422 for a job that has ended."""
    query.owned(at, project, job)
    steer.pause(at, job, now)
    return query.job(at, project, job, now)


@router.post("/jobs/{job}/resume")
def resume_job(at: At, now: Now, project: Project, job: str) -> JobView:
    """One that was not paused stays as it is. 422 for a job that has ended."""
    query.owned(at, project, job)
    steer.resume(at, job, now)
    return query.job(at, project, job, now)


@router.post("/jobs/{job}/retry", status_code=201)
def retry_job(at: At, now: Now, project: Project, job: str) -> JobView:
    """A new job from the spec of one that has ended."""
    query.owned(at, project, job)
    return query.job(at, project, steer.retry(at, project, job, now), now)


@router.get("/project")
def show_project(at: At, project: Project) -> ProjectView:
    return query.project(at, project)


@router.put("/project")
def set_project(at: At, project: Project, wanted: Wanted) -> ProjectView:
    access.set_project(at, project, share=wanted.share, budget_usd=wanted.budget_usd)
    return query.project(at, project)


@router.get("/jobs/{job}/events")
def list_events(
    at: At, project: Project, job: str, after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0
) -> list[EventView]:
    return query.events(at, project, job, after)


@router.get("/jobs/{job}/logs")
def read_logs(at: At, project: Project, job: str, after: str | None = None) -> LogView:
    return query.logs(at, project, job, after)


@router.get("/jobs/{job}/artifacts")
def list_artifacts(at: At, now: Now, project: Project, job: str) -> list[ArtifactView]:
    return query.artifacts(at, project, job, now)


@router.get("/nodes")
def list_nodes(at: At, _: Project) -> list[NodeView]:
    return query.nodes(at)
