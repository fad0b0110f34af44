"""Submit: photos and bases handed in by content, then a job that names them."""

from dataclasses import replace

from gangline.core.canonical import canonical_json
from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.keys import blob_key
from gangline.core.spec import HubBase, Spec, parse_spec, spec_hash, spec_to_json, workload
from gangline.core.views import BlobView
from gangline.ports.server import Refused, Upload
from gangline.ports.store import guard, write
from gangline.service.attempts import event
from gangline.service.deployment import Deployment
from gangline.service.upload import grant, stored_as

WAITS = "waits for a node"


def offer_blob(
    at: Deployment, project: str, sha256: str, size: int, now_ms: int, parts: tuple[str, ...] = ()
) -> BlobView:
    """Ask before sending, and once more after: then the store is asked, and that they are there is recorded."""
    key = blob_key(project, sha256)
    if isinstance(stored_as(at, key, File(path=sha256, bytes=size, sha256=sha256), parts), Refused):
        file = Upload(path=sha256, bytes=size, sha256=sha256, parts=parts)
        return BlobView(present=False, grant=grant(at, key, file, now_ms))
    at.store.apply(write("add_blob", project=project, sha256=sha256, bytes=size, now=now_ms))
    return BlobView(present=True, grant=None)


def submit(
    at: Deployment, project: str, value: dict[str, object], *, name: str, request: str | None, now_ms: int
) -> str:
    """The id of a new job, or of the one that the same `request` made before. Raises `BadInput`, `InvalidSpec`."""
    spec = _pinned(at, parse_spec(value))
    _check_inputs(at, project, spec)
    job = at.new_id("job")
    added = at.store.apply(
        write("add_project", id=project),
        guard(
            "add_job",
            id=job,
            project=project,
            name=name or spec.prompt,
            kind=spec.kind,
            spec=canonical_json(spec_to_json(spec)),
            spec_hash=spec_hash(spec),
            request=request,
            because=WAITS,
            steps=spec.steps,
            save_s=spec.checkpoint_every_s,
            priority=spec.priority,
            base=spec.base.id,
            workload=workload(spec),
            slots=spec.needs.slots,
            input_bytes=sum(file.bytes for file in spec.input_files().values()),
            gpu=spec.needs.gpu,
            gpu_memory_gb=spec.needs.gpu_memory_gb,
            pool=spec.needs.pool,
            trust=spec.needs.trust,
            exact=spec.exact,
            attempts_max=spec.attempts_max,
            now=now_ms,
        ),
        event(job, "submitted", WAITS, now_ms),
    )
    if added:
        return job
    before = at.store.load("job_of_request", project=project, request=request)[0]
    if before["spec_hash"] != spec_hash(spec):
        raise BadInput(f"the request {request} was used for another spec", hint="use a new Idempotency-Key")
    return before["id"]


def _pinned(at: Deployment, spec: Spec) -> Spec:
    """With the base's revision a commit, so that the job means the same for ever."""
    if not isinstance(spec.base, HubBase):
        return spec
    commit = at.hub.pin(spec.base.repo, spec.base.revision)
    return replace(spec, base=replace(spec.base, revision=commit))


def _check_inputs(at: Deployment, project: str, spec: Spec) -> None:
    missing = [path for path, file in sorted(spec.input_files().items()) if not _is_here(at, project, file)]
    if missing:
        raise BadInput(
            f"{len(missing)} input files are not in the object store, {missing[0]} the first of them",
            hint="hand each in with POST /v1/blobs before submitting",
        )


def _is_here(at: Deployment, project: str, file: File) -> bool:
    rows = at.store.load("blob", project=project, sha256=file.sha256)
    return bool(rows) and rows[0]["bytes"] == file.bytes
