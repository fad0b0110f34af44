"""List what a job's node may read: files stored by content, files that other jobs prepared, and checkpoints."""

import json

from gangline.core.files import File
from gangline.core.job import Node
from gangline.core.jobs.keys import blob_key
from gangline.core.models.bases import INDEX
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.runs.contract import NOT_DRAWN, PHOTOS, SAMPLES, parse_manifest
from gangline.core.specs.kinds import kind_of, needs_prepared_files, needs_weights
from gangline.core.specs.spec import SampleSpec, parse_task
from gangline.ports.server import Offered, Resumable, Stored
from gangline.ports.store import Row
from gangline.service.attempts import load_node
from gangline.service.content.mirror import copied_files
from gangline.service.content.prepared import offered_files
from gangline.service.deployment import Deployment


def inputs_of(deployment: Deployment, job: Row) -> tuple[Stored, ...]:
    """Return the inputs of a job, with paths below `inputs/`. A job that renders gets the weights that it shows, while they are kept."""
    spec = parse_task(json.loads(job["spec"]))
    files = sorted((spec.input_files() | copied_files(deployment, job["project"], spec)).items())
    found = [stored(file, path, blob_key(job["project"], file.sha256)) for path, file in files]
    return (*found, *(_weights(deployment, spec) if needs_weights(spec) else ()))


def _weights(deployment: Deployment, spec: SampleSpec) -> list[Stored]:
    if spec.checkpoint is None:
        made = [row for row in deployment.store.load("artifacts", job=spec.job) if _is_of_result(spec, row["path"])]
        return [
            Stored(path=f"result/{row['path']}", **{name: row[name] for name in ("bytes", "sha256", "key")})
            for row in made
        ]
    kept = {row["id"]: row for row in deployment.store.load("checkpoints", job=spec.job)}
    files = resumable(kept[spec.checkpoint]).files if spec.checkpoint in kept else ()
    return [
        Stored(path=f"checkpoint/{file.path}", bytes=file.bytes, sha256=file.sha256, key=file.key)
        for file in files
        if not file.path.startswith(NOT_DRAWN)
    ]


def _is_of_result(spec: SampleSpec, path: str) -> bool:
    """Return whether rendering a result needs this file.

    A LoRA is one file, with the photos to compare with; a full model is everything but pictures and reports.
    """
    return (
        path in (DIFFUSERS_FILE, f"{SAMPLES}/{PHOTOS}")
        if kind_of(spec.of).result == "lora"
        else path == INDEX or ("/" in path and not path.startswith("samples/"))
    )


def checkpoints_to_resume(deployment: Deployment, job: str, begins_from: str | None) -> list[Row]:
    """Return the checkpoints of a job, newest first; while it has none, those of the job that it begins from, up to its `begins_step`.

    Of the job that it continues, only that of this step counts.
    """
    own = deployment.store.load("checkpoints", job=job)
    if own or begins_from is None:
        return own
    row = deployment.store.load("job", id=job)[0]
    last, continues = row["begins_step"], json.loads(row["spec"]).get("continues")
    exactly = continues is not None and continues["job"] == begins_from
    inherited = deployment.store.load("checkpoints", job=begins_from)
    return [each for each in inherited if last is None or each["step"] == last or (each["step"] < last and not exactly)]


def resumable(checkpoint: Row) -> Resumable:
    manifest = json.loads(checkpoint["manifest"])
    return Resumable(
        id=checkpoint["id"],
        step=checkpoint["step"],
        manifest=manifest,
        files=tuple(
            stored(file, file.path, f"{checkpoint['prefix']}/{file.path}") for file in parse_manifest(manifest).files
        ),
    )


def stored(file: File, path: str, key: str) -> Stored:
    return Stored(path=path, bytes=file.bytes, sha256=file.sha256, key=key)


def prepared_for(deployment: Deployment, job: Row, node: Node, now_ms: int) -> tuple[Offered, ...]:
    """Return the prepared files that this job can download instead of computing them on this node."""
    spec = parse_task(json.loads(job["spec"]))
    if not needs_prepared_files(spec):
        return ()
    return offered_files(deployment, job["project"], job["id"], spec, node.numerics, now_ms)


def readable_keys(deployment: Deployment, job: str, node: str, now_ms: int) -> dict[str, int]:
    """Return the keys that the job's node may download, with their lengths in bytes."""
    row = deployment.store.load("job", id=job)[0]
    checkpoints = (resumable(checkpoint) for checkpoint in checkpoints_to_resume(deployment, job, row["begins_from"]))
    folders = (*checkpoints, *prepared_for(deployment, row, load_node(deployment, node), now_ms))
    files = [*inputs_of(deployment, row), *(file for folder in folders for file in folder.files)]
    return {file.key: file.bytes for file in files}
