"""End an attempt. Every end keeps the last heartbeat, bills the time, moves the job on, judges the machine and writes one event."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Literal

from gangline.core.errors import Unreachable
from gangline.core.events import EVENTS, EventKind
from gangline.core.fleet.trust import rest_ms
from gangline.core.job import ENDED, JOB_MOVES, Attempt, Job, Node
from gangline.core.jobs.failure import (
    MEANING,
    FailureKind,
    Verdict,
    after_failure,
    after_interruption,
    failure_sentence,
)
from gangline.core.jobs.lease import is_overdue
from gangline.core.jobs.wishes import Wish, undone
from gangline.core.policy import Policy
from gangline.ports.server import Hold, Stale
from gangline.ports.store import Row, Write, guard, write
from gangline.service.deployment import Deployment
from gangline.service.money import bill
from gangline.service.outage import back_since_ms

LOST = Stale(because="the lease is lost: the job was given to another node, or has ended")
TRIES_MAX = 20
"""The number of times that a request loads and decides again when concurrent requests were faster."""
WAITS = "waits for a node"

JOB_COLUMNS = tuple(field.name for field in fields(Job))
ATTEMPT_COLUMNS = tuple(field.name for field in fields(Attempt))
NODE_COLUMNS = tuple(field.name for field in fields(Node) if field.name != "slots_free")

Decide = Callable[[Job, Attempt, Sequence[Attempt]], Verdict]
"""Decides what the end of an attempt means, given its job and the job's earlier attempts, newest first."""


def as_job(row: Row, prefix: str = "") -> Job:
    return Job(**{name: row[prefix + name] for name in JOB_COLUMNS})


def as_attempt(row: Row) -> Attempt:
    return Attempt(**{name: row[name] for name in ATTEMPT_COLUMNS})


def as_node(row: Row, prefix: str = "") -> Node:
    known = {name: row[prefix + name] for name in NODE_COLUMNS}
    return Node(**known, slots_free=known["slots"] - row[prefix + "slots_taken"])


def load_node(deployment: Deployment, node: str) -> Node:
    return as_node(deployment.store.load("node", id=node)[0])


def load_ending(deployment: Deployment, attempt: str) -> Row | None:
    """Return a live attempt with every row that its end changes; None if it has ended."""
    rows = deployment.store.load("ending", id=attempt)
    return rows[0] if rows else None


def job_of_hold(deployment: Deployment, node: str, hold: Hold) -> Row | None:
    """Return the job that this lease is for, with the state of the attempt; None if the lease is lost."""
    rows = deployment.store.load("held_job", **lease_of(node, hold))
    return rows[0] if rows else None


def load_wishes(deployment: Deployment, job: str) -> list[Wish]:
    """Return what the job's owner asked of it and is not done yet."""
    return [Wish(**row) for row in deployment.store.load("wishes", job=job)]


def lease_of(node: str, hold: Hold) -> dict[str, object]:
    return {"attempt": hold.attempt, "rank": hold.rank, "fencing": hold.fencing, "node": node}


def holding(node: str, hold: Hold, now_ms: int, *, step: int = 0, loss: float | None = None) -> Write:
    """Return the guard of what a worker writes besides heartbeats: it holds the lease, was heard now, and may have come further."""
    return guard("hold_lease", **lease_of(node, hold), now=now_ms, step=step, loss=loss)


def conclude(
    deployment: Deployment,
    attempt_id: str,
    decide: Decide,
    now_ms: int,
    *,
    seen: Row | None = None,
    if_overdue: bool = False,
    heard: bool = False,
    more: Sequence[Write] = (),
) -> bool:
    """End a live attempt as `decide` says. Return False if it has ended already, or if `if_overdue` is set and the lease is not overdue.

    `seen` is the attempt's row if the caller has just loaded it. `heard` says that the request comes from the attempt's own node, which
    then counts as heard from now.
    """
    for _ in range(TRIES_MAX):
        row, seen = seen or load_ending(deployment, attempt_id), None
        if row is None:
            return False
        attempt = as_attempt(row)
        verdict = _heeding(row, decide(as_job(row, "job_"), attempt, _past(deployment, attempt)))
        heard_ms = now_ms if heard else attempt.beat_ms
        if deployment.store.apply(
            *_ending(deployment, row, attempt, verdict, now_ms, heard_ms, more, if_overdue=if_overdue)
        ):
            return True
        if if_overdue:
            return False  # the lease was renewed just in time, or the next tick tries again
    raise Unreachable(f"{attempt_id} changed {TRIES_MAX} times while it was being ended")


