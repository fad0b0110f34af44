"""The client's requests about nodes and pools."""

from collections.abc import Mapping
from typing import Any

from gangline.core.fleet.pools import DriverView, PoolView
from gangline.core.views import NodeView
from gangline.wire.http import Http, parse_answer, path_of


class FleetCalls:
    """What a client asks about the fleet. All but `nodes` needs an operator's key."""

    _http: Http

    def nodes(self) -> list[NodeView]:
        return parse_answer(list[NodeView], self._http.ask("GET", "/v1/nodes"))

    def pools(self) -> list[PoolView]:
        return parse_answer(list[PoolView], self._http.ask("GET", "/v1/pools"))

    def pool(self, name: str) -> PoolView:
        return parse_answer(PoolView, self._http.ask("GET", path_of("pools", name)))

    def add_pool(self, name: str, driver: str, wish: Mapping[str, Any]) -> PoolView:
        """Make a pool, once its provider has answered. `wish` has the fields of the request that are not to be its defaults."""
        return parse_answer(PoolView, self._http.ask("POST", "/v1/pools", {"name": name, "driver": driver, **wish}))

    def set_pool(self, name: str, changes: Mapping[str, Any]) -> PoolView:
        """Change what is named; what is not stays."""
        return parse_answer(PoolView, self._http.ask("PATCH", path_of("pools", name), dict(changes)))

    def pause_pool(self, name: str) -> PoolView:
        return parse_answer(PoolView, self._http.ask("POST", path_of("pools", name, "pause")))

    def resume_pool(self, name: str) -> PoolView:
        return parse_answer(PoolView, self._http.ask("POST", path_of("pools", name, "resume")))

    def sync_pool(self, name: str) -> PoolView:
        """Let the server look at the pool's provider now."""
        return parse_answer(PoolView, self._http.ask("POST", path_of("pools", name, "sync")))

    def remove_pool(self, name: str, *, stop: bool = False) -> PoolView:
        """Begin to remove a pool. With `stop`, its nodes save and hand their jobs back instead of finishing them."""
        path = path_of("pools", name) + "?stop=true" * stop
        return parse_answer(PoolView, self._http.ask("DELETE", path))

    def pool_drivers(self) -> list[DriverView]:
        return parse_answer(list[DriverView], self._http.ask("GET", "/v1/pool-drivers"))
