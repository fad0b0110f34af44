"""What users ask about their project's jobs: viewers read, members submit and steer."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

from annotated_types import Ge, Le, MaxLen
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import to_json

from gangline.api.answers.problems import APART, PLAIN, of_body
from gangline.api.lanes import USERS, UserRoute
from gangline.api.who import NUMBER_MAX, At, MemberOf, MemberOfLater, Now, Viewer, ViewerOf
from gangline.core.display import NAME_MAX, Label
from gangline.core.errors import GanglineError, TooLarge
from gangline.core.files import FILE_BYTES_MAX, Sha256, check_parts
from gangline.core.jobs.placement import PlacementView
from gangline.core.parsing import InvalidSpec, parse_as, problems
from gangline.core.server.limits import Limits
from gangline.core.views import ArtifactView, BatchLineView, BlobView, EventView, JobPage, JobView, LogView, NodeView
from gangline.service.deployment import Deployment
from gangline.service.jobs import query, steer, submit
from gangline.service.jobs.placing import placement
from gangline.wire.problem import of_error

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
    name: Label = ""


def _shape(body: Any) -> str:
    """A submission whose spec is not apart, as one types it by hand, has the name among the settings."""
    return APART if isinstance(body, Submission) or not isinstance(body, dict) or "spec" in body else PLAIN


PLAIN_SCHEMA = {
    "type": "object",
    "description": "The settings of a spec (see `LoraSpec`), and `name`.",
    "not": {"required": ["spec"]},
    "additionalProperties": True,
}
AnySubmission = Annotated[
    Annotated[Submission, Tag(APART)] | Annotated[dict[str, Any], Tag(PLAIN), WithJsonSchema(PLAIN_SCHEMA)],
    Discriminator(_shape),
]


def _parts(submission: Submission | dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The spec and the name. Raises `InvalidSpec` for a name that is none."""
    if not isinstance(submission, Submission):
        spec = {field: value for field, value in submission.items() if field != "name"}
        read: Submission = parse_as(Submission, {"spec": spec, "name": submission.get("name", "")})
        return read.spec, read.name
    return submission.spec, submission.name