def _past(deployment: Deployment, attempt: Attempt) -> list[Attempt]:
    """Return the job's earlier attempts, newest first."""
    if attempt.fencing == 1:
        return []
    return [
        as_attempt(row) for row in deployment.store.load("earlier_attempts", job=attempt.job, fencing=attempt.fencing)
    ]


def _heeding(row: Row, verdict: Verdict) -> Verdict:
    """Keep a job that its owner paused out of the queue, whatever ended the attempt."""
    if row["stop_kind"] == "paused" and verdict.job == "queued":
        return replace(verdict, job="paused", because=row["stop"])
    return verdict


def _ending(
    deployment: Deployment,
    row: Row,
    attempt: Attempt,
    verdict: Verdict,
    now_ms: int,
    heard_ms: int,
    more: Sequence[Write],
    *,
    if_overdue: bool,
) -> list[Write]:
    """Return the writes that end an attempt, in the order that every transaction uses.

    The lease comes first: transactions about one attempt wait for each other there, and none holds a row that another one needs. The
    project comes last: all attempts of a project update that row, and each holds it until its commit.
    """
    job, node = as_job(row, "job_"), as_node(row, "node_")
    now_ms = max(now_ms, node.meter_ms)  # a concurrent request may have metered the node further
    spent, lines = bill.spend(deployment, job, attempt, verdict.attempt, row, now_ms)
    seen = {"attempt": attempt.id, "beat_ms": row["beat_ms"]}
    ends = seen | {"downloaded": row["downloaded_bytes"], "reserved": row["reserved"]}
    last = seen | {name: row[name] for name in ("step", "loss", "seconds_per_step", "training_ms")}
    end = {"state": verdict.attempt, "kind": verdict.kind, "because": verdict.because, "now": now_ms}
    return [
        guard("seize_overdue_lease", now=now_ms, **ends) if if_overdue else guard("drop_lease", **ends),
        write("end_attempt", **last, **end),
        *lines,
        moving(job, verdict, now_ms),
        *_judging(row, verdict, now_ms, deployment.policy),
        *bill.meter(node, now_ms, heard_ms=heard_ms),
        event(job.id, verdict.attempt, verdict.because, now_ms, attempt=attempt.id, node=attempt.node),
        *(_undone(deployment, job.id, verdict, now_ms) if row["wishes"] else ()),
        *more,
        spent,
    ]


def _undone(deployment: Deployment, job: str, verdict: Verdict, now_ms: int) -> list[Write]:
    """Return the event of what the owner had asked for and the end of the job leaves undone."""
    if verdict.job not in ENDED:
        return []  # the next attempt does it
    because = undone(load_wishes(deployment, job), succeeded=verdict.job == "succeeded")
    return [event(job, "not done", because, now_ms)] if because else []


def moving(job: Job, verdict: Verdict, now_ms: int) -> Write:
    """Return the write that moves the job on as the verdict says. It fails if the job changed in the meantime."""
    assert (job.state, verdict.job) in JOB_MOVES, f"no job goes from {job.state} to {verdict.job}"
    return guard(
        "set_job_state",
        id=job.id,
        version=job.version,
        state=verdict.job,
        because=verdict.because,
        attempts_failed=verdict.attempts_failed,
        gpu_memory_gb=max(job.gpu_memory_gb, verdict.gpu_memory_gb),
        ready_ms=now_ms + round(verdict.wait_s * 1000),
        now=now_ms,
    )


