"""Sign an attempt's uploads and downloads, and commit, reject and prune its checkpoints."""

import json
from dataclasses import asdict, replace

from gangline.core.canonical import canonical_json
from gangline.core.display import as_words
from gangline.core.errors import Damaged
from gangline.core.files import Beginnings
from gangline.core.jobs.keys import attempt_prefix, folder_prefix
from gangline.core.jobs.wishes import saved_for
from gangline.core.runs.contract import parse_manifest
from gangline.core.runs.retention import KeptCheckpoint, to_prune
from gangline.core.specs.fields import STEPS_MAX
from gangline.core.specs.kinds import KINDS
from gangline.ports.server import (
    Commit,
    Committed,
    Done,
    Downloads,
    Grants,
    Hold,
    Refused,
    Reject,
    Stale,
    Uploads,
    Urls,
)
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import LOST, conclude, event, holding, job_of_hold, lease_of, load_wishes, stopped
from gangline.service.content.inputs import readable_keys
from gangline.service.content.upload import grant, grant_beginning, stored_as
from gangline.service.deployment import Deployment
from gangline.service.fleet.demand import expected_between_s
from gangline.service.jobs import samples
from gangline.service.jobs.budget import out_of_money
from gangline.service.money import bill


def sign_uploads(deployment: Deployment, node: str, hold: Hold, request: Uploads, now_ms: int) -> Grants | Stale:
    """Return upload requests below the attempt's prefix, each signed for exactly these bytes: none can reach another attempt's files."""
    job = job_of_hold(deployment, node, hold)
    if job is None:
        return LOST
    prefix = folder_prefix(attempt_prefix(job["project"], job["id"], hold.attempt), request.folder, request.step)
    return Grants(
        files=tuple(
            grant(deployment, f"{prefix}/{file.path}", file, now_ms, attempt=hold.attempt) for file in request.files
        )
    )


def sign_beginnings(deployment: Deployment, node: str, hold: Hold, request: Beginnings, now_ms: int) -> Grants | Stale:
    """Return upload requests for parts of a checkpoint's files that are still being written."""
    job = job_of_hold(deployment, node, hold)
    if job is None:
        return LOST
    prefix = folder_prefix(attempt_prefix(job["project"], job["id"], hold.attempt), "checkpoints", request.step)
    return Grants(
        files=tuple(
            grant_beginning(deployment, f"{prefix}/{file.path}", file, now_ms, attempt=hold.attempt)
            for file in request.files
        )
    )


def sign_downloads(
    deployment: Deployment, node: str, hold: Hold, request: Downloads, now_ms: int
) -> Urls | Stale | Refused:
    job = job_of_hold(deployment, node, hold)
    if job is None:
        return LOST
    readable = readable_keys(deployment, job["id"], node, now_ms)
    strange = set(request.keys) - readable.keys()
    if strange:
        return Refused(because=f"{min(strange)} is not an input or a checkpoint of this job")
    if not _count(deployment, node, job["id"], hold, sum(readable[key] for key in request.keys), now_ms):
        return LOST
    return Urls(
        urls=tuple(
            deployment.objects.sign_get(key, now_ms=now_ms, seconds=deployment.policy.url_s) for key in request.keys
        )
    )


def _count(deployment: Deployment, node: str, job: str, hold: Hold, size: int, now_ms: int) -> bool:
    """Count a download, which costs money. If no more can be reserved for it, end the attempt and return False."""
    while rows := deployment.store.load("lease", **lease_of(node, hold)):
        seen = rows[0]["downloaded_bytes"]
        because = out_of_money(deployment, rows[0], seen + size, now_ms)
        if because:
            stop = stopped(deployment, "", because)
            said = event(job, "over budget", because, now_ms, attempt=hold.attempt, node=node)
            conclude(deployment, hold.attempt, stop, now_ms, more=[said])
            return False
        if deployment.store.apply(guard("count_download", **lease_of(node, hold), bytes=size, seen=seen)):
            return True
    return False


