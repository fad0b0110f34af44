"""Measure the service for its metrics: from the database, where several servers see the same, and from this process, where it is alone.

What grows with the history is counted once in full and then from where the last count ended; sums over all stored files are kept for a
while. Both are counted again in the background, so that no scrape but the first waits for them.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from gangline.core.errors import Unreachable
from gangline.core.operating.families import (
    Labels,
    MeasuredFamily,
    Totals,
    by_pool,
    counter,
    families_of_jobs,
    families_of_totals,
    gauge,
)
from gangline.ports.store import Row, Store
from gangline.service.access.access import DEFAULT_POOL
from gangline.service.deployment import Deployment

RECOUNT_S = 3600.0
"""Seconds between two full counts: a bill that comes late adds lines to a time that was counted."""
STORED_S = 600.0
LATEST_MS = 2**53
T = TypeVar("T")


class Kept(Generic[T]):
    """A value that is slow to find. Once it is older than `seconds`, it is found again by a thread of its own."""

    def __init__(self, seconds: float, find: Callable[[int], T]) -> None:
        self._ms = round(seconds * 1000)
        self._find = find
        self._turn = threading.Lock()
        self._found: tuple[int, T] | None = None
        self._finding: threading.Thread | None = None

    def get(self, now_ms: int) -> T:
        """Return the value; the first call waits for it. Raise what `find` raises then."""
        with self._turn:
            known = self._found
            if known is None:
                known = self._found = now_ms, self._find(now_ms)
            elif now_ms - known[0] >= self._ms and not (self._finding and self._finding.is_alive()):
                self._finding = threading.Thread(target=self._renew, args=(now_ms,), name="metrics", daemon=True)
                self._finding.start()
            return known[1]

    def settle(self) -> None:
        """Wait for the thread that finds the value again, if there is one."""
        if self._finding:
            self._finding.join()

    def _renew(self, now_ms: int) -> None:
        with suppress(Unreachable):  # then the next scrape tries again
            self._found = now_ms, self._find(now_ms)


class ServiceMetrics:
    """The metrics of the service, as this process sees it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        store = deployment.store
        self.totals = Kept(RECOUNT_S, lambda now_ms: count_totals(store, 0, now_ms))
        self.stored = Kept(STORED_S, lambda _: store.load("stored_bytes"))

    def of_process(self) -> list[MeasuredFamily]:
        """Return the families that need no database."""
        failures = self._deployment.store.failures
        return [
            *_pools(self._deployment),
            counter("database_errors", "Statements of this process that the database did not answer.", failures),
        ]

    def of_database(self, now_ms: int) -> list[MeasuredFamily]:
        """Return the other families. Raise `Unreachable` if the database does not answer."""
        deployment, store = self._deployment, self._deployment.store
        counted = self.totals.get(now_ms)
        return [
            *_jobs(store, now_ms),
            *_fleet(deployment),
            *_leases(store, now_ms),
            *families_of_totals(counted + count_totals(store, counted.until_ms, LATEST_MS)),
            *_service(store, now_ms),
            gauge(
                "object_store_bytes",
                "Bytes in the object store by kind, as the database knows them; at most ten minutes old.",
                {(row["kind"],): row["bytes"] for row in self.stored.get(now_ms)},
                "kind",
            ),
        ]


def count_totals(store: Store, since_ms: int, until_ms: int) -> Totals:
    """Count what ended from `since_ms` until before `until_ms`."""
    span = {"since": since_ms, "until": until_ms}
    found = Totals(until_ms=until_ms)
    for row in store.load("attempts_ended_in", **span):
        found.attempts[row["pool"], row["state"], row["kind"]] += row["attempts"]
    for row in store.load("costs_of_pools_in", **span):
        found.ms[row["pool"], row["cause"]] += row["ms"]
        found.micro_usd[row["pool"], row["cause"]] += row["micro_usd"]
        found.credit_micro_usd[(row["pool"],)] += row["credit_micro_usd"]
    made = store.load("checkpoints_committed_in", **span)[0]
    found.checkpoints, found.checkpoint_bytes = made["checkpoints"], made["bytes"]
    return found


