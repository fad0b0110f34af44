"""Which job a node that asks gets: those that were interrupted, then fair share, priority, age; matched with what the node is."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.job import WORKING, Node
from gangline.core.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A queued job. What it needs of a node is empty (or 0) where any will do; `numerics` pins it to what made its checkpoints."""

    id: str
    project: str
    fencing: int
    version: int
    priority: int
    queued_ms: int
    ready_ms: int
    base: str
    slots: int
    gpu: str
    gpu_memory_gb: float
    pool: str
    trust: int
    numerics: str
    banned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """A project's usage, decayed to `usage_ms`, its share of the fleet, and its budget (None: no limit). Money in micro-dollars."""

    project: str
    usage: float
    usage_ms: int
    share: float
    budget: int | None
    spent: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Choice:
    """`reserve`: micro-dollars of the project's budget that the attempt may spend before it asks for more."""

    job: Candidate
    because: str
    reserve: int


@dataclass(frozen=True, slots=True)
class Nothing:
    because: str


NOTHING = Nothing("no job waits that may run here")


def refusal(node: Node, now_ms: int) -> Nothing | None:
    """Why this node gets nothing, whatever waits."""
    if node.state not in WORKING:
        return Nothing(
            f"{node.name} is {node.state}: {node.because}" if node.because else f"{node.name} is {node.state}"
        )
    if node.rest_until_ms > now_ms:
        return Nothing(f"{node.name} pauses after failures, for {(node.rest_until_ms - now_ms) / 1000:.0f} s more")
    if node.slots_free <= 0:
        return Nothing(f"all {node.slots} slots of {node.name} are taken")
    return None


def mismatch(job: Candidate, node: Node, now_ms: int) -> str | None:
    """The first reason why this node may not have this job."""
    if job.ready_ms > now_ms:
        return f"waits {(job.ready_ms - now_ms) / 1000:.0f} s before its next try"
    if job.banned:
        return f"{node.name} failed it before"
    if job.gpu_memory_gb > node.gpu_memory_gb:
        return f"needs {job.gpu_memory_gb:g} GB of GPU memory and {node.name} has {node.gpu_memory_gb:g}"
    if job.gpu and job.gpu != node.gpu:
        return f"needs a {job.gpu} and {node.name} has {node.gpu or 'no GPU'}"
    if job.pool and job.pool != node.pool:
        return f"needs the pool {job.pool} and {node.name} is in {node.pool}"
    if job.trust > node.trust:
        return f"needs trust {job.trust} and {node.name} has {node.trust}"
    if job.numerics and job.numerics != node.numerics:
        return f"must go on with the same numerics, and {node.name} has others"
    if job.slots > node.slots_free:
        return f"needs {job.slots} slots and {node.name} has {node.slots_free} free"
    return None


def by_fair_share(purses: Sequence[Purse], now_ms: int, policy: Policy) -> list[Purse]:
    """Who used least of its share first: 2^(-usage / share) with a half-life, as Slurm's fair-share priority."""
    return sorted(purses, key=lambda purse: (decayed(purse, now_ms, policy) / purse.share, purse.project))


def decayed(purse: Purse, now_ms: int, policy: Policy) -> float:
    return purse.usage * 2 ** (-(now_ms - purse.usage_ms) / 1000 / policy.usage_half_life_s)


def reservation(node: Node, slots: int, policy: Policy) -> int:
    """Micro-dollars for so long that the attempt can be told to stop, and stopped, before they are spent."""
    return round(node.price_of(slots) * policy.reserve_s / 3600)


def over_budget(purse: Purse, more: int) -> str | None:
    if purse.budget is None or purse.spent + purse.reserved + more <= purse.budget:
        return None
    return (
        f"the budget of {purse.project}, ${purse.budget / 1e6:.2f}, does not allow it: "
        f"${purse.spent / 1e6:.2f} spent, ${purse.reserved / 1e6:.2f} reserved by what runs"
    )


def choose(
    candidates: Sequence[Candidate], node: Node, purse: Purse, held: frozenset[str], now_ms: int, policy: Policy
) -> Choice | Nothing:
    """`candidates` of one project in the queue's order; `held`: the bases that the node has."""
    fitting = [job for job in candidates if mismatch(job, node, now_ms) is None]
    if not fitting:
        reasons = [why for job in candidates if (why := mismatch(job, node, now_ms))]
        return Nothing(reasons[0]) if reasons else NOTHING
    job = _preferred(fitting, held, now_ms, policy)
    reserve = reservation(node, job.slots, policy)
    too_much = over_budget(purse, reserve)
    if too_much:
        return Nothing(too_much)
    return Choice(job, f"{_why(job, fitting[0])}, on {node.name}", reserve)


def _preferred(fitting: Sequence[Candidate], held: frozenset[str], now_ms: int, policy: Policy) -> Candidate:
    """One whose base the node holds, among equals, while the first of them has not waited for long."""
    first = fitting[0]
    if first.base in held or now_ms - first.queued_ms > policy.base_wait_s * 1000:
        return first
    equals = (job for job in fitting if job.priority == first.priority and bool(job.fencing) == bool(first.fencing))
    return next((job for job in equals if job.base in held), first)


def _why(job: Candidate, first: Candidate) -> str:
    if job.fencing:
        return "begun before, so ahead of fresh ones"
    return "the next in line" if job is first else "the next in line whose base is there"
