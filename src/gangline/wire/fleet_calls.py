"""The client's requests about nodes and pools."""

from collections.abc import Mapping
from typing import Any

from gangline.core.fleet.explained import JobOffers
from gangline.core.fleet.nodes import NodeBill, NodeDetail, NodeView
from gangline.core.fleet.pools import DriverView, InstanceView, PoolView
from gangline.wire.http import PROVIDER_TIMEOUT, Http, parse_answer, path_of


class FleetCalls:
    """What a client asks about the fleet. All but `nodes`, `node` and `job_offers` needs an operator's key."""

    _http: Http

    def nodes(self) -> list[NodeView]:
        return parse_answer(list[NodeView], self._http.ask("GET", "/v1/nodes"))

    def node(self, node: str) -> NodeDetail:
        return parse_answer(NodeDetail, self._http.ask("GET", path_of("nodes", node)))

    def drain_node(self, node: str, *, stop: bool = False) -> NodeDetail:
        """Give a node no more work. With `stop`, its jobs are saved and handed back."""
        path = path_of("nodes", node, "drain") + "?stop=true" * stop
        return parse_answer(NodeDetail, self._http.ask("POST", path))

    def quarantine_node(self, node: str, *, lasts_s: float, stop: bool = False) -> NodeDetail:
        """Give the node's machine no work for so long."""
        path = path_of("nodes", node, "quarantine") + f"?lasts_s={lasts_s}" + "&stop=true" * stop
        return parse_answer(NodeDetail, self._http.ask("POST", path))

    def release_node(self, node: str) -> NodeDetail:
        """Let a node work again that drains, is in quarantine or on trial."""
        return parse_answer(NodeDetail, self._http.ask("POST", path_of("nodes", node, "release")))

    def node_logs(self, node: str) -> str:
        """Return what a rented node printed last, as its provider has it."""
        return str(self._ask_provider("GET", path_of("nodes", node, "logs")).json()["text"])

    def node_bill(self, node: str) -> NodeBill:
        """Return what a rented node's time has cost so far, and for how long its provider bills it."""
        return parse_answer(NodeBill, self._http.ask("GET", path_of("nodes", node, "bill")))

    def job_offers(self, job: str) -> JobOffers:
        """Return the offers of all pools for a job, those first on which a step is expected to cost least."""
        return parse_answer(JobOffers, self._http.ask("GET", path_of("jobs", job, "offers")))

    def pools(self) -> list[PoolView]:
        return parse_answer(list[PoolView], self._http.ask("GET", "/v1/pools"))

    def pool(self, name: str) -> PoolView:
        return parse_answer(PoolView, self._http.ask("GET", path_of("pools", name)))

    def add_pool(self, name: str, driver: str, wish: Mapping[str, Any]) -> PoolView:
        """Make a pool, once its provider has answered. `wish` has the fields of the request that are not to be its defaults."""
        return parse_answer(PoolView, self._ask_provider("POST", "/v1/pools", {"name": name, "driver": driver, **wish}))

    def set_pool(self, name: str, changes: Mapping[str, Any]) -> PoolView:
        """Change what is named; what is not stays."""
        return parse_answer(PoolView, self._ask_provider("PATCH", path_of("pools", name), dict(changes)))

    def pause_pool(self, name: str) -> PoolView:
        return parse_answer(PoolView, self._http.ask("POST", path_of("pools", name, "pause")))

    def resume_pool(self, name: str) -> PoolView:
        return parse_answer(PoolView, self._http.ask("POST", path_of("pools", name, "resume")))

    def sync_pool(self, name: str) -> PoolView:
        """Let the server look at the pool's provider now."""
        return parse_answer(PoolView, self._http.ask("POST", path_of("pools", name, "sync")))

    def pool_instances(self, name: str) -> list[InstanceView]:
        """Ask the pool's provider which instances it has now."""
        return parse_answer(list[InstanceView], self._ask_provider("GET", path_of("pools", name, "instances")))

    def remove_pool(self, name: str, *, stop: bool = False) -> PoolView:
        """Begin to remove a pool. With `stop`, its nodes save and hand their jobs back instead of finishing them."""
        path = path_of("pools", name) + "?stop=true" * stop
        return parse_answer(PoolView, self._http.ask("DELETE", path))

    def pool_drivers(self) -> list[DriverView]:
        return parse_answer(list[DriverView], self._http.ask("GET", "/v1/pool-drivers"))

    def _ask_provider(self, method: str, path: str, body: Any = None) -> Any:
        """Ask what the server asks a provider for before it answers."""
        return self._http.ask(method, path, body, timeout=PROVIDER_TIMEOUT)
