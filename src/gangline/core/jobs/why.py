"""Explain in one sentence why a queued job is not running yet."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress
from operator import attrgetter

from gangline.core.job import WORKING, Node
from gangline.core.jobs.claim import ClaimCandidate, locked_out, mismatch, unpriced
from gangline.core.jobs.supply import Supply, needs_of, what_helps
from gangline.core.money.budget import Purse, over_budget, reservation
from gangline.core.policy import Policy
from gangline.core.runs.proof import kinds_text

NODES_NAMED_MAX = 3
UNFIT_MAX = 100
"""The most nodes of which it is known why they do not fit: a sentence each, for jobs of each need."""
ITS_OWN = {
    "id", "machine", "name", "meter_ms", "joined_ms", "slots_free", "price_micro_usd_per_hour", "rest_until_ms",
    "quarantined_until_ms", "because", "problems",
}  # fmt: skip
"""What does not decide whether a job may run on a node, apart from the bans of its machine."""
_likeness = attrgetter(*(each.name for each in fields(Node) if each.name not in ITS_OWN))


@dataclass(frozen=True, slots=True)
class NodesHere:
    """All nodes that exist or start now, as they are at one moment. There may be a thousand, of which most are alike: `kinds` has for each
    the number of its like among `examples`. `locked` has why each gets no work now."""

    nodes: Sequence[Node]
    kinds: Sequence[int]
    examples: Sequence[Node]
    locked: Sequence[str | None]


def nodes_here(nodes: Sequence[Node], now_ms: int) -> NodesHere:
    examples = dict[Hashable, Node]()
    likenesses = [_likeness(node) for node in nodes]
    for likeness, node in zip(likenesses, nodes, strict=True):
        examples.setdefault(likeness, node)
    numbers = {likeness: number for number, likeness in enumerate(examples)}
    return NodesHere(
        nodes=nodes,
        kinds=[numbers[likeness] for likeness in likenesses],
        examples=tuple(examples.values()),
        locked=[locked_out(node, now_ms) for node in nodes],
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """How nodes fit all jobs of equal `fit_key`.

    Of all `nodes`, so many, those may have them as soon as their slots are free that are `fitting`: `locked` has why each of these gets no
    work now, and `prices` what the slots cost on those that get some, in micro-dollars an hour. `unfit` are the others with the reasons, at
    most `UNFIT_MAX` of them.
    """

    nodes: int
    unfit: Sequence[tuple[Node, str]]
    fitting: Sequence[Node]
    locked: Sequence[str | None]
    prices: frozenset[int]


def fit_key(job: ClaimCandidate, banned: frozenset[str], now_ms: int) -> Hashable:
    """Return what decides how nodes fit a job: the job's needs, and the machines that may not have it."""
    needs = (job.kind, job.wanted, job.gpu, job.gpu_memory_gb, job.pool, job.trust, job.numerics, job.slots)
    return job.project, needs, banned, job.banned, job.ready_ms > now_ms


def fit_of(job: ClaimCandidate, purse: Purse, here: NodesHere, banned: frozenset[str], now_ms: int) -> Fit:
    """Return how the nodes fit a job; `banned` are the machines that may not have it."""
    alike = [_why_unfit(job, purse, node, frozenset(), now_ms) is None for node in here.examples]
    fits = [alike[kind] for kind in here.kinds]
    if banned:
        fits = [fit and node.machine not in banned for fit, node in zip(fits, here.nodes, strict=True)]
    fitting = tuple(compress(here.nodes, fits))
    others = [node for node, fit in zip(here.nodes, fits, strict=True) if not fit]
    return Fit(
        nodes=len(here.nodes),
        unfit=tuple((node, _why_unfit(job, purse, node, banned, now_ms) or "") for node in others[:UNFIT_MAX]),
        fitting=fitting,
        locked=tuple(compress(here.locked, fits)),
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
    helps, nodes = what_helps(job, purse, supply, policy), fit.nodes
    if nodes:
        return f"no node can take it: {_listed([why for _, why in fit.unfit], nodes)}; {helps}"
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
        listed = _listed([f"{node.name} {why}" for node, why in zip(fitting, reasons, strict=True)], len(fitting))
        return f"all {len(fitting)} nodes that could take it get no work now: {listed}"
    only = "the only node" if fit.nodes == 1 else "the only node that could take it"
    return f"{only}, {fitting[0].name}, {reasons[0]}"


def _why_unfit(job: ClaimCandidate, purse: Purse, node: Node, banned: frozenset[str], now_ms: int) -> str | None:
    return _misfit(job, node, banned, now_ms) or unpriced(purse, node)


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


def _listed(reasons: Sequence[str], in_all: int) -> str:
    named, more = reasons[:NODES_NAMED_MAX], in_all - NODES_NAMED_MAX
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")
