"""What users ask about their project's jobs: viewers read, members submit and steer."""

from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le, MaxLen
from fastapi import APIRouter, Header, Query

from gangline.api.lanes import UserRoute
from gangline.api.who import NUMBER_MAX, At, MemberOf, Now, Viewer, ViewerOf
from gangline.core.files import FILE_BYTES_MAX, Sha256, check_parts
from gangline.core.views import ArtifactView, BlobView, EventView, JobPage, JobView, LogView, NodeView
from gangline.service.jobs import query, steer, submit

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Bytes to hand in; with the SHA-256 of each part of 16 MiB where they are more than one."""

    sha256: Sha256
    bytes: Annotated[int, Ge(0), Le(FILE_BYTES_MAX)]
    parts: Annotated[tuple[Sha256, ...], MaxLen(10_000)] = ()

    def __post_init__(self) -> None:
        check_parts(self.bytes, self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A spec (see `LoraSpec`) and a name for people; without one, its prompt."""

    spec: dict[str, Any]
    name: Annotated[str, MaxLen(200)] = ""


@router.post("/blobs")
def offer_blob(at: At, now: Now, project: MemberOf, blob: Blob) -> BlobView:
    """Whether these bytes are here; if not, where to put them. Ask again afterwards."""
    return submit.offer_blob(at, project, blob.sha256, blob.bytes, now, blob.parts)


@router.post("/jobs", status_code=201)
def submit_job(
    at: At,
    now: Now,
    project: MemberOf,
    submission: Submission,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> JobView:
    job = submit.submit(at, project, submission.spec, name=submission.name, request=idempotency_key, now_ms=now)
    return query.job(at, project, job, now)


@router.get("/jobs")
def list_jobs(
    at: At,
    now: Now,
    project: ViewerOf,
    limit: Annotated[int, Query(ge=1, le=query.PAGE_MAX)] = 50,
    cursor: str | None = None,
) -> JobPage:
    return query.jobs(at, project, now, limit=limit, cursor=cursor)


@router.get("/jobs/{job}")
def show_job(at: At, now: Now, project: ViewerOf, job: str) -> JobView:
    return query.job(at, project, job, now)


@router.post("/jobs/{job}/cancel")
def cancel_job(at: At, now: Now, project: MemberOf, job: str) -> JobView:
    """A job that has ended stays as it is."""
    query.owned(at, project, job)
    steer.cancel(at, job, now)
    return query.job(at, project, job, now)


@router.post("/jobs/{job}/pause")
def pause_job(at: At, now: Now, project: MemberOf, job: str) -> JobView:
    """A node at work saves and hands it back first. 422 for a job that has ended."""
    query.owned(at, project, job)
    steer.pause(at, job, now)
    return query.job(at, project, job, now)


@router.post("/jobs/{job}/resume")
def resume_job(at: At, now: Now, project: MemberOf, job: str) -> JobView:
    """One that was not paused stays as it is. 422 for a job that has ended."""
    query.owned(at, project, job)
    steer.resume(at, job, now)
    return query.job(at, project, job, now)


@router.post("/jobs/{job}/retry", status_code=201)
def retry_job(at: At, now: Now, project: MemberOf, job: str) -> JobView:
    """A new job from the spec of one that has ended."""
    query.owned(at, project, job)
    return query.job(at, project, steer.retry(at, project, job, now), now)


@router.get("/jobs/{job}/events")
def list_events(
    at: At, project: ViewerOf, job: str, after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0
) -> list[EventView]:
    return query.events(at, project, job, after)


@router.get("/jobs/{job}/logs")
def read_logs(at: At, project: ViewerOf, job: str, after: str | None = None) -> LogView:
    return query.logs(at, project, job, after)


@router.get("/jobs/{job}/artifacts")
def list_artifacts(at: At, now: Now, project: ViewerOf, job: str) -> list[ArtifactView]:
    return query.artifacts(at, project, job, now)


@router.get("/nodes")
def list_nodes(at: At, viewer: Viewer) -> list[NodeView]:
    """The whole fleet; a node's `job` only where it is one's own, or the operator asks."""
    return query.nodes(at, viewer.project)
