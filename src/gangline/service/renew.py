"""Renew: a heartbeat, and what the trainer printed meanwhile."""

from gangline.core.keys import attempt_prefix, log_key
from gangline.ports.server import Beat, Done, Hold, Log, Stale
from gangline.ports.store import guard, write
from gangline.service.attempts import LOST, job_of_hold, lease_of
from gangline.service.deployment import Deployment


def renew(at: Deployment, node: str, hold: Hold, beat: Beat, now_ms: int) -> Done | Stale:
    held = at.store.apply(
        guard(
            "renew_lease",
            **lease_of(node, hold),
            expires_ms=now_ms + at.policy.lease_ms,
            phase=beat.phase,
            step=beat.step,
            loss=beat.loss,
            seconds_per_step=beat.seconds_per_step,
            has_trained=int(beat.loss is not None),
            now=now_ms,
        )
    )
    return Done() if held else LOST


def log(at: Deployment, node: str, hold: Hold, request: Log) -> Done | Stale:
    job = job_of_hold(at, node, hold)
    if job is None:
        return LOST
    key = log_key(attempt_prefix(job.project, job.id, hold.attempt), request.first_byte)
    content = request.text.encode()
    at.objects.write(key, content)
    held = at.store.apply(
        guard("hold_lease", **lease_of(node, hold)),
        write("add_log_chunk", attempt=hold.attempt, first_byte=request.first_byte, bytes=len(content), key=key),
    )
    return Done() if held else LOST
