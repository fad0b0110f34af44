"""Renew a lease with each heartbeat, and store what the trainer printed."""

from gangline.core.jobs.keys import attempt_prefix, log_key
from gangline.ports.server import Beat, Beaten, Done, Hold, Log, Stale
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import LOST, event, holding, job_of_hold, lease_of
from gangline.service.deployment import Deployment
from gangline.service.fleet.measured.gauges import keep_gauges
from gangline.service.jobs import wishes
from gangline.service.jobs.budget import out_of_money


def renew(deployment: Deployment, node: str, hold: Hold, beat: Beat, now_ms: int) -> Beaten | Stale:
    """Renew the lease. The answer says whether the node must save and release its job, and what its owner asks of it."""
    held = deployment.store.change(
        "renew_lease",
        **lease_of(node, hold),
        expires_ms=now_ms + deployment.policy.lease_ms,
        phase=beat.phase,
        step=beat.step,
        loss=beat.loss,
        seconds_per_step=beat.seconds_per_step,
        memory_bytes=beat.memory_bytes,
        training_ms=_training_ms(beat, now_ms),
        now=now_ms,
    )
    if not held:
        return LOST
    if beat.gauges:
        keep_gauges(deployment, node, beat.gauges, now_ms)
    if held[0]["phase_ms"] == now_ms:
        deployment.store.apply(write("add_phase", attempt=hold.attempt))
    if beat.steps:
        deployment.store.apply(write("count_steps", attempt=hold.attempt, steps=beat.steps))
    save, finish = wishes.tell(deployment, hold, beat) if held[0]["wishes"] else (False, False)
    return Beaten(stop=held[0]["stop"] or _without_money(deployment, node, held[0], now_ms), save=save, finish=finish)


def _without_money(deployment: Deployment, node: str, lease: Row, now_ms: int) -> str:
    because = out_of_money(deployment, lease, lease["downloaded_bytes"], now_ms)
    if because:
        job = deployment.store.load("job_of_attempt", attempt=lease["attempt"])[0]["id"]
        deployment.store.apply(
            guard("ask_to_stop", attempt=lease["attempt"], kind="", because=because, now=now_ms),
            event(job, "over budget", because, now_ms, attempt=lease["attempt"], node=node),
        )
    return because


def _training_ms(beat: Beat, now_ms: int) -> int | None:
    """Return when the attempt's first step was.

    The node reports how long ago that is, as clocks differ; a loss without it means that a step was made.
    """
    if beat.training_s is None:
        return None if beat.loss is None else now_ms
    return now_ms - round(beat.training_s * 1000)


def append_log(deployment: Deployment, node: str, hold: Hold, request: Log, now_ms: int) -> Done | Stale:
    job = job_of_hold(deployment, node, hold)
    if job is None:
        return LOST
    key = log_key(attempt_prefix(job["project"], job["id"], hold.attempt), request.first_byte)
    content = request.text.encode()
    # The bytes come first: bytes without a row are swept, but a row without bytes would break every reader of the log.
    deployment.objects.write(key, content)
    held = deployment.store.apply(
        holding(node, hold, now_ms),
        write("add_log_chunk", attempt=hold.attempt, first_byte=request.first_byte, bytes=len(content), key=key),
    )
    return Done() if held else LOST
