"""Load the rented nodes of all pools."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from gangline.core.fleet.autoscale import Rented
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.fleet.demand import free_slots, kinds_of_pool, shape_of
from gangline.service.outage import back_since_ms


class RentedNodes:
    """The nodes of all pools, which are read at once, when somebody asks, and again for who asks for those that were changed.

    Read them after the providers' lists: a node that a list shows was known before it was rented.
    """

    def __init__(self, deployment: Deployment, now_ms: int) -> None:
        self._deployment = deployment
        self._now_ms = now_ms
        self._known: dict[str, Sequence[Rented]] = {}
        self._pools: dict[str, str] = {}

    def of(self, pool: str) -> Sequence[Rented]:
        if pool not in self._known:
            none: dict[str, Sequence[Rented]] = dict.fromkeys(self._deployment.pools, ())
            self._known = none | _load(self._deployment, self._now_ms)
            self._pools = {node.rental: name for name, nodes in self._known.items() for node in nodes}
        return self._known[pool]

    def is_of_another(self, rental: str, pool: str) -> bool:
        """Return whether another pool has rented this: two may have one provider, whose list then shows the nodes of both."""
        self.of(pool)
        return self._pools.get(rental, pool) != pool

    def forget(self, pool: str) -> None:
        """Read the pool's nodes again when somebody asks: something was changed."""
        self._known.pop(pool, None)


def _load(deployment: Deployment, now_ms: int) -> dict[str, Sequence[Rented]]:
    """Those that are starting are expected to have the libraries that the recent ones of their pool had."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in deployment.store.load("rented_nodes"):
        rows[row["pool"]].append(row)
    back_ms = back_since_ms(deployment, now_ms)
    return {pool: _of_pool(deployment, pool, mine, back_ms, now_ms) for pool, mine in rows.items()}


def _of_pool(deployment: Deployment, pool: str, rows: list[Row], back_ms: int, now_ms: int) -> list[Rented]:
    starting = any(row["state"] == "starting" for row in rows)
    kinds = kinds_of_pool(deployment, pool, now_ms) if starting else ""
    return [
        Rented(
            id=row["id"],
            rental=row["rental"],
            place=row["place"],
            shown_machine=row["shown_machine"],
            leaves=row["leaves"],
            offer=row["offer"],
            unfit=bool(row["proof_failed"]),
            because=row["because"],
            progress=row["progress"],
            state=row["state"],
            since_ms=row["since_ms"],
            # A node could not claim while the service was down: that time does not count as idle.
            idle_since_ms=None if row["beat_ms"] else max(row["meter_ms"], back_ms),
            heard_ms=max(row["seen_ms"], row["beat_ms"] or 0),
            instance=row["instance"],
            missing=row["missing"],
            shape=replace(shape_of(row), kinds=kinds) if row["state"] == "starting" else shape_of(row),
            free=free_slots(row),
        )
        for row in rows
    ]
