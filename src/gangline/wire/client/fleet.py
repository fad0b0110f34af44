# Made of src/gangline/wire/aio/fleet.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""The client's requests about nodes and pools, the queue, and what all of it costs."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from gangline.core.fleet.nodes import MachineSummary, NodeBill, NodeDetail, NodeView
from gangline.core.fleet.pools import DriverView, InstanceView, PoolView
from gangline.core.jobs.queue.views import QueueView
from gangline.core.money.forecast import CostSpan
from gangline.core.money.thresholds import PERCENTS
from gangline.core.reports.costs import BudgetsView, CostKey, CostsView, FleetView
from gangline.core.reports.thresholds import ThresholdView
from gangline.wire.client.calls import Calls
from gangline.wire.http import PROVIDER_TIMEOUT, REPORT_TIMEOUT, path_of


class NodeCalls(Calls):
    """Nodes. All but `list` and `get` needs an operator's key."""

    def get(self, node: str) -> NodeDetail:
        """Return a node, given its id. Raise `NotFound`."""
        return self._http.read(NodeDetail, "GET", path_of("nodes", node))

    def drain(self, node: str, *, stop: bool = False) -> NodeDetail:
        """Give a node no more work. With `stop`, its jobs are saved and handed back."""
        path = path_of("nodes", node, "drain") + "?stop=true" * stop
        return self._http.read(NodeDetail, "POST", path)

    def quarantine(self, node: str, *, lasts_s: float, stop: bool = False, reason: str = "") -> NodeDetail:
        """Give the node's machine no work for so long. The `reason` is shown with the node."""
        wish = {"lasts_s": str(lasts_s)} | ({"stop": "true"} if stop else {}) | ({"reason": reason} if reason else {})
        return self._http.read(NodeDetail, "POST", path_of("nodes", node, "quarantine"), params=wish)

    def release(self, node: str) -> NodeDetail:
        """Let a node work again that drains, is in quarantine or on trial."""
        return self._http.read(NodeDetail, "POST", path_of("nodes", node, "release"))

    def logs(self, node: str) -> str:
        """Return what a rented node printed last, as its provider has it."""
        answer = self._http.ask("GET", path_of("nodes", node, "logs"), timeout=PROVIDER_TIMEOUT)
        return str(answer.json()["text"])

    def bill(self, node: str) -> NodeBill:
        """Return what a rented node's time has cost so far, and for how long its provider bills it."""
        return self._http.read(NodeBill, "GET", path_of("nodes", node, "bill"))

    def machines(self, *, limit: int = 50) -> tuple[MachineSummary, ...]:
        """Return the machines behind the nodes of all pools, those that lost most attempts lately first."""
        return self._http.read(tuple[MachineSummary, ...], "GET", "/v1/machines", params={"limit": str(limit)})

    def list(self) -> Iterator[NodeView]:
        """Yield the nodes."""
        for node in self._http.read(tuple[NodeView, ...], "GET", "/v1/nodes"):
            yield node


class PoolCalls(Calls):
    """Pools of rented nodes. All of it needs an operator's key."""

    def add(self, name: str, driver: str, wish: Mapping[str, Any], *, key: str = "") -> PoolView:
        """Make a pool, once its provider has answered. `wish` has the fields of the request that are not to be its defaults.

        `key` makes a retry safe after a lost answer.
        """
        body, key = {"name": name, "driver": driver, **wish}, key or uuid4().hex
        return self._http.read(PoolView, "POST", "/v1/pools", body, key=key, timeout=PROVIDER_TIMEOUT)

    def get(self, name: str) -> PoolView:
        """Return a pool. Raise `NotFound`."""
        return self._http.read(PoolView, "GET", path_of("pools", name))

    def set(self, name: str, changes: Mapping[str, Any]) -> PoolView:
        """Change what is named; what is not stays."""
        return self._http.read(PoolView, "PATCH", path_of("pools", name), dict(changes), timeout=PROVIDER_TIMEOUT)

    def pause(self, name: str) -> PoolView:
        """Rent no more nodes for a pool, until it is resumed."""
        return self._http.read(PoolView, "POST", path_of("pools", name, "pause"))

    def resume(self, name: str) -> PoolView:
        """Let a paused pool rent nodes again."""
        return self._http.read(PoolView, "POST", path_of("pools", name, "resume"))

    def sync(self, name: str) -> PoolView:
        """Let the server look at the pool's provider now."""
        return self._http.read(PoolView, "POST", path_of("pools", name, "sync"))

    def remove(self, name: str, *, stop: bool = False) -> PoolView:
        """Begin to remove a pool. With `stop`, its nodes save and hand their jobs back instead of finishing them."""
        return self._http.read(PoolView, "DELETE", path_of("pools", name) + "?stop=true" * stop)

    def instances(self, name: str) -> Iterator[InstanceView]:
        """Yield the instances that the pool's provider lists now."""
        path = path_of("pools", name, "instances")
        for instance in self._http.read(tuple[InstanceView, ...], "GET", path, timeout=PROVIDER_TIMEOUT):
            yield instance

    def drivers(self) -> Iterator[DriverView]:
        """Yield the drivers that a pool may have, each with its settings."""
        for driver in self._http.read(tuple[DriverView, ...], "GET", "/v1/pool-drivers"):
            yield driver

    def list(self) -> Iterator[PoolView]:
        """Yield the pools."""
        for pool in self._http.read(tuple[PoolView, ...], "GET", "/v1/pools"):
            yield pool


