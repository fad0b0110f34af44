"""Choose the job for a node that asks for one: interrupted jobs first, then by fair share, priority and age, if the node fits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.job import WORKING, Node
from gangline.core.moments import until
from gangline.core.money.budget import Purse, over_budget, reservation, unaccountable
from gangline.core.policy import Policy
from gangline.core.runs.proof import has_kind, why_unwanted
from gangline.core.words import one


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCandidate:
    """A queued job. A requirement that is empty (or 0) accepts any node; `numerics` restricts it to nodes like the one that made its
    checkpoints; `begins_from` is the job whose checkpoints it starts from, until it has some itself."""

    id: str
    project: str
    kind: str
    wanted: str
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
    """The job that a node gets. `reserve` is the micro-dollars of the project's budget that the attempt may spend before it needs more."""

    job: ClaimCandidate
    because: str
    reserve: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """The answer that the node gets no job, and why. `locked_out` says that it gets none for some time, whichever jobs are queued."""

    because: str
    locked_out: bool = False


NOTHING = Nothing("no waiting job may run on this node")


def locked_out(node: Node, now_ms: int) -> str | None:
    """Return why a node gets no work for some time, as a verb phrase; None if it may get some. The text stays until the reason changes."""
    if node.state not in WORKING:
        ends = node.state == "quarantined" and node.quarantined_until_ms > now_ms  # a failed probe sets no end
        end = f" until {until(node.quarantined_until_ms, now_ms)}" if ends else ""
        why = node.because.removeprefix(f"{node.state}: ")
        return f"is {node.state}{end}: {why}" if why else f"is {node.state}{end}"
    if node.rest_until_ms > now_ms:
        return f"pauses after failures until {until(node.rest_until_ms, now_ms)}"
    return None


def refusal(node: Node, now_ms: int) -> Nothing | None:
    """Return why this node gets no job, whichever jobs are queued; None if it may get one."""
    locked = locked_out(node, now_ms)
    if locked:
        return Nothing(f"{node.name} {locked}", locked_out=True)
    if node.state == "on_trial" and node.slots_free < node.slots:
        return Nothing(f"{node.name} is on trial: it gets one job at a time")
    if node.slots_free <= 0:
        return Nothing(f"all {node.slots} slots of {node.name} are taken")
    return None


def mismatch(job: ClaimCandidate, node: Node, now_ms: int) -> str | None:
    """Return the first reason why this node may not have this job, or None."""
    if job.ready_ms > now_ms:
        return f"waits {(job.ready_ms - now_ms) / 1000:.0f} s before its next try"
    if job.banned:
        return f"{node.name} failed it before"
    lack = why_unwanted(node.kinds, job.wanted)
    if lack:
        return f"{node.name} has no {lack}{_because(node, job)}"
    if job.gpu_memory_gb > node.gpu_memory_gb:
        return f"needs {job.gpu_memory_gb:g} GB of GPU memory and {node.name} has {node.gpu_memory_gb:g}"
    if job.gpu and job.gpu != node.gpu:
        return f"needs {one(job.gpu)} and {node.name} has {node.gpu or 'no GPU'}"
    if job.pool and job.pool != node.pool:
        return f"needs the pool {job.pool} and {node.name} is in {node.pool}"
    if job.trust > node.trust:
        return f"needs trust {job.trust} and {node.name} has {node.trust}"
    if job.numerics and job.numerics != node.numerics:
        return f"must resume with the same numerics, and {node.name} has others"
    if job.slots > node.slots_free:
        return f"needs {job.slots} slots and {node.name} has {node.slots_free} free"
    return None


def _because(node: Node, job: ClaimCandidate) -> str:
    """Return why a node lacks the libraries for a job, after a colon; empty if it has them."""
    if has_kind(node.kinds, job.kind):
        return ""
    return f": {json.loads(node.problems).get(job.kind, 'its Gangline does not know this kind of job')}"


def by_fair_share(purses: Sequence[Purse], now_ms: int, policy: Policy) -> list[Purse]:
    """Sort projects by usage ÷ share, the least first, as Slurm's fair-share priority 2^(-usage / share) does. Usage has a half-life."""
    return sorted(purses, key=lambda purse: (decayed(purse, now_ms, policy) / purse.share, purse.project))


def decayed(purse: Purse, now_ms: int, policy: Policy) -> float:
    return purse.usage * 2 ** (-(now_ms - purse.usage_ms) / 1000 / policy.usage_half_life_s)


def choose(
    candidates: Sequence[ClaimCandidate], node: Node, purse: Purse, held: frozenset[str], now_ms: int, policy: Policy
) -> Choice | Nothing:
    """Choose among `candidates`, the jobs of one project in the queue's order; `held` are the bases that the node has on disk."""
    reasons = [
        mismatch(job, node, now_ms) or unpriced(purse, node) or over_budget(purse, to_reserve(job, node, policy))
        for job in candidates
    ]
    fitting = [job for job, reason in zip(candidates, reasons, strict=True) if reason is None]
    if not fitting:
        return next((Nothing(reason) for reason in reasons if reason), NOTHING)
    job = _preferred(fitting, held, now_ms, policy)
    return Choice(job, f"taken by {node.name}: {_why(job, fitting[0])}", to_reserve(job, node, policy))


def unpriced(purse: Purse, node: Node) -> str | None:
    """Return why a project with a budget may not use this node: its price is not known. None if it may."""
    return None if purse.budget is None or node.price_known else unaccountable(purse, node.name)


def to_reserve(job: ClaimCandidate, node: Node, policy: Policy) -> int:
    return reservation(node.price_of(job.slots), job.download_bytes, policy)


def _preferred(fitting: Sequence[ClaimCandidate], held: frozenset[str], now_ms: int, policy: Policy) -> ClaimCandidate:
    """Return the first job; or one of equal rank whose base the node has, unless the first has waited longer than `base_wait_s`.

    The wait is bounded, as otherwise a stream of jobs with a common base would starve one with a rare base.
    """
    first = fitting[0]
    if not first.base or first.base in held or now_ms - first.queued_ms > policy.base_wait_s * 1000:
        return first
    equals = (job for job in fitting if job.priority == first.priority and bool(job.fencing) == bool(first.fencing))
    return next((job for job in equals if job.base in held), first)


def _why(job: ClaimCandidate, first: ClaimCandidate) -> str:
    if job.fencing:
        return "it was started before, so it comes before new jobs"
    return "it was next in line" if job is first else "it was next in line among jobs whose base the node has"