def commit_checkpoint(
    deployment: Deployment, node: str, hold: Hold, request: Commit, now_ms: int
) -> Committed | Stale | Refused:
    """Commit a checkpoint: check that the object store has every byte, then record the manifest in one transaction."""
    job = job_of_hold(deployment, node, hold)
    if job is None:
        return LOST
    try:
        manifest = parse_manifest(request.manifest)
    except Damaged as error:
        return Refused(because=error.message)
    if manifest.spec_hash != job["spec_hash"]:
        return Refused(because="the checkpoint belongs to another job's spec")
    last = job["steps"] if KINDS[job["kind"]].ours else STEPS_MAX
    if not 0 < manifest.step <= last:
        return Refused(because=f"step {manifest.step} is not one of this job's {job['steps']}")
    prefix = folder_prefix(attempt_prefix(job["project"], job["id"], hold.attempt), "checkpoints", manifest.step)
    verified = stored_as(deployment, [(f"{prefix}/{file.path}", file) for file in manifest.files])
    if isinstance(verified, Refused):
        return verified
    checkpoint = deployment.new_id("checkpoint")
    wished = saved_for(load_wishes(deployment, job["id"]), hold.attempt, manifest.step)
    because = f"step {manifest.step}" + ", as its owner had asked" * bool(wished)
    committed = deployment.store.apply(
        holding(node, hold, now_ms, step=manifest.step),
        guard(
            "add_checkpoint",
            id=checkpoint,
            job=job["id"],
            attempt=hold.attempt,
            step=manifest.step,
            verified=int(verified),
            bytes=sum(file.bytes for file in manifest.files),
            prefix=prefix,
            manifest=canonical_json(request.manifest),
            now=now_ms,
        ),
        write("advance_attempt", attempt=hold.attempt, step=manifest.step, now=now_ms),
        *_saving(hold, request),
        write("forget_beginning", id=job["id"]),
        write("measure_checkpoint", id=job["id"]),
        *_learned(job, node, now_ms),
        *([write("drop_wish", job=job["id"], kind="save")] if "save" in wished else []),
        *samples.due(deployment, job, node, checkpoint, manifest.step, now_ms, wished="sample" in wished),
        event(job["id"], "committed", because, now_ms, attempt=hold.attempt, node=node),
    )
    if committed:
        samples.drop_overtaken(deployment, job["id"], now_ms)
        prune(deployment, job["id"], now_ms)
    if committed or job_of_hold(deployment, node, hold):  # else it was committed before, and the answer was lost
        answer = samples.committed(deployment, job, manifest.step)
        decides = request.saving is not None  # an older node does not
        return replace(answer, between_s=expected_between_s(deployment, node, now_ms)) if decides else answer
    return LOST


def _saving(hold: Hold, request: Commit) -> list[Write]:
    """Return the write of how often the run saves; an older node does not say it."""
    if request.saving is None:
        return []
    return [write("set_saving", attempt=hold.attempt, saving=canonical_json(asdict(request.saving)))]


def reject_damaged(deployment: Deployment, node: str, hold: Hold, request: Reject, now_ms: int) -> Done | Stale:
    """Reject a checkpoint that a node found damaged: no later attempt resumes from it."""
    job, because = job_of_hold(deployment, node, hold), as_words(request.because)
    if job is None:
        return LOST
    rejected = deployment.store.apply(
        holding(node, hold, now_ms),
        guard("reject_checkpoint", id=request.checkpoint, job=job["id"], because=because),
        write("sweep_again", checkpoint=request.checkpoint),
        write("restart_attempt", attempt=hold.attempt),
        write("measure_checkpoint", id=job["id"]),
        event(job["id"], "rejected", because, now_ms, attempt=hold.attempt, node=node),
    )
    if rejected or job_of_hold(deployment, node, hold):
        return Done()  # else it was rejected before, and the answer was lost
    return LOST


def _learned(job: Row, node: str, now_ms: int) -> list[Write]:
    """Return the writes for what a commit shows beyond progress: the machine's pace, the base that it has on disk, the numerics that the
    job is bound to.
    """
    workload = {name: job[name] for name in ("workload", "gpu", "machine", "seconds_per_step")}
    writes = [
        write("set_pace", **workload, now=now_ms),
        write("add_base", node=node, base=job["base"]),
    ]
    if job["exact"] == "required":
        writes.append(write("pin_numerics", id=job["id"], node=node))
    return writes


def is_best(checkpoint: Row) -> bool:
    """Return whether held-out samples had never been better when it was made."""
    return json.loads(checkpoint["manifest"]).get("best") is True


def prune(deployment: Deployment, job: str, now_ms: int) -> None:
    """Forget old checkpoints, then delete their bytes. In this order, no committed checkpoint is ever without its bytes."""
    rows = {row["id"]: row for row in deployment.store.load("checkpoints", job=job)}
    known = [
        KeptCheckpoint(
            id=row["id"],
            step=row["step"],
            verified=bool(row["verified"]),
            pinned=bool(row["pinned"]),
            best=is_best(row),
        )
        for row in rows.values()
    ]
    keep = deployment.policy.checkpoints_kept
    for checkpoint in to_prune(known, keep=keep):
        row = rows[checkpoint.id]
        forgotten = deployment.store.apply(
            guard(
                "prune_checkpoint",
                id=checkpoint.id,
                heirs=row["heirs"],
                because=f"newer ones are kept ({keep} of them)",
            ),
            write("sweep_again", checkpoint=checkpoint.id),
            *bill.bill_storage(deployment, row, now_ms),
        )
        if forgotten:
            deployment.objects.delete(
                [f"{row['prefix']}/{file['path']}" for file in json.loads(row["manifest"])["files"]]
            )
