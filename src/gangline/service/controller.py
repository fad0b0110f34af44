"""What the service does of itself, a little at a time. Calling it again, or from several places, changes nothing more."""

import json

from gangline.core.contract import parse_manifest
from gangline.core.retention import Kept, to_prune
from gangline.ports.store import Row, guard
from gangline.service.attempts import end_overdue
from gangline.service.deployment import Deployment
from gangline.service.nodes import give_up_silent


def tick(at: Deployment, now_ms: int) -> None:
    end_overdue(at, now_ms)
    give_up_silent(at, now_ms)
    prune(at)


def prune(at: Deployment) -> None:
    """Forget old checkpoints, then delete their bytes: in this order nothing committed is ever without them."""
    for row in at.store.load("jobs_to_prune", kept=at.policy.checkpoints_kept):
        rows = {checkpoint["id"]: checkpoint for checkpoint in at.store.load("checkpoints", job=row["job"])}
        known = [
            Kept(id=checkpoint["id"], step=checkpoint["step"], verified=bool(checkpoint["verified"]))
            for checkpoint in rows.values()
        ]
        for checkpoint in to_prune(known, keep=at.policy.checkpoints_kept):
            because = f"newer ones are kept ({at.policy.checkpoints_kept} of them)"
            if at.store.apply(guard("prune_checkpoint", id=checkpoint.id, because=because)):
                _delete(at, rows[checkpoint.id])


def _delete(at: Deployment, checkpoint: Row) -> None:
    for file in parse_manifest(json.loads(checkpoint["manifest"])).files:
        at.objects.delete(f"{checkpoint['prefix']}/{file.path}")