class QueueCalls(Calls):
    """The jobs that wait."""

    def get(self, *, limit: int = 50, after: int = 0) -> QueueView:
        """Return who waits, in the order in which nodes would take the jobs, why, and what would help: all in groups, and a page of at
        most `limit` jobs (200 at most) after `after` others. For the next page, ask again after the answer's `next`.
        """
        return self._http.read(QueueView, "GET", "/v1/queue", params={"limit": limit, "after": after})


class CostCalls(Calls):
    """What the project costs; with an operator's key that names no project, what all of them cost."""

    def get(
        self,
        by: CostKey = "day",
        *,
        since: str = "",
        until: str = "",
        zone: str = "UTC",
        limit: int = 200,
        forecast: bool = False,
    ) -> CostsView:
        """Return what the time from `since` until `until` cost, in rows by day, pool, job, cause, project, node, user or GPU, each with its
        causes; with `forecast`, also what the current day and month will have cost.

        Times are written as RFC 3339 has them; days are those of `zone`, an IANA name. At most `limit` rows are listed, those that cost
        most, and the others are one row. Raise `BadInput` for a zone that does not exist, and for more than 1,000 days.
        """
        span = {name: value for name, value in (("since", since), ("until", until)) if value}
        params = {"by": by, "zone": zone, "limit": limit} | span | ({"forecast": "true"} if forecast else {})
        return self._http.read(CostsView, "GET", "/v1/costs", params=params, timeout=REPORT_TIMEOUT)

    def thresholds(self) -> tuple[ThresholdView, ...]:
        """Return the thresholds of the project; with an operator's key that names no project, all, those of the whole service too."""
        path = "/v1/costs/thresholds"
        return self._http.read(tuple[ThresholdView, ...], "GET", path, timeout=REPORT_TIMEOUT)

    def set_threshold(
        self,
        usd: float,
        per: CostSpan,
        *,
        project: str = "",
        pool: str = "",
        percents: tuple[int, ...] = PERCENTS,
        forecast: bool = True,
        zone: str = "UTC",
        notify: str = "",
    ) -> ThresholdView:
        """Set what a project (empty: everything) may cost on nodes of a pool (empty: of all) each day or month before the endpoints of the
        project `notify` (default: `project`) get a notice: when `percents` of it are spent, and with `forecast` when more is expected.

        It replaces the threshold of the same project, pool and time. It stops nothing. Needs an operator's key. Raise `BadInput` for a
        zone that does not exist and without `project` and `notify`, `NotFound` for an unknown project or pool.
        """
        body = {"usd": usd, "per": per, "project": project, "pool": pool, "percents": percents, "forecast": forecast}
        body |= {"zone": zone, "notify": notify}
        return self._http.read(ThresholdView, "PUT", "/v1/costs/thresholds", body, timeout=REPORT_TIMEOUT)

    def remove_threshold(self, threshold: str) -> None:
        """Remove a threshold, given its id. Needs an operator's key. Repeating this changes nothing."""
        self._http.ask("DELETE", path_of("costs", "thresholds", threshold))

    def budgets(self) -> BudgetsView:
        """Return the budgets of the project and of its experiments that have not ended."""
        return self._http.read(BudgetsView, "GET", "/v1/budgets")

    def fleet(self) -> FleetView:
        """Return what the nodes of each pool cost an hour now, and of it what is idle or starts. Needs an operator's key."""
        return self._http.read(FleetView, "GET", "/v1/fleet")
