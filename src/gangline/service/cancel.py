"""Cancel: at once, whatever the node is doing. It learns of it with its next heartbeat."""

from gangline.core.failure import Verdict
from gangline.core.job import ENDED
from gangline.ports.store import guard
from gangline.service.attempts import as_job, ending, event
from gangline.service.deployment import Deployment

BECAUSE = "canceled by its owner"
TRIES_MAX = 20


def cancel(at: Deployment, job_id: str, now_ms: int) -> bool:
    """False where the job had ended already: then nothing changes."""
    for _ in range(TRIES_MAX):
        row = at.store.load("job", id=job_id)[0]
        job = as_job(row)
        if job.state in ENDED:
            return False
        verdict = Verdict("canceled", "canceled", job.attempts_failed, BECAUSE)
        live = [attempt for attempt in at.store.load("attempts", job=job_id) if attempt["state"] == "live"]
        if live:
            lease = guard("drop_leases", attempt=live[0]["id"])
            writes = ending(job, live[0], verdict, now_ms, lease=lease)
        else:
            writes = [
                guard(
                    "set_job_state",
                    id=job.id,
                    version=job.version,
                    state="canceled",
                    because=BECAUSE,
                    attempts_failed=job.attempts_failed,
                    now=now_ms,
                ),
                event(job.id, "canceled", BECAUSE, now_ms),
            ]
        if at.store.apply(*writes):
            return True
    raise AssertionError(f"{job_id} changed {TRIES_MAX} times while it was being canceled")
