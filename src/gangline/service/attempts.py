"""What all ends of an attempt have in common: its last beat kept, its bill written, its job moved on, one event."""

import json
from collections.abc import Iterator
from dataclasses import fields

from gangline.core.cost import time_cost_micro_usd
from gangline.core.failure import Verdict, after_interruption
from gangline.core.job import Attempt, Job
from gangline.core.lease import is_overdue
from gangline.ports.server import Hold, Stale
from gangline.ports.store import Row, Write, guard, write
from gangline.service.deployment import Deployment

LOST = Stale(because="the lease is lost: the job was given to another node, or has ended")


def load_job(at: Deployment, job: str) -> Job | None:
    rows = at.store.load("job", id=job)
    return as_job(rows[0]) if rows else None


def as_job(row: Row) -> Job:
    return Job(
        id=row["id"],
        project=row["project"],
        state=row["state"],
        fencing=row["fencing"],
        version=row["version"],
        attempts_failed=row["attempts_failed"],
        attempts_max=json.loads(row["spec"])["attempts_max"],
    )


def as_attempt(row: Row) -> Attempt:
    return Attempt(**{field.name: row[field.name] for field in fields(Attempt)})


def job_of_hold(at: Deployment, node: str, hold: Hold) -> Job | None:
    """The job whose live lease this is; None where the lease is lost."""
    rows = at.store.load("lease", **lease_of(node, hold))
    return load_job(at, rows[0]["job"]) if rows else None


def lease_of(node: str, hold: Hold) -> dict[str, object]:
    return {"attempt": hold.attempt, "rank": hold.rank, "fencing": hold.fencing, "node": node}


def ending(job: Job, attempt: Row, verdict: Verdict, now_ms: int, *, lease: Write) -> list[Write]:
    """The writes that end `attempt` as `verdict` says. `lease` removes its lease, under the guard that gives the right to end it."""
    cost = time_cost_micro_usd(
        price_micro_usd_per_hour=attempt["price_micro_usd_per_hour"],
        from_ms=attempt["started_ms"],
        to_ms=now_ms,
    )
    return [
        write("copy_last_beat", attempt=attempt["id"]),
        lease,
        guard("end_attempt", attempt=attempt["id"], state=verdict.attempt, because=verdict.because, now=now_ms),
        guard(
            "set_job_state",
            id=job.id,
            version=job.version,
            state=verdict.job,
            because=verdict.because,
            attempts_failed=verdict.attempts_failed,
            now=now_ms,
        ),
        write(
            "add_cost",
            attempt=attempt["id"],
            cause="time on the node",
            job=job.id,
            node=attempt["node"],
            from_ms=attempt["started_ms"],
            to_ms=now_ms,
            micro_usd=cost,
        ),
        event(job.id, verdict.attempt, verdict.because, now_ms, attempt=attempt["id"], node=attempt["node"]),
    ]


def event(
    job: str, kind: str, because: str, now_ms: int, *, attempt: str | None = None, node: str | None = None
) -> Write:
    return write("add_event", job=job, kind=kind, because=because, now=now_ms, attempt=attempt, node=node)


def end_overdue(at: Deployment, now_ms: int) -> None:
    """Take every overdue lease away; its job goes back to the queue."""
    for row in at.store.load("overdue_leases", now=now_ms):
        overdue = is_overdue(expires_ms=row["expires_ms"], now_ms=now_ms, up_since_ms=at.up_since_ms, policy=at.policy)
        if overdue:
            seize = guard("seize_overdue_lease", attempt=row["attempt"], now=now_ms)
            at.store.apply(*_interruption(at, row["attempt"], now_ms, released=False, lease=seize))


def ending_of_node(at: Deployment, node: str, now_ms: int) -> Iterator[list[Write]]:
    """For each attempt that `node` still holds, the writes that hand its job back."""
    for row in at.store.load("leases_of_node", node=node):
        drop = guard("drop_leases", attempt=row["attempt"])
        yield _interruption(at, row["attempt"], now_ms, released=True, lease=drop)


def _interruption(at: Deployment, attempt: str, now_ms: int, *, released: bool, lease: Write) -> list[Write]:
    row = at.store.load("attempt", id=attempt)[0]
    job = load_job(at, row["job"])
    assert job is not None, "an attempt has a job"
    node = at.store.load("node", id=row["node"])[0]["name"]
    return ending(job, row, after_interruption(job, node, released=released), now_ms, lease=lease)