@router.post("/blobs")
def offer_blob(deployment: At, now: Now, project: MemberOf, blob: Blob) -> BlobView:
    """Whether these bytes are here; if not, where to put them. Ask again afterwards."""
    return submit.blob_here(deployment, project, blob.sha256, blob.bytes, now, blob.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A spec (see `LoraSpec`) that is not submitted; its files need not be here."""

    spec: dict[str, Any]


@router.post("/plans")
def place_job(deployment: At, now: Now, project: ViewerOf, question: Question) -> PlacementView:
    """Where such a job could run, if it was submitted now, or why nowhere; what waits before it, and how fast such work was. Nothing is
    changed."""
    return placement.placement(deployment, project, question.spec, now)


@router.post("/jobs", status_code=201)
def submit_job(
    deployment: At,
    now: Now,
    project: MemberOf,
    submission: AnySubmission,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> JobView:
    """A `Submission`, or the settings of its spec and `name` beside each other. `base` may be a name of `/v1/bases` or ORGANISATION/NAME of
    the hub, and `photos` may say where they lie: the server fetches them (docs/http.md)."""
    spec, name = _parts(submission)
    job = submit.submit(deployment, project, spec, name=name, request=idempotency_key, now_ms=now)
    return query.job(deployment, project, job, now)


LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"application/jsonl": {"schema": {"type": "string"}}},
        "description": "A BatchLineView for each line.",
    }
}
IdempotencyKey = Annotated[str | None, Header(max_length=190)]


@router.post("/jobs/batch", responses=LINES)
async def submit_batch(
    request: Request, deployment: At, project: MemberOfLater, idempotency_key: IdempotencyKey = None
) -> Response:
    """Submit the job of each line: JSON lines (application/jsonl), a Submission each. They are parsed one by one as they come, and a
    line that is refused leaves the others as they are. With an `Idempotency-Key` the whole may be sent again."""
    limits: Limits = request.app.state.limits
    owner, answers, number = await USERS.run(project.get), list[bytes](), 0
    async for line in _lines(request, limits):
        number += 1
        answer = await USERS.run(partial(_submit_line, deployment, owner, line, number, idempotency_key))
        answers.append(to_json(asdict(answer)))
    return Response(b"".join(answer + b"\n" for answer in answers), media_type="application/jsonl")


async def _lines(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the lines that are not blank. Raises `TooLarge` for one that is longer than a request's JSON may be."""
    rest, count = b"", 0
    async for piece in request.stream():
        *lines, rest = (rest + (piece or b"\n")).split(b"\n")  # an empty piece ends the body
        if max(map(len, (*lines, rest))) > limits.json_bytes_max:
            raise TooLarge(f"a line after line {count} is longer than {limits.json_bytes_max:,} bytes")
        for line in filter(bytes.strip, lines):
            count += 1
            if count > limits.batch_lines_max:
                hint = "send the others in a request of their own"
                raise TooLarge(f"there are more than {limits.batch_lines_max:,} lines", hint=hint)
            yield line


def _submit_line(deployment: Deployment, project: str, line: bytes, number: int, key: str | None) -> BatchLineView:
    try:
        spec, name = _parts(SUBMISSION.validate_json(line))
        request = None if key is None else f"{key}/{number}"
        now_ms = deployment.store.now_ms()
        job = submit.submit(deployment, project, spec, name=name, request=request, now_ms=now_ms)
    except ValidationError as error:
        invalid = InvalidSpec(problems(list(error.errors(include_url=False)), of_body))
        return BatchLineView(line=number, problem=asdict(of_error(invalid)))
    except GanglineError as error:
        return BatchLineView(line=number, problem=asdict(of_error(error)))
    return BatchLineView(line=number, job=job)


SUBMISSION: TypeAdapter[Submission | dict[str, Any]] = TypeAdapter(AnySubmission)


@router.get("/jobs")
def list_jobs(
    deployment: At,
    now: Now,
    project: ViewerOf,
    limit: Annotated[int, Query(ge=1, le=query.PAGE_MAX)] = 50,
    cursor: str | None = None,
    named: Annotated[str | None, Query(min_length=1, max_length=NAME_MAX)] = None,
) -> JobPage:
    """The newest first. `named`: those alone whose name this is, or whose id it is, begins or ends with; at most `limit`."""
    if named is not None:
        return query.jobs_named(deployment, project, named, now, limit=limit)
    return query.jobs(deployment, project, now, limit=limit, cursor=cursor)


@router.get("/jobs/{job}")
def show_job(deployment: At, now: Now, project: ViewerOf, job: str) -> JobView:
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/cancel")
def cancel_job(deployment: At, now: Now, project: MemberOf, job: str) -> JobView:
    """A job that has ended stays as it is."""
    query.owned(deployment, project, job)
    steer.cancel(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/pause")
def pause_job(deployment: At, now: Now, project: MemberOf, job: str) -> JobView:
    """A node at work saves and hands it back first. 422 for a job that has ended."""
    query.owned(deployment, project, job)
    steer.pause(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/resume")
def resume_job(deployment: At, now: Now, project: MemberOf, job: str) -> JobView:
    """One that was not paused stays as it is. 422 for a job that has ended."""
    query.owned(deployment, project, job)
    steer.resume(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/retry", status_code=201)
def retry_job(deployment: At, now: Now, project: MemberOf, job: str, from_checkpoint: bool = False) -> JobView:
    """A new job from the spec of one that has ended; from its newest checkpoint, if asked for. 422 where that is not kept any more."""
    query.owned(deployment, project, job)
    return query.job(
        deployment, project, steer.submit_again(deployment, project, job, now, from_checkpoint=from_checkpoint), now
    )


@router.get("/jobs/{job}/events")
def list_events(
    deployment: At, project: ViewerOf, job: str, after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0
) -> list[EventView]:
    return query.events_after(deployment, project, job, after)


@router.get("/jobs/{job}/logs")
def read_logs(deployment: At, project: ViewerOf, job: str, after: str | None = None) -> LogView:
    return query.log_page(deployment, project, job, after)


@router.get("/jobs/{job}/artifacts")
def list_artifacts(deployment: At, now: Now, project: ViewerOf, job: str) -> list[ArtifactView]:
    return query.artifacts_of(deployment, project, job, now)


@router.get("/nodes")
def list_nodes(deployment: At, viewer: Viewer) -> list[NodeView]:
    """The whole fleet; a node's `job` only where it is one's own, or the operator asks."""
    return query.nodes(deployment, viewer.project)
