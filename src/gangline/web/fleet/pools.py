"""The pools as an operator sees them: limits, state, price, nodes by state, and what they cost an hour now."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangline.core.fleet.nodes import NodeView
from gangline.core.fleet.pools import PoolView
from gangline.core.money.cost import DAY_MS
from gangline.core.reports.costs import FleetView, PoolSpending
from gangline.service.access.access import DEFAULT_POOL
from gangline.service.deployment import Deployment
from gangline.service.fleet.pools import pool_views
from gangline.service.reports.spending import PoolInterruptions, fleet_spending, interruptions_of_pools
from gangline.web.fleet.shown import ShownFleet


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPool:
    """A pool. `view` is None for one that only has nodes that join by hand. `growing` and `shrinking` say why nodes start and leave.
    `interrupted` has the interruptions of the last day."""

    name: str
    view: PoolView | None
    spending: PoolSpending | None
    states: Mapping[str, int]
    growing: str
    shrinking: str
    interrupted: PoolInterruptions

    @property
    def nodes(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPools:
    pools: tuple[ShownPool, ...]
    spending: FleetView


def shown_pools(deployment: Deployment, fleet: ShownFleet, now_ms: int) -> ShownPools:
    views = {view.name: view for view in pool_views(deployment)}
    spending = fleet_spending(deployment)
    costs = {each.pool: each for each in spending.pools}
    interrupted = interruptions_of_pools(deployment, now_ms - DAY_MS)
    names = sorted({*views, *fleet.pools, *(() if views or fleet.pools else (DEFAULT_POOL,))})
    return ShownPools(
        pools=tuple(
            ShownPool(
                name=name,
                view=views.get(name),
                spending=costs.get(name),
                states=fleet.pools.get(name, {}),
                growing=_why(fleet.views, name, "starting"),
                shrinking=_why(fleet.views, name, "draining"),
                interrupted=interrupted.get(name, PoolInterruptions()),
            )
            for name in names
        ),
        spending=spending,
    )


def _why(nodes: Iterable[NodeView], pool: str, state: str) -> str:
    """Return the most frequent reason of a pool's nodes in a state."""
    reasons = Counter(node.because for node in nodes if (node.pool, node.state) == (pool, state) and node.because)
    return reasons.most_common(1)[0][0] if reasons else ""
