"""Find what a person could do so that a waiting job gets a node, each with its command."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gangline.core.job import Node
from gangline.core.jobs.claim import ClaimCandidate
from gangline.core.jobs.supply import PoolSeen, Supply, could_rent, fitting_offers, needs_of
from gangline.core.jobs.why import Fit, lacks_money
from gangline.core.money.budget import Purse
from gangline.core.policy import Policy
from gangline.core.words import counted, listed, usd_words

NAMED_MAX = 3
"""The most nodes or pools that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBy:
    """What an experiment lets its jobs do; `budget` is in micro-dollars. None: no limit."""

    experiment: str
    at_once: int | None
    budget: int | None


def what_would_help(job: ClaimCandidate, purse: Purse, fit: Fit, supply: Supply, policy: Policy) -> tuple[str, ...]:
    """Return what would bring the job a node sooner, one sentence each; nothing if it only has to wait."""
    if lacks_money(job, purse, fit, policy):
        return (f"raise the budget: `gangline projects set {purse.project} --usd N`",)
    if job.pool and job.pool not in supply.names:
        return (
            f"make the pool: `gangline pools add {job.pool}`",
            f"clone the job for another pool, of {', '.join(sorted(supply.names))}: `gangline jobs clone JOB --set needs.pool=NAME`",
        )
    locked = list(_released(fit.fitting)) if fit.fitting and all(fit.locked) else []
    pools = list(_of_pools(job, supply))[:NAMED_MAX]
    if locked or pools or fit.fitting or could_rent(job, purse, supply, policy):
        return (*locked, *pools)
    asked = needs_of(job)
    has = f" that has {asked}" if asked else ""
    return (f"start a worker{has}: `gangline worker`", f"make a pool{has}: `gangline pools add`")


TURN = "waits for its turn"
"""How the reason of a job begins for which only others come first."""


def turn_of(fit: Fit) -> str:
    """Return what a job waits for that fits nodes which work."""
    names = [node.name for node, why in zip(fit.fitting, fit.locked, strict=True) if not why]
    if len(names) > NAMED_MAX:
        return f"{TURN} on one of {counted(len(names), 'node')} that can take it"
    return f"{TURN} on {listed(names, 'or')}" if names else TURN


def what_releases(held: HeldBy) -> tuple[str, ...]:
    """Return what would let an experiment release its jobs sooner."""
    change = f"gangline experiments change {held.experiment}"
    more = [] if held.at_once is None else [f"let more run at once: `{change} --at-once {held.at_once + 1}`"]
    if held.budget is not None:
        more.append(f"raise its budget of {usd_words(held.budget)}: `{change} --budget N`")
    return tuple(more)


def _released(nodes: Sequence[Node]) -> Iterator[str]:
    out = [node for node in nodes if node.state in ("quarantined", "draining")]
    for node in out[:NAMED_MAX]:
        yield f"let {node.name} work again: `gangline nodes release {node.id}`"


def _of_pools(job: ClaimCandidate, supply: Supply) -> Iterator[str]:
    """Yield what would let a pool start a node for the job: one that is paused, or has as many nodes as it may."""
    for pool in supply.pools:
        if job.pool not in ("", pool.name) or not (pool.away or fitting_offers(job, [pool])):
            continue
        if pool.paused:
            yield f"let the pool {pool.name} rent again: `gangline pools resume {pool.name}`"
        elif pool.rented >= pool.nodes_max:
            yield _raised(pool)


def _raised(pool: PoolSeen) -> str:
    full = f"the pool {pool.name} has its maximum of {counted(pool.nodes_max, 'node')}"
    if not pool.editable:
        return f"{full}: raise `nodes_max` of [pools.{pool.name}] in the server's settings"
    least = f"{pool.nodes_min}.." if pool.nodes_min != pool.nodes_max else ""
    return f"{full}: `gangline pools set {pool.name} --nodes {least}{pool.nodes_max + 1}`"
