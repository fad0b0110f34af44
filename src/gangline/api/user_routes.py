"""Routes for a project's jobs: viewers read, members submit and steer."""

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
from gangline.api.who import NUMBER_MAX, MemberOf, MemberOfLater, Now, ThisDeployment, ViewerOf
from gangline.core.display import NAME_MAX, Label
from gangline.core.errors import GanglineError, TooLarge
from gangline.core.files import FILE_BYTES_MAX, Sha256, check_parts
from gangline.core.fleet.explained import JobOffers
from gangline.core.jobs.placement import PlacementView
from gangline.core.parsing import InvalidSpec, parse_as, problems
from gangline.core.runs.extension import ExtensionSchedule, ExtensionView
from gangline.core.server.limits import Limits
from gangline.core.views import ArtifactView, BatchLineView, BlobView, EventView, JobPage, JobView, LogView
from gangline.service.deployment import Deployment
from gangline.service.jobs import query, steer, submit, wishes
from gangline.service.jobs.extension import extend as extension
from gangline.service.jobs.placing import explaining, placement
from gangline.wire.problem import of_error

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A file to upload, with the SHA-256 of each part of 16 MiB if it has more than one."""

    sha256: Sha256
    bytes: Annotated[int, Ge(0), Le(FILE_BYTES_MAX)]
    parts: Annotated[tuple[Sha256, ...], MaxLen(10_000)] = ()

    def __post_init__(self) -> None:
        check_parts(self.bytes, self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A spec (see `LoraSpec`) and a name for people; the default name is its prompt."""

    spec: dict[str, Any]
    name: Label = ""


def _shape(body: Any) -> str:
    """Return the shape of a body: one without `spec`, as people type by hand, has the settings and the name side by side."""
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
    """Return the spec and the name. Raise `InvalidSpec` for an invalid name."""
    if not isinstance(submission, Submission):
        spec = {field: value for field, value in submission.items() if field != "name"}
        read: Submission = parse_as(Submission, {"spec": spec, "name": submission.get("name", "")})
        return read.spec, read.name
    return submission.spec, submission.name


@router.post("/blobs")
def offer_blob(deployment: ThisDeployment, now: Now, project: MemberOf, blob: Blob) -> BlobView:
    """Check whether the project has this file. If not, the answer says how to upload it; repeat the request after the upload."""
    return submit.blob_here(deployment, project, blob.sha256, blob.bytes, now, blob.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A spec (see `LoraSpec`) that is not submitted; its files need not be uploaded."""

    spec: dict[str, Any]


@router.post("/plans")
def place_job(deployment: ThisDeployment, now: Now, project: ViewerOf, question: Question) -> PlacementView:
    """Show where a job could run if it was submitted now, or why nowhere; how many jobs come before it, and how fast such work was.

    Nothing is changed.
    """
    return placement.placement(deployment, project, question.spec, now)


@router.get("/jobs/{job}/offers")
def explain_offers(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str) -> JobOffers:
    """Show the offers of all pools for a job, those first on which a finished step is expected to cost least, with the reasons."""
    return explaining.explain(deployment, project, job, now)


@router.post("/jobs", status_code=201)
def submit_job(
    deployment: ThisDeployment,
    now: Now,
    project: MemberOf,
    submission: AnySubmission,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> JobView:
    """Submit a job: a `Submission`, or the settings of its spec and `name` side by side.

    `base` may be the name of a base (`/v1/bases`) or ORGANISATION/NAME on the hub. `photos` may say where they are, and the server
    downloads them (docs/http.md). A repeated request with the same `Idempotency-Key` returns the same job.
    """
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
    request: Request, deployment: ThisDeployment, project: MemberOfLater, idempotency_key: IdempotencyKey = None
) -> Response:
    """Submit a job for each line of a body in JSON lines (application/jsonl), each a `Submission`.

    Lines are parsed one by one as they arrive, and a refused line does not affect the others. With an `Idempotency-Key`, the complete
    request can be repeated safely.
    """
    limits: Limits = request.app.state.limits
    owner, answers, number = await USERS.run(project.get), list[bytes](), 0
    async for line in _lines(request, limits):
        number += 1
        answer = await USERS.run(partial(_submit_line, deployment, owner, line, number, idempotency_key))
        answers.append(to_json(asdict(answer)))
    return Response(b"".join(answer + b"\n" for answer in answers), media_type="application/jsonl")


async def _lines(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the lines that are not blank. Raise `TooLarge` for one longer than the JSON of a request may be, and for too many lines."""
    rest, count = b"", 0
    async for piece in request.stream():
        # the last piece is empty and completes a line without a line end
        *lines, rest = (rest + (piece or b"\n")).split(b"\n")
        if max(map(len, (*lines, rest))) > limits.json_bytes_max:
            raise TooLarge(f"a line after line {count} is longer than {limits.json_bytes_max:,} bytes")
        for line in filter(bytes.strip, lines):
            count += 1
            if count > limits.batch_lines_max:
                hint = "send the others in another request"
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
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    limit: Annotated[int, Query(ge=1, le=query.PAGE_MAX)] = 50,
    cursor: str | None = None,
    named: Annotated[str | None, Query(min_length=1, max_length=NAME_MAX)] = None,
) -> JobPage:
    """List the project's jobs, newest first.

    With `named`, only those with this name, or whose id is this, or begins or ends with it; at most `limit`.
    """
    if named is not None:
        return query.jobs_named(deployment, project, named, now, limit=limit)
    return query.jobs(deployment, project, now, limit=limit, cursor=cursor)