def _jobs(store: Store, now_ms: int) -> list[MeasuredFamily]:
    by_state = {row["state"]: row["jobs"] for row in store.load("count_jobs_by_state")}
    waiting = store.load("waiting_jobs")[0]["jobs"]
    oldest = store.load("oldest_waiting")
    return families_of_jobs(by_state, waiting, (now_ms - oldest[0]["queued_ms"]) / 1000 if oldest else 0.0)


def _fleet(deployment: Deployment) -> list[MeasuredFamily]:
    """Return the nodes by pool and state, and of each pool what is rented, wanted, billed and allowed."""
    rows = deployment.store.load("nodes_by_state")
    nodes, rented, wanted = dict[Labels, float](), dict[str, float](), dict[str, float]()
    for row in rows:
        pool, state = row["pool"], row["state"]
        nodes[pool, state] = nodes.get((pool, state), 0) + row["nodes"]
        if row["rented"]:
            rented[pool] = rented.get(pool, 0) + row["nodes"]
            wanted[pool] = wanted.get(pool, 0) + row["nodes"] * (state in STAY)
    billed = _counts(deployment.store.load("billed_instances"), "instances")
    orphans = billed.pop("", 0)
    failed = _counts(deployment.store.load("starts_that_failed"), "nodes")
    pools = list(deployment.pools) or [DEFAULT_POOL]
    return [
        gauge("nodes", "Nodes by pool and state, without those that are gone.", nodes, "pool", "state"),
        gauge("pool_nodes_rented", "Nodes that are rented in a pool.", by_pool(pools, rented), "pool"),
        gauge("pool_nodes_wanted", "Rented nodes of a pool that are to stay.", by_pool(pools, wanted), "pool"),
        gauge("pool_instances_billed", "Instances that the pool's provider bills.", by_pool(pools, billed), "pool"),
        gauge("orphan_instances", "Instances that a provider bills and that no node stands for.", orphans),
        counter("pool_failed_starts", "Rented nodes that never joined.", by_pool(pools, failed), "pool"),
        gauge(
            "pool_nodes_limit",
            "The most nodes that a pool may rent.",
            {(name,): pool.limits.nodes_max for name, pool in deployment.pools.items()},
            "pool",
        ),
    ]


STAY = frozenset(("starting", "ready", "on_trial"))


def _counts(rows: list[Row], column: str) -> dict[str, float]:
    return {row["pool"]: row[column] for row in rows}


def _pools(deployment: Deployment) -> list[MeasuredFamily]:
    """Return what this process heard of the pools' providers: the server that has its turn asks them."""
    heard = {name: deployment.recent.offers_of(name) for name in deployment.pools}
    errors = {(name,): deployment.recent.driver_errors[name] for name in deployment.pools}
    return [
        counter("pool_driver_errors", "Calls by this process that a pool's driver did not answer.", errors, "pool"),
        gauge(
            "pool_driver_up",
            "1 if the pool's driver answered this process when it was asked last, else 0.",
            {(name,): found.offers is not None for name, found in heard.items() if found is not None},
            "pool",
        ),
    ]


def _leases(store: Store, now_ms: int) -> list[MeasuredFamily]:
    found = store.load("leases_held", now=now_ms)[0]
    return [
        gauge("leases", "Attempts that a node works at.", found["leases"]),
        gauge("leases_overdue", "Leases whose time is over, and that were not ended yet.", found["overdue"]),
    ]


def _service(store: Store, now_ms: int) -> list[MeasuredFamily]:
    ticks, notices = store.load("ticks")[0], store.load("notices_waiting", now=now_ms)[0]
    late_ms = max(0, now_ms - notices["due_ms"]) if notices["due_ms"] is not None else 0
    return [
        gauge(
            "controller_age_seconds",
            "Seconds since a controller of any server began a round of its work.",
            max(0, now_ms - ticks["ticked_ms"]) / 1000,
        ),
        gauge("notices_unsent", "Notices that were not delivered yet.", notices["notices"]),
        gauge(
            "notices_late_seconds", "How long the notice that is most overdue should have been sent.", late_ms / 1000
        ),
    ]
