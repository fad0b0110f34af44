"""Submit: photos and bases handed in by content, then a job that names them."""

from dataclasses import replace

from gangline.core.canonical import canonical_json
from gangline.core.errors import BadInput, Unreachable
from gangline.core.files import File
from gangline.core.jobs.keys import blob_key
from gangline.core.parsing import to_json
from gangline.core.specs.kinds import needs_data_sets
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import SampleSpec, Spec, parse_submitted, spec_hash, workload
from gangline.core.views import BlobView
from gangline.ports.server import Refused, Upload
from gangline.ports.store import Write, guard, write
from gangline.service.attempts import event
from gangline.service.content.bases import pinned
from gangline.service.content.blobs import check_here, hand_in, listing, naming, refuse_going
from gangline.service.content.mirror import copied
from gangline.service.content.upload import grant, stored_as
from gangline.service.deployment import Deployment

WAITS = "waits for a node"


def offer_blob(
    at: Deployment, project: str, sha256: str, size: int, now_ms: int, parts: tuple[str, ...] = ()
) -> BlobView:
    """Ask before sending, and once more after: then the store is asked, and that they are there is recorded."""
    key, file = blob_key(project, sha256), File(path=sha256, bytes=size, sha256=sha256)
    refuse_going(at, project, file)
    if isinstance(stored_as(at, key, file, parts), Refused):
        return BlobView(
            present=False,
            grant=grant(at, key, Upload(path=sha256, bytes=size, sha256=sha256, parts=parts), now_ms),
        )
    hand_in(at, project, file, now_ms)
    return BlobView(present=True, grant=None)


def submit(
    at: Deployment, project: str, value: dict[str, object], *, name: str, request: str | None, now_ms: int
) -> str:
    """The id of a new job, or of the one that the same `request` made before. Raises `BadInput`, `InvalidSpec`.

    The name that a user gives to a job is its LoRA's, too, unless the spec has one: two LoRAs of one prompt stay two files."""
    spec = pinned(at, project, parse_submitted(value))
    if isinstance(spec, LoraSpec) and not spec.output_name:
        spec = replace(spec, output_name=name)
    return queue(at, project, spec, name=name, request=request, now_ms=now_ms)


def queue(
    at: Deployment,
    project: str,
    spec: Spec,
    *,
    name: str,
    request: str | None,
    now_ms: int,
    begins_from: str | None = None,
) -> str:
    """Do the same with a spec as it is, whose models are pinned. The job may begin from the checkpoints of another one, which stay until it
    has one of its own."""
    _check_sets(spec)
    check_here(at, project, spec.input_files())
    job = at.new_id("job")
    files = spec.input_files().values()
    added = at.store.apply(
        *naming(project, files, now_ms),
        write("add_project", id=project),
        adding(
            spec,
            spec,
            id=job,
            project=project,
            name=name or spec.title,
            spec_hash=spec_hash(spec),
            request=request,
            because=WAITS,
            steps=spec.steps,
            workload=workload(spec),
            copied_bytes=sum(file.bytes for file in copied(at, project, spec).values()),
            exact=spec.exact,
            now=now_ms,
        ),
        *listing(project, job, files),
        *_rhythm(spec, job, now_ms),
        *_inheriting(job, begins_from),
        event(job, "submitted", WAITS if begins_from is None else f"{WAITS}, to go on from {begins_from}", now_ms),
    )
    if added:
        return job
    if begins_from is not None and not at.store.load("checkpoints", job=begins_from):
        raise BadInput(f"{begins_from} keeps no checkpoint any more", hint="submit the job without it")
    earlier = at.store.load("job_of_request", project=project, request=request)
    if not earlier:
        check_here(at, project, spec.input_files())
        raise Unreachable("files of this job are being deleted, as nothing used them", hint="try again in a minute")
    if earlier[0]["spec_hash"] != spec_hash(spec):
        raise BadInput(f"the request {request} was used for another spec", hint="use a new Idempotency-Key")
    return earlier[0]["id"]


def _inheriting(job: str, begins_from: str | None) -> list[Write]:
    """The checkpoints are marked, so that nobody deletes them who looked before."""
    if begins_from is None:
        return []
    return [
        guard("bequeath_checkpoints", job=begins_from),
        write("begin_from", id=job, of=begins_from),
        write("measure_checkpoint", id=job),
    ]


def adding(spec: Spec | SampleSpec, settings: Spec, *, copied_bytes: int = 0, **facts: object) -> Write:
    """A new job; `settings` say what it starts from, where it may run, and how often it is tried; `copied_bytes` of that are
    copied from the hub."""
    needs = settings.needs
    return guard(
        "add_job",
        kind=spec.kind,
        spec=canonical_json(to_json(spec)),
        save_s=settings.checkpoint_every_s,
        priority=settings.priority,
        base=settings.base.id,
        slots=needs.slots,
        input_bytes=sum(file.bytes for file in spec.input_files().values()) + copied_bytes,
        gpu=needs.gpu,
        gpu_memory_gb=needs.gpu_memory_gb,
        pool=needs.pool,
        trust=needs.trust,
        attempts_max=settings.attempts_max,
        **facts,
    )


def _check_sets(spec: Spec) -> None:
    """No node has a path of its own that a job may name."""
    sets = spec.data if needs_data_sets(spec) else ()
    for data in sets:
        if not data.is_remote and not data.files:
            raise BadInput(
                f"no node can read the data set at {data.place}",
                hint="hand its files in, as `gangline scratch` does, or give an s3:// address",
            )


def _rhythm(spec: Spec, job: str, now_ms: int) -> list[Write]:
    """When pictures of it are due, where any are."""
    every = {"every_steps": spec.sample_every_steps, "every_s": spec.sample_every_s}
    return (
        [write("add_sampling", job=job, now=now_ms, **every)] if any(every.values()) and spec.prompts_to_sample else []
    )
