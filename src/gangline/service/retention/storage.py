"""Show what a project keeps in the object store, and pin checkpoints for its owner."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from gangline.core.errors import NotFound
from gangline.core.job import ENDED
from gangline.core.money.cost import GB
from gangline.core.policy import Policy
from gangline.core.runs.kept import (
    CheckpointFilesView,
    CheckpointView,
    JobSizeView,
    KeptKind,
    KeptView,
    StorageView,
    StoredFileView,
)
from gangline.core.runs.retention import age, checkpoints_s
from gangline.ports.store import Row, guard
from gangline.service.content.blobs import files_of_bases
from gangline.service.content.inputs import resumable
from gangline.service.deployment import Deployment
from gangline.service.jobs.checkpoint import is_best

LARGEST = 10


def storage_view(deployment: Deployment, project: str) -> StorageView:
    parts = [
        *_checkpoints(deployment, project),
        *_artifacts(deployment, project),
        *_logs(deployment, project),
        *_uploads(deployment, project),
    ]
    parts += _prepared(deployment, project)
    jobs = {"uploads": deployment.store.load("jobs_with_files", project=project)[0]["jobs"]}
    kinds = tuple(_kept(deployment.policy, kind, parts, jobs.get(kind)) for kind in _rules(deployment.policy))
    size = sum(kind.bytes for kind in kinds)
    largest = deployment.store.load("largest_jobs", project=project, limit=LARGEST)
    return StorageView(
        bytes=size,
        usd_per_month=_usd_per_month(deployment.policy, size),
        kinds=kinds,
        largest=tuple(
            JobSizeView(job=row["id"], name=row["name"], state=row["state"], bytes=row["bytes"]) for row in largest
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some of the stored files of a kind. `goes_ms` is when the first of them expires; None if they stay until somebody deletes them."""

    kind: KeptKind
    files: int
    bytes: int
    jobs: int
    goes_ms: int | None


def _kept(policy: Policy, kind: KeptKind, parts: Iterable[_Part], jobs: int | None) -> KeptView:
    own = [part for part in parts if part.kind == kind]
    size = sum(part.bytes for part in own)
    return KeptView(
        kind=kind,
        files=sum(part.files for part in own),
        bytes=size,
        jobs=sum(part.jobs for part in own) if jobs is None else jobs,
        usd_per_month=_usd_per_month(policy, size),
        going_bytes=sum(part.bytes for part in own if part.goes_ms is not None),
        next_ms=min((part.goes_ms for part in own if part.goes_ms is not None), default=None),
        rule=_rules(policy)[kind],
    )


def _rules(policy: Policy) -> dict[KeptKind, str]:
    succeeded, others = age(policy.checkpoints_succeeded_s), age(policy.checkpoints_ended_s)
    return {
        "uploads": f"deleted when no job has used them for {age(policy.inputs_s)}; files of data sets, and of bases with a name, stay",
        "prepared": f"deleted when no job has used them for {age(policy.prepared_s)}",
        "checkpoints": f"deleted {succeeded} after a job succeeded, {others} after any other end; pinned ones stay",
        "results": "kept until their job is deleted",
        "previews": f"deleted {age(policy.previews_s)} after the job's end, or after the last of them was rendered",
        "logs": f"deleted {age(policy.logs_s)} after the job's end",
    }


def _usd_per_month(policy: Policy, size: int) -> float | None:
    """Return the price per month; None if storage has no price, so the cost is unknown."""
    price = policy.storage_usd_per_gb_month
    return None if price is None else round(price * size / GB, 6)


def _part(row: Row, kind: KeptKind, goes_ms: int | None) -> _Part:
    return _Part(kind=kind, files=row["files"], bytes=row["bytes"], jobs=row["jobs"], goes_ms=goes_ms)


def _checkpoints(deployment: Deployment, project: str) -> Iterable[_Part]:
    for row in deployment.store.load("stored_checkpoints", project=project):
        stays = row["state"] not in ENDED or row["pinned"]
        kept_ms = round(1000 * checkpoints_s(row["state"], deployment.policy))
        yield _part(row, "checkpoints", None if stays else row["ended_ms"] + kept_ms)


def _artifacts(deployment: Deployment, project: str) -> Iterable[_Part]:
    for row in deployment.store.load("stored_artifacts", project=project):
        goes = row["kind"] == "previews" and row["ended"]
        yield _part(row, row["kind"], row["since_ms"] + round(1000 * deployment.policy.previews_s) if goes else None)


def _logs(deployment: Deployment, project: str) -> Iterable[_Part]:
    for row in deployment.store.load("stored_logs", project=project):
        yield _part(row, "logs", row["ended_ms"] + round(1000 * deployment.policy.logs_s) if row["ended"] else None)


