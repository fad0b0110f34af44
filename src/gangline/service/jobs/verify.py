"""Read checkpoints back before they count as verified, if the object store attests no checksums."""

import json
from collections.abc import Iterator

from gangline.core.errors import NotFound
from gangline.core.runs.contract import Manifest, parse_manifest
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import event
from gangline.service.deployment import Deployment
from gangline.service.jobs.checkpoint import prune

AT_ONCE = 100


def verify(deployment: Deployment) -> Iterator[None]:
    """Verify the newest checkpoint of each job.

    It yields after each file: a caller may stop there, and that checkpoint starts over next time.
    """
    for row in deployment.store.load("checkpoints_to_verify", limit=AT_ONCE):
        manifest, damaged = parse_manifest(json.loads(row["manifest"])), ""
        for file in manifest.files:
            if _read_back(deployment, f"{row['prefix']}/{file.path}") != file.sha256:
                damaged = file.path
                break
            yield
        if damaged:
            _reject(deployment, row, manifest, damaged)
        else:
            deployment.store.apply(write("verify_checkpoint", id=row["id"]))
            prune(deployment, row["job"], deployment.store.now_ms())


def _read_back(deployment: Deployment, key: str) -> str:
    try:
        return deployment.objects.read_back(key)
    except NotFound:
        return ""


def _reject(deployment: Deployment, row: Row, manifest: Manifest, path: str) -> None:
    because = (
        f"the checkpoint of step {manifest.step} is damaged: {path} in the object store does not match its SHA-256"
    )
    deployment.store.apply(
        guard("reject_checkpoint", id=row["id"], job=row["job"], because=because),
        write("measure_checkpoint", id=row["job"]),
        write("sweep_again", checkpoint=row["id"]),
        event(row["job"], "rejected", because, deployment.store.now_ms(), attempt=row["attempt"]),
    )
