"""Routes that submit jobs, one or many."""

from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, Any, cast

from fastapi import APIRouter, Request, Response
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import to_json

from gangline.api.answers.problems import APART, PLAIN, of_body
from gangline.api.answers.repeats import IdempotencyKey, InFlight, Repeat
from gangline.api.jobs.lines import JSON_LINES, JsonLines, made_ahead
from gangline.api.lanes import USERS, UserRoute
from gangline.api.who import Member, MemberLater, MemberOf, MemberOfLater, Now, ThisDeployment
from gangline.core.display import Label
from gangline.core.errors import GanglineError, TooLarge
from gangline.core.jobs.lists.labels import JobLabels
from gangline.core.parsing import InvalidSpec, parse_as, problems
from gangline.core.server.idempotency import parse_key, request_fingerprint
from gangline.core.server.limits import Limits
from gangline.core.views import BatchLineView, JobView
from gangline.service.deployment import Deployment
from gangline.service.jobs import query, submit
from gangline.service.jobs.submit import Asker
from gangline.wire.problem import of_error

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)
BATCH = "POST /v1/jobs/batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A spec (see `LoraSpec`), a name for people, by default its prompt, and labels to find the job by."""

    spec: dict[str, Any]
    name: Label = ""
    labels: JobLabels = field(default_factory=dict)


def _shape(body: Any) -> str:
    """Return the shape of a body: one without `spec`, as people type by hand, has the settings, the name and the labels side by side."""
    return APART if isinstance(body, Submission) or not isinstance(body, dict) or "spec" in body else PLAIN


PLAIN_SCHEMA = {
    "type": "object",
    "description": "The settings of a spec (see `LoraSpec`), `name` and `labels`.",
    "not": {"required": ["spec"]},
    "additionalProperties": True,
}
AnySubmission = Annotated[
    Annotated[Submission, Tag(APART)] | Annotated[dict[str, Any], Tag(PLAIN), WithJsonSchema(PLAIN_SCHEMA)],
    Discriminator(_shape),
]


BESIDE = ("name", "labels")
"""The fields of a submission that are no settings."""


def _read(submission: Submission | dict[str, Any]) -> Submission:
    """Return the submission with its spec apart. Raise `InvalidSpec` for an invalid name or label."""
    if isinstance(submission, Submission):
        return submission
    spec = {name: value for name, value in submission.items() if name not in BESIDE}
    beside = {name: submission[name] for name in BESIDE if name in submission}
    read: Submission = parse_as(Submission, {"spec": spec} | beside)
    return read


@router.post("/jobs", status_code=201)
def submit_job(
    deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, submission: AnySubmission, repeat: Repeat
) -> JobView:
    """Submit a job: a `Submission`, or the settings of its spec, `name` and `labels` side by side.

    `base` may be the name of a base (`/v1/bases`) or ORGANISATION/NAME on the hub. `photos` may say where they are, and the server
    downloads them (docs/http.md). A repeated request with the same `Idempotency-Key` returns the same job.
    """
    wanted = _read(submission)
    asker = Asker(
        owner=member.id, labels=wanted.labels, fingerprint=repeat.fingerprint, released=repeat.released_request
    )
    request = repeat.request_of_job
    with repeat.alone(project):
        job = submit.submit(
            deployment, project, wanted.spec, name=wanted.name, request=request, now_ms=now, asker=asker
        )
        return query.job(deployment, project, job, now)


LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}, "description": "A BatchLineView for each line."}
}


@dataclass(frozen=True, slots=True)
class _Batch:
    """Who sends the lines of a batch, under which key, which `header` has as it was sent."""

    deployment: Deployment
    project: str
    owner: str
    key: str | None
    header: str | None

    def submit(self, line: bytes, number: int) -> BatchLineView:
        try:
            wanted = _read(SUBMISSION.validate_json(line))
            said = None if self.key is None else request_fingerprint(BATCH, "", line)
            request = None if self.key is None else f"{BATCH}\n{self.key}\n{number}"
            released = None if self.header is None else f"{self.header}/{number}"
            asker = Asker(owner=self.owner, labels=wanted.labels, fingerprint=said, released=released)
            known = {"name": wanted.name, "request": request, "now_ms": self.deployment.store.now_ms()}
            job = submit.submit(self.deployment, self.project, wanted.spec, **known, asker=asker)
        except ValidationError as error:
            invalid = InvalidSpec(problems(list(error.errors(include_url=False)), of_body))
            return BatchLineView(line=number, problem=asdict(of_error(invalid)))
        except GanglineError as error:
            return BatchLineView(line=number, problem=asdict(of_error(error)))
        return BatchLineView(line=number, job=job)


@router.post("/jobs/batch", responses=LINES)
async def submit_batch(
    request: Request,
    deployment: ThisDeployment,
    project: MemberOfLater,
    member: MemberLater,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Submit a job for each line of a body in JSON lines (application/jsonl), each a `Submission`.

    Each line is answered as soon as it is submitted, and a refused one does not affect the others. A fault that ends the batch is the
    problem of a last line. With an `Idempotency-Key`, the complete request can be repeated safely.
    """
    key = None if idempotency_key is None else parse_key(idempotency_key)
    found = await USERS.run(lambda: (project.get(), member.get().id))
    return JsonLines(await made_ahead(_answers(request, _Batch(deployment, *found, key, idempotency_key))))


async def _answers(request: Request, batch: _Batch) -> AsyncIterator[bytes]:
    in_flight, number = cast(InFlight, request.app.state.in_flight), 0
    with nullcontext() if batch.key is None else in_flight.alone(batch.project, BATCH, batch.key):
        try:
            async for line in _lines(request, request.app.state.limits):
                number += 1
                yield _line(await USERS.run(partial(batch.submit, line, number)))
        except GanglineError as error:
            if not number:
                raise
            yield _line(BatchLineView(line=number + 1, problem=asdict(of_error(error))))


def _line(view: BatchLineView) -> bytes:
    return to_json(asdict(view)) + b"\n"


async def _lines(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the lines that are not blank. Raise `TooLarge` for one longer than the JSON of a request may be, and for too many lines."""
    rest, count = b"", 0
    async for piece in request.stream():
        # the last piece is empty and completes a line without a line end
        *ended, rest = (rest + (piece or b"\n")).split(b"\n")
        if max(map(len, (*ended, rest))) > limits.json_bytes_max:
            raise TooLarge(f"a line after line {count} is longer than {limits.json_bytes_max:,} bytes")
        lines = list(filter(bytes.strip, ended))
        if count + len(lines) + bool(rest.strip()) > limits.batch_lines_max:  # before any of them is submitted
            hint = "send the others in another request"
            raise TooLarge(f"there are more than {limits.batch_lines_max:,} lines", hint=hint)
        for line in lines:
            count += 1
            yield line


SUBMISSION: TypeAdapter[Submission | dict[str, Any]] = TypeAdapter(AnySubmission)
