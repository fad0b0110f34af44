"""Explain in one sentence why a queued job is not running yet."""

from collections.abc import Sequence
from dataclasses import replace

from gangline.core.job import WORKING, Node
from gangline.core.jobs.claim import ClaimCandidate, locked_out, mismatch, to_reserve, unpriced
from gangline.core.jobs.supply import Supply, needs_of, what_helps
from gangline.core.money.budget import Purse, over_budget, reservation
from gangline.core.policy import Policy
from gangline.core.runs.proof import kinds_text

NODES_NAMED_MAX = 3


def why_queued(
    job: ClaimCandidate,
    said: str,
    purse: Purse,
    nodes: Sequence[Node],
    supply: Supply,
    banned: frozenset[str],
    now_ms: int,
    policy: Policy,
) -> str:
    """Return why the job waits. `said` is the reason from when it was queued; `nodes` are all that exist or start now; `banned` are the
    machines that may not have it."""
    if job.ready_ms > now_ms:
        return f"waits {(job.ready_ms - now_ms) / 1000:.0f} s before its next try: {said}"
    reasons = misfits(job, purse, nodes, banned, now_ms)
    fitting = [node for node in nodes if reasons[node.id] is None]
    # If no node fits, every node would cost something: an empty budget is then the reason, whatever a node costs.
    least = min(
        (to_reserve(job, node, policy) for node in fitting if node.state in WORKING),
        default=max(1, reservation(0, job.download_bytes, policy)),
    )
    too_much = over_budget(purse, least)
    if too_much:
        return too_much
    if fitting:
        return _why_not_there(fitting, len(nodes), said, now_ms)
    helps = what_helps(job, purse, supply, policy)
    if nodes:
        return f"no node can take it: {_listed([why for why in reasons.values() if why])}; {helps}"
    asked = needs_of(job)
    return f"waits for a node: there is none{f', and it needs {asked}' if asked else ''}; {helps}"


def misfits(
    job: ClaimCandidate, purse: Purse, nodes: Sequence[Node], banned: frozenset[str], now_ms: int
) -> dict[str, str | None]:
    """Return by node id why a node may not have the job; None for a node that may as soon as its slots are free."""
    return {node.id: _misfit(job, node, banned, now_ms) or unpriced(purse, node) for node in nodes}


def _why_not_there(fitting: Sequence[Node], here: int, said: str, now_ms: int) -> str:
    """Return what keeps the nodes that fit from taking the job; if nothing does for one of them, `said`: the job's turn will come."""
    reasons = [locked_out(node, now_ms) for node in fitting]
    if not all(reasons):
        return said
    coming = next((node for node in fitting if node.state == "starting"), None)
    if coming:
        return f"waits for a node: {coming.name} is starting"
    if len(fitting) > 1:
        listed = _listed([f"{node.name} {why}" for node, why in zip(fitting, reasons, strict=True)])
        return f"all {len(fitting)} nodes that could take it get no work now: {listed}"
    only = "the only node" if here == 1 else "the only node that could take it"
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
