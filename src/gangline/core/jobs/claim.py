"""Which job a node that asks gets: those that were interrupted, then fair share, priority, age; matched with what the node is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.job import WORKING, Node
from gangline.core.moments import until
from gangline.core.money.budget import Purse, over_budget, reservation, unaccountable
from gangline.core.policy import Policy
from gangline.core.runs.proof import has_kind
from gangline.core.words import one


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCandidate:
    """A queued job. What it needs of a node is empty (or 0) where any will do; `numerics` pins it to what made its checkpoints;
    `begins_from` is the job whose checkpoints it begins with, until it has its own."""

    id: str
    project: str
    kind: str
    fencing: int
    version: int
    priority: int
    queued_ms: int
    ready_ms: int
    base: str
    slots: int
    download_bytes: int
    gpu: str
    gpu_memory_gb: float
    pool: str
    trust: int
    numerics: str
    banned: bool
    begins_from: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """`reserve`: micro-dollars of the project's budget that the attempt may spend before it asks for more."""

    job: ClaimCandidate
    because: str
    reserve: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """`locked_out`: the node would get nothing, whatever waited, for some time."""

    because: str
    locked_out: bool = False


NOTHING = Nothing("no job waits that may run here")


def locked_out(node: Node, now_ms: int) -> str | None:
    """Say what a node is or does while it gets no work for some time, and why. The same until that changes."""
    if node.state not in WORKING:
        ends = node.state == "quarantined" and node.quarantined_until_ms > now_ms  # not where the node failed its probe
        end = f" until {until(node.quarantined_until_ms, now_ms)}" if ends else ""
        why = node.because.removeprefix(f"{node.state}: ")
        return f"is {node.state}{end}: {why}" if why else f"is {node.state}{end}"
    if node.rest_until_ms > now_ms:
        return f"pauses after failures until {until(node.rest_until_ms, now_ms)}"
    return None


def refusal(node: Node, now_ms: int) -> Nothing | None:
    """Why this node gets nothing, whatever waits."""
    locked = locked_out(node, now_ms)
    if locked:
        return Nothing(f"{node.name} {locked}", locked_out=True)
    if node.state == "on_trial" and node.slots_free < node.slots:
        return Nothing(f"{node.name} is on trial: it gets one job at a time")
    if node.slots_free <= 0:
        return Nothing(f"all {node.slots} slots of {node.name} are taken")
    return None


def mismatch(job: ClaimCandidate, node: Node, now_ms: int) -> str | None:
    """The first reason why this node may not have this job."""
    if job.ready_ms > now_ms:
        return f"waits {(job.ready_ms - now_ms) / 1000:.0f} s before its next try"
    if job.banned:
        return f"{node.name} failed it before"
    if not has_kind(node.kinds, job.kind):
        return f"{node.name} has no libraries for {job.kind}: {_lack(node, job.kind)}"
    if job.gpu_memory_gb > node.gpu_memory_gb:
        return f"needs {job.gpu_memory_gb:g} GB of GPU memory and {node.name} has {node.gpu_memory_gb:g}"
    if job.gpu and job.gpu != node.gpu:
        return f"needs {one(job.gpu)} and {node.name} has {node.gpu or 'no GPU'}"
    if job.pool and job.pool != node.pool:
        return f"needs the pool {job.pool} and {node.name} is in {node.pool}"
    if job.trust > node.trust:
        return f"needs trust {job.trust} and {node.name} has {node.trust}"
    if job.numerics and job.numerics != node.numerics:
        return f"must go on with the same numerics, and {node.name} has others"
    if job.slots > node.slots_free:
        return f"needs {job.slots} slots and {node.name} has {node.slots_free} free"
    return None


def _lack(node: Node, kind: str) -> str:
    return json.loads(node.problems).get(kind, "its Gangline does not know this kind of job")


def by_fair_share(purses: Sequence[Purse], now_ms: int, policy: Policy) -> list[Purse]:
    """Who used least of its share first: 2^(-usage / share) with a half-life, as Slurm's fair-share priority."""
    return sorted(purses, key=lambda purse: (decayed(purse, now_ms, policy) / purse.share, purse.project))


def decayed(purse: Purse, now_ms: int, policy: Policy) -> float:
    return purse.usage * 2 ** (-(now_ms - purse.usage_ms) / 1000 / policy.usage_half_life_s)


def choose(
    candidates: Sequence[ClaimCandidate], node: Node, purse: Purse, held: frozenset[str], now_ms: int, policy: Policy
) -> Choice | Nothing:
    """`candidates` of one project in the queue's order; `held`: the bases that the node has."""
    reasons = [
        mismatch(job, node, now_ms) or unpriced(purse, node) or over_budget(purse, to_reserve(job, node, policy))
        for job in candidates
    ]
    fitting = [job for job, reason in zip(candidates, reasons, strict=True) if reason is None]
    if not fitting:
        return next((Nothing(reason) for reason in reasons if reason), NOTHING)
    job = _preferred(fitting, held, now_ms, policy)
    return Choice(job, f"{_why(job, fitting[0])}, on {node.name}", to_reserve(job, node, policy))


def unpriced(purse: Purse, node: Node) -> str | None:
    """Return why this node takes nothing of a project with a budget: nobody knows what that would cost."""
    return None if purse.budget is None or node.price_known else unaccountable(purse, node.name)


def to_reserve(job: ClaimCandidate, node: Node, policy: Policy) -> int:
    return reservation(node.price_of(job.slots), job.download_bytes, policy)


def _preferred(fitting: Sequence[ClaimCandidate], held: frozenset[str], now_ms: int, policy: Policy) -> ClaimCandidate:
    """One whose base the node holds, among equals, while the first of them has not waited for long."""
    first = fitting[0]
    if first.base in held or now_ms - first.queued_ms > policy.base_wait_s * 1000:
        return first
    equals = (job for job in fitting if job.priority == first.priority and bool(job.fencing) == bool(first.fencing))
    return next((job for job in equals if job.base in held), first)


def _why(job: ClaimCandidate, first: ClaimCandidate) -> str:
    if job.fencing:
        return "begun before, so ahead of fresh ones"
    return "the next in line" if job is first else "the next in line whose base is there"
