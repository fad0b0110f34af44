"""Handle queued jobs for which no suitable node will come by itself."""

from gangline.core.fleet.needs import QueuedWork, fits
from gangline.core.jobs.failure import Verdict
from gangline.core.jobs.supply import needs
from gangline.core.runs.proof import has_kind
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import as_job, event, moving
from gangline.service.deployment import Deployment
from gangline.service.fleet.demand import kinds_of_pool, shape_of_offer


def yield_bans(deployment: Deployment, now_ms: int) -> None:
    """Lift the bans of jobs that are banned from every machine here, if no other machine came for `ban_yields_s`.

    Their failures still count.
    """
    before = now_ms - round(deployment.policy.ban_yields_s * 1000)
    for row in deployment.store.load("banned_jobs", before=before):
        because = f"every machine had failed it, and no other came in {deployment.policy.ban_yields_s / 60:.0f} min, so they may try again"
        deployment.store.apply(
            guard("say_why", id=row["id"], version=row["version"], because=because),
            write("lift_bans", job=row["id"]),
            event(row["id"], "bans lifted", because, now_ms),
        )


def fail_unmatched(deployment: Deployment, now_ms: int) -> None:
    """Fail jobs that no node here and no offer can run, so that they do not wait for ever."""
    before = now_ms - round(deployment.policy.unmatched_s * 1000)
    for row in deployment.store.load("queued_for_long", before=before):
        if _may_be_offered(deployment, row, now_ms):
            continue
        job = as_job(row)
        because = f"no node that fits came within {deployment.policy.unmatched_s / 3600:.0f} h ({_needs(row) or 'any'})"
        verdict = Verdict(attempt="failed", job="failed", attempts_failed=job.attempts_failed, because=because)
        deployment.store.apply(moving(job, verdict, now_ms), event(job.id, "failed", because, now_ms))


def _may_be_offered(deployment: Deployment, job: Row, now_ms: int) -> bool:
    """Return whether a rented pool could offer such a node, or has not said so.

    Numerics are ignored: they are known only of nodes that are here.
    """
    work = QueuedWork(**deployment.store.load("work_of_job", job=job["id"])[0])
    for name in deployment.pools:
        kinds, answer = kinds_of_pool(deployment, name, now_ms), deployment.recent.offers_of(name)
        if answer is not None and answer.offers is not None:
            if any(fits(work, shape_of_offer(offer, name, kinds)) for offer in answer.offers):
                return True
        elif work.pool in ("", name) and has_kind(kinds, work.wanted):
            return True
    return False


def _needs(job: Row) -> str:
    """Return what the job asks of a node, as words for people."""
    return needs(
        **{name: job[name] for name in ("gpu_memory_gb", "gpu", "slots", "pool", "trust", "numerics", "wanted")}
    )
