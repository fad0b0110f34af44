"""Explain in one sentence why a queued job is not running yet."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from gangline.core.job import WORKING, Node
from gangline.core.jobs.claim import ClaimCandidate, locked_out, mismatch, unpriced
from gangline.core.jobs.supply import Supply, needs_of, what_helps
from gangline.core.money.budget import Purse, over_budget, reservation
from gangline.core.policy import Policy
from gangline.core.runs.proof import kinds_text

NODES_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Fit:
    """How nodes fit all jobs of equal `fit_key`.

    `reasons` has by node id why a node may not have them; None for one that may as soon as its slots are free. Those are `fitting`:
    `locked` has why each of them gets no work now, and `prices` what the slots cost on those that get some, in micro-dollars an hour.
    """

    reasons: Mapping[str, str | None]
    fitting: Sequence[Node]
    locked: Sequence[str | None]
    prices: frozenset[int]


def fit_key(job: ClaimCandidate, banned: frozenset[str], now_ms: int) -> Hashable:
    """Return what decides how nodes fit a job: the job's needs, and the machines that may not have it."""
    needs = (job.kind, job.wanted, job.gpu, job.gpu_memory_gb, job.pool, job.trust, job.numerics, job.slots)
    return job.project, needs, banned, job.banned, job.ready_ms > now_ms


def fit_of(job: ClaimCandidate, purse: Purse, nodes: Sequence[Node], banned: frozenset[str], now_ms: int) -> Fit:
    """Return how these nodes, all that exist or start now, fit a job; `banned` are the machines that may not have it."""
    reasons = {node.id: _misfit(job, node, banned, now_ms) or unpriced(purse, node) for node in nodes}
    fitting = tuple(node for node in nodes if reasons[node.id] is None)
    return Fit(
        reasons=reasons,
        fitting=fitting,
        locked=tuple(locked_out(node, now_ms) for node in fitting),
        prices=frozenset(node.price_of(job.slots) for node in fitting if node.state in WORKING),
    )


def why_queued(
    job: ClaimCandidate, said: str, purse: Purse, fit: Fit, supply: Supply, now_ms: int, policy: Policy
) -> str:
    """Return why the job waits. `said` is the reason from when it was queued."""
    if job.ready_ms > now_ms:
        return f"waits {(job.ready_ms - now_ms) / 1000:.0f} s before its next try: {said}"
    too_much = lacks_money(job, purse, fit, policy)
    if too_much:
        return too_much
    if fit.fitting:
        return _why_not_there(fit, said)
    helps, nodes = what_helps(job, purse, supply, policy), fit.reasons
    if nodes:
        return f"no node can take it: {_listed([why for why in nodes.values() if why])}; {helps}"
    asked = needs_of(job)
    return f"waits for a node: there is none{f', and it needs {asked}' if asked else ''}; {helps}"


def lacks_money(job: ClaimCandidate, purse: Purse, fit: Fit, policy: Policy) -> str | None:
    """Return why the project's budget does not allow the job on any node that fits, or None if it does."""
    # If no node fits, every node would cost something: an empty budget is then the reason, whatever a node costs.
    least = min(
        (reservation(price, job.download_bytes, policy) for price in fit.prices),
        default=max(1, reservation(0, job.download_bytes, policy)),
    )
    return over_budget(purse, least)


def _why_not_there(fit: Fit, said: str) -> str:
    """Return what keeps the nodes that fit from taking the job; if nothing does for one of them, `said`: the job's turn will come."""
    fitting, reasons = fit.fitting, fit.locked
    if not all(reasons):
        return said
    coming = next((node for node in fitting if node.state == "starting"), None)
    if coming:
        return f"waits for a node: {coming.name} is starting"
    if len(fitting) > 1:
        listed = _listed([f"{node.name} {why}" for node, why in zip(fitting, reasons, strict=True)])
        return f"all {len(fitting)} nodes that could take it get no work now: {listed}"
    only = "the only node" if len(fit.reasons) == 1 else "the only node that could take it"
    return f"{only}, {fitting[0].name}, {reasons[0]}"


def _misfit(job: ClaimCandidate, node: Node, banned: frozenset[str], now_ms: int) -> str | None:
    if node.machine in banned:
        job = replace(job, banned=True)
    elif node.state == "starting":
        # its numerics, its libraries and its isolation are known only once it has joined
        job, node = replace(job, numerics=""), replace(node, kinds=kinds_text((job.wanted,)))
    return mismatch(job, _idle(node), now_ms)


def _idle(node: Node) -> Node:
    """Return the node with all slots free, as other jobs on it are no misfit. It is copied only if needed: there are many nodes."""
    return node if node.slots_free == node.slots else replace(node, slots_free=node.slots)


def _listed(reasons: Sequence[str]) -> str:
    named, more = reasons[:NODES_NAMED_MAX], len(reasons) - NODES_NAMED_MAX
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")