@router.get("/jobs/{job}")
def show_job(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str) -> JobView:
    """Show a job with its spec, its attempts, its progress and its cost."""
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/cancel")
def cancel_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str) -> JobView:
    """Cancel a job. A job that has ended stays as it is."""
    query.owned(deployment, project, job)
    steer.cancel(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/pause")
def pause_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str) -> JobView:
    """Pause a job. A node at work saves and releases it first. 422 if the job has ended."""
    query.owned(deployment, project, job)
    steer.pause(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/resume")
def resume_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str) -> JobView:
    """Resume a paused job. A job that was not paused stays as it is. 422 if the job has ended."""
    query.owned(deployment, project, job)
    steer.resume(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/save")
def save_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str) -> JobView:
    """Have the job save a checkpoint now. Its node hears it with its next heartbeat; after an interruption the next one does it.

    A second request before that changes nothing. 422 if no node works on the job.
    """
    query.owned(deployment, project, job)
    wishes.ask_to_save(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/sample")
def sample_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str) -> JobView:
    """Have pictures rendered of what the job has now, by another node if one has time: it saves a checkpoint for them first.

    A second request before they have come changes nothing. 422 if the job has ended, or has nothing to show.
    """
    query.owned(deployment, project, job)
    wishes.ask_for_samples(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/finish")
def finish_job(deployment: ThisDeployment, now: Now, project: MemberOf, job: str) -> JobView:
    """Have the job end now, with the result of the steps that it has taken. One that no node works on goes to a node that writes it.

    422 if the job has ended, if it runs a command, or if it has neither a node nor a checkpoint.
    """
    query.owned(deployment, project, job)
    wishes.ask_to_finish(deployment, job, now)
    return query.job(deployment, project, job, now)


@router.post("/jobs/{job}/retry", status_code=201)
def retry_job(
    deployment: ThisDeployment,
    now: Now,
    project: MemberOf,
    job: str,
    from_checkpoint: bool = False,
    from_step: Annotated[int | None, Query(ge=1, le=NUMBER_MAX)] = None,
) -> JobView:
    """Submit the spec of a job that has ended as a new job; with `from_checkpoint`, from its newest checkpoint, with `from_step` from that
    of this step.

    422 if the job has not ended, or keeps no checkpoint to begin from; 404 if it keeps none of that step.
    """
    query.owned(deployment, project, job)
    made = steer.submit_again(deployment, project, job, now, from_checkpoint=from_checkpoint, from_step=from_step)
    return query.job(deployment, project, made, now)


StepsInAll = Annotated[int, Query(ge=1, le=NUMBER_MAX)]


@router.get("/jobs/{job}/extension")
def show_extension(
    deployment: ThisDeployment,
    project: ViewerOf,
    job: str,
    steps: StepsInAll,
    schedule: ExtensionSchedule = "stretch",
) -> ExtensionView:
    """Show what extending a job that has ended to `steps` steps in all would do: the checkpoint that it continues from, the learning rate
    with each `schedule`, and the new spec, which `/v1/plans` takes. Nothing is changed.

    422 if the job has not ended, trains nothing, keeps no checkpoint, or has taken as many steps.
    """
    return extension.what_extends(deployment, query.owned(deployment, project, job), steps, schedule)


@router.post("/jobs/{job}/extend", status_code=201)
def extend_job(
    deployment: ThisDeployment,
    now: Now,
    project: MemberOf,
    job: str,
    steps: StepsInAll,
    schedule: ExtensionSchedule = "stretch",
) -> JobView:
    """Submit a new job that continues one that has ended to `steps` steps in all, from its newest checkpoint.

    With `stretch` the learning rate follows the schedule of a job of as many steps; with `keep` it follows the old one, and then stays what
    it was at the last step. 422 as `GET /v1/jobs/{job}/extension`.
    """
    made = extension.extend(deployment, project, query.owned(deployment, project, job), steps, schedule, now)
    return query.job(deployment, project, made, now)


@router.get("/jobs/{job}/events")
def list_events(
    deployment: ThisDeployment, project: ViewerOf, job: str, after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0
) -> list[EventView]:
    """List the events of a job after the event number `after`."""
    return query.events_after(deployment, project, job, after)


@router.get("/jobs/{job}/logs")
def read_logs(deployment: ThisDeployment, project: ViewerOf, job: str, after: str | None = None) -> LogView:
    """Return one page of a job's log. Repeat the request with `after` set to `next` of the answer."""
    return query.log_page(deployment, project, job, after)


@router.get("/jobs/{job}/artifacts")
def list_artifacts(deployment: ThisDeployment, now: Now, project: ViewerOf, job: str) -> list[ArtifactView]:
    """List the results of a job, each with a signed URL to download it."""
    return query.artifacts_of(deployment, project, job, now)