def _uploads(deployment: Deployment, project: str) -> Iterable[_Part]:
    of_bases = files_of_bases(deployment, project)
    for row in deployment.store.load("stored_blobs", project=project):
        used_ms = max(row["named_ms"], row["ended_ms"] or 0)
        stays = row["at_work"] or row["in_sets"] or row["sha256"] in of_bases
        goes_ms = None if stays else used_ms + round(1000 * deployment.policy.inputs_s)
        yield _Part(kind="uploads", files=1, bytes=row["bytes"], jobs=0, goes_ms=goes_ms)
    small = deployment.store.load("stored_thumbnails", project=project)[0]
    yield _Part(kind="uploads", files=small["files"], bytes=small["bytes"], jobs=0, goes_ms=None)


def _prepared(deployment: Deployment, project: str) -> list[_Part]:
    parts, jobs = list[_Part](), set[str]()
    for row in deployment.store.load("prepared_of_project", project=project):
        sizes = [file["bytes"] for file in json.loads(row["manifest"])["files"]]
        goes_ms = row["used_ms"] + round(1000 * deployment.policy.prepared_s)
        first = row["job"] not in jobs
        jobs.add(row["job"])
        parts.append(_Part(kind="prepared", files=len(sizes), bytes=sum(sizes), jobs=int(first), goes_ms=goes_ms))
    return parts


def checkpoints(deployment: Deployment, job: Row) -> list[CheckpointView]:
    """Return the checkpoints that a job keeps, newest first."""
    rows = deployment.store.load("checkpoints_of_job", job=job["id"])
    best = next((row["id"] for row in rows if is_best(row)), None)
    return [_checkpoint(deployment.policy, job, row, best=row["id"] == best) for row in rows]


def _checkpoint(policy: Policy, job: Row, row: Row, *, best: bool) -> CheckpointView:
    kept_s = checkpoints_s(job["state"], policy)
    goes = job["ended_ms"] is not None and not (row["pinned"] or row["shown"] or row["inherited"])
    if row["pinned"]:
        because = "pinned: kept until it is unpinned or its job is deleted"
    elif row["shown"]:
        because = "kept while pictures of it are to be rendered"
    elif row["inherited"]:
        because = "kept until the job that begins from it has a checkpoint of its own"
    elif goes:
        because = f"the job has ended: kept for {age(kept_s)} after that"
    elif best:
        because = "the best on held-out samples so far: kept until there is a better one, or the job ends"
    else:
        because = f"the newest {policy.checkpoints_kept} are kept until the job ends"
    return CheckpointView(
        step=row["step"],
        bytes=row["bytes"],
        verified=row["verified"] == 1,
        pinned=row["pinned"] == 1,
        best=best,
        committed_ms=row["committed_ms"],
        goes_ms=job["ended_ms"] + round(1000 * kept_s) if goes else None,
        because=because,
    )


def pin(deployment: Deployment, job: Row, step: int, *, pinned: bool) -> list[CheckpointView]:
    """Pin the newest checkpoint of a step, or unpin it. Raise `NotFound` if the job keeps none of that step."""
    kept = deployment.store.load("checkpoints_of_job", job=job["id"])
    chosen = _of_step(kept, step)
    if chosen is None or not deployment.store.apply(guard("pin_checkpoint", id=chosen["id"], pinned=int(pinned))):
        raise _keeps_none(job, step, kept)
    return checkpoints(deployment, job)


def checkpoint_files(deployment: Deployment, job: Row, step: int, now_ms: int) -> CheckpointFilesView:
    """Return the files of the newest checkpoint of a step, as URLs. Raise `NotFound` if the job keeps none of that step."""
    kept = deployment.store.load("checkpoints", job=job["id"])
    chosen = _of_step(kept, step)
    if chosen is None:
        raise _keeps_none(job, step, kept)
    found, seconds = resumable(chosen), deployment.policy.url_s
    return CheckpointFilesView(
        job=job["id"],
        step=step,
        manifest=found.manifest,
        files=tuple(
            StoredFileView(
                path=file.path,
                bytes=file.bytes,
                sha256=file.sha256,
                url=deployment.objects.sign_get(file.key, now_ms=now_ms, seconds=seconds).url,
            )
            for file in found.files
        ),
    )


def _of_step(kept: list[Row], step: int) -> Row | None:
    return next((row for row in kept if row["step"] == step), None)


def _keeps_none(job: Row, step: int, kept: list[Row]) -> NotFound:
    steps = ", ".join(str(row["step"]) for row in kept) or "none"
    return NotFound(
        f"{job['id']} keeps no checkpoint of step {step}", hint=f"it keeps checkpoints of these steps: {steps}"
    )
