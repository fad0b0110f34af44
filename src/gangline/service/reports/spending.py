"""Answer what the fleet costs an hour now, and how often its nodes are interrupted."""

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.core.reports.costs import FleetView, PoolSpending
from gangline.service.deployment import Deployment


def fleet_spending(deployment: Deployment) -> FleetView:
    """Return what the nodes of each pool cost an hour now, and of it what is idle or starts."""
    rows = deployment.store.load("fleet_spending")
    return FleetView(
        pools=tuple(
            PoolSpending(
                **{name: row[name] for name in ("pool", "nodes", "slots", "slots_free", "unpriced")},
                usd_per_hour=row["per_hour"] / 1e6,
                idle_usd_per_hour=row["idle_per_hour"] / 1e6,
                starting_usd_per_hour=row["starting_per_hour"] / 1e6,
            )
            for row in rows
        ),
        nodes=sum(row["nodes"] for row in rows),
        unpriced=sum(row["unpriced"] for row in rows),
        usd_per_hour=sum(row["per_hour"] for row in rows) / 1e6,
        idle_usd_per_hour=sum(row["idle_per_hour"] for row in rows) / 1e6,
        starting_usd_per_hour=sum(row["starting_per_hour"] for row in rows) / 1e6,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInterruptions:
    """The interrupted attempts on nodes of a pool: how many, and how many of them as their node fell silent, not handed back."""

    count: int = 0
    silent: int = 0


def interruptions_of_pools(deployment: Deployment, since_ms: int) -> Mapping[str, PoolInterruptions]:
    """Return the interruptions since then of each pool that had some. They are the same that costs count."""
    rows = deployment.store.load("interruptions_of_pools", since=since_ms)
    return {row["pool"]: PoolInterruptions(count=row["interruptions"], silent=row["silent"]) for row in rows}
