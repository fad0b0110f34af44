"""One true sentence why a queued job is not running yet."""

from collections.abc import Sequence
from dataclasses import replace

from gangline.core.job import Node
from gangline.core.jobs.claim import Candidate, mismatch, to_reserve
from gangline.core.money.budget import Purse, over_budget, reservation
from gangline.core.policy import Policy

NODES_NAMED_MAX = 3


def why_queued(
    job: Candidate,
    said: str,
    purse: Purse,
    nodes: Sequence[Node],
    banned: frozenset[str],
    now_ms: int,
    policy: Policy,
) -> str:
    """`said` when it was queued; `nodes`: those here that work; `banned`: the machines that may not have it."""
    if job.ready_ms > now_ms:
        return f"waits {(job.ready_ms - now_ms) / 1000:.0f} s before its next try: {said}"
    barred = replace(job, banned=True)
    misfits = {node.id: mismatch(barred if node.machine in banned else job, _idle(node), now_ms) for node in nodes}
    least = min(
        (to_reserve(job, node, policy) for node in nodes if misfits[node.id] is None),
        default=max(1, reservation(0, job.download_bytes, policy)),
    )
    too_much = over_budget(purse, least)
    if too_much:
        return too_much
    if not nodes:
        return "waits for a node: none is here"
    if all(misfits.values()):
        return f"no node here can take it: {_listed([why for why in misfits.values() if why])}"
    return said


def _idle(node: Node) -> Node:
    """That others are using it now is no reason. There are many nodes, so none is copied without need."""
    return node if node.slots_free == node.slots else replace(node, slots_free=node.slots)


def _listed(reasons: Sequence[str]) -> str:
    named, more = reasons[:NODES_NAMED_MAX], len(reasons) - NODES_NAMED_MAX
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")