def _judging(row: Row, verdict: Verdict, now_ms: int, policy: Policy) -> list[Write]:
    """Return the writes that count this end for or against the machine."""
    machine, writes = row["machine"], list[Write]()
    if verdict.attempt == "succeeded" and (row["failures"] or row["on_trial"]):
        writes.append(write("machine_went_well", id=machine))
    if verdict.attempt == "succeeded" and row["node_state"] == "on_trial":
        writes.append(write("set_node_state", id=row["node"], before="on_trial", state="ready", because="went well"))
    if verdict.kind and MEANING[verdict.kind].counts and verdict.attempt == "failed":
        writes.append(write("machine_failed", id=machine, rest_until_ms=now_ms + rest_ms(row["failures"] + 1, policy)))
    if verdict.ban:
        writes.append(write("add_ban", job=row["job"], machine=machine, because=verdict.because, now=now_ms))
    if verdict.strike:
        strike = {key: row[key] for key in ("machine", "job", "workload", "gpu")}
        writes.append(
            write("add_strike", attempt=row["id"], kind=verdict.kind, quarters=verdict.strike, now=now_ms, **strike)
        )
    elif verdict.kind and MEANING[verdict.kind].strike:  # the job is at fault after all
        writes.append(write("forgive_strikes", job=row["job"], kind=verdict.kind))
    return writes


def event(
    job: str, kind: EventKind, because: str, now_ms: int, *, attempt: str | None = None, node: str | None = None
) -> Write:
    """Return the write of an event for those who follow a job. No other function writes events."""
    assert kind in EVENTS, f"{kind} is not a kind of event"
    return write("add_event", job=job, kind=kind, because=because, now=now_ms, attempt=attempt, node=node)


def end_overdue(deployment: Deployment, now_ms: int) -> None:
    """Revoke every overdue lease; its job goes back to the queue."""
    rows = deployment.store.load("overdue_leases", now=now_ms)
    back_ms = back_since_ms(deployment, now_ms) if rows else now_ms
    for row in rows:
        if is_overdue(expires_ms=row["expires_ms"], now_ms=now_ms, up_since_ms=back_ms, policy=deployment.policy):
            conclude(deployment, row["attempt"], interruption(deployment), now_ms, if_overdue=True)


def end_unheeded(deployment: Deployment, now_ms: int) -> None:
    """Revoke the leases of nodes that were asked to release their job and did not within the grace period."""
    before = now_ms - round(deployment.policy.stop_grace_s * 1000)
    rows = deployment.store.load("unheeded_stops", before=before)
    if not rows or back_since_ms(deployment, now_ms) > before:
        return  # the node may have released its job while the service was down
    for row in rows:
        conclude(deployment, row["attempt"], stopped(deployment, row["stop_kind"], row["stop"]), now_ms)


def end_attempts_of_node(deployment: Deployment, node: str, now_ms: int, *, told: bool) -> None:
    """Return every job that `node` still has to the queue. `told` says that the node had notice, and so time to save."""
    for row in deployment.store.load("leases_of_node", node=node):
        conclude(deployment, row["attempt"], interruption(deployment, released=told), now_ms)


def interruption(deployment: Deployment, *, released: bool = False) -> Decide:
    def decide(job: Job, attempt: Attempt, past: Sequence[Attempt]) -> Verdict:
        name = deployment.store.load("node", id=attempt.node)[0]["name"]
        return after_interruption(job, attempt, past, name, deployment.policy, released=released)

    return decide


def failure(deployment: Deployment, kind: FailureKind, words: str) -> Decide:
    return lambda job, attempt, past: after_failure(job, attempt, past, kind, words, deployment.policy)


def stopped(deployment: Deployment, kind: str, because: str) -> Decide:
    """Return the decision for an attempt that was asked to stop. `kind` is a kind of failure, or any other reason."""

    def decide(job: Job, attempt: Attempt, past: Sequence[Attempt]) -> Verdict:
        if kind in MEANING:
            return replace(after_failure(job, attempt, past, kind, "", deployment.policy), because=because)
        return replace(after_interruption(job, attempt, past, "", deployment.policy, released=True), because=because)

    return decide


def ask_to_stop(
    deployment: Deployment, lease: Row, because: str, now_ms: int, *more: Write, kind: FailureKind | Literal[""] = ""
) -> bool:
    """Ask a node to save and release its job; its next heartbeat carries the request.

    Return False if the lease was asked already or is gone.
    """
    stop = failure_sentence(kind, because) if kind else because
    return deployment.store.apply(
        guard("ask_to_stop", attempt=lease["attempt"], kind=kind, because=stop, now=now_ms),
        *more,
        event(lease["job"], "asked to stop", stop, now_ms, attempt=lease["attempt"], node=lease["node"]),
    )
