"""Routes for pools and their drivers, for operators. What waits for a provider has a lane of its own."""

from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen
from fastapi import APIRouter, Query

from gangline.api.answers.repeats import EVERY_PROJECT, Repeat
from gangline.api.lanes import ProviderRoute, UserRoute
from gangline.api.who import Now, Operator, ThisDeployment
from gangline.core.display import NAME_MAX, Label, is_printable
from gangline.core.errors import BadInput
from gangline.core.fleet.pools import DriverView, InstanceView, PoolView
from gangline.core.parsing import CheckedFirst
from gangline.core.policy import STRICT
from gangline.service.fleet import pools
from gangline.service.fleet.pools import PoolWish

router = APIRouter(prefix="/v1", tags=["pools"], route_class=UserRoute)
of_providers = APIRouter(prefix="/v1", tags=["pools"], route_class=ProviderRoute)

NODES_OF_POOL_MAX = 100_000
PoolText = Annotated[Label, MaxLen(200)]
NodesOfPool = Annotated[int, Ge(0), Le(NODES_OF_POOL_MAX)]
Ceiling = Annotated[float, Ge(0), Le(1e6)] | None
OfferPatterns = Annotated[tuple[PoolText, ...], MaxLen(200)]
SettingValue = bool | int | float | PoolText
VALUES_MAX = 200


def _why_no_value(given: Any) -> str:
    """Return why this is no value of a driver's setting, or ''."""
    values = given if isinstance(given, list) else [given]
    if len(values) > VALUES_MAX:
        return f"has more than {VALUES_MAX} parts"
    if not all(isinstance(each, str | int | float) for each in values):
        return "must be a text, a number, true, false, or a list of these"
    if any(isinstance(each, float) and not isfinite(each) for each in values):
        return "must be a finite number"
    if any(isinstance(each, str) and not (is_printable(each) and len(each) <= NAME_MAX) for each in values):
        return f"has control characters, or more than {NAME_MAX} characters"
    return ""


AnyValue = Annotated[SettingValue | tuple[SettingValue, ...], CheckedFirst(_why_no_value)]
DriverSettings = Annotated[dict[PoolText, AnyValue], MaxLen(100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPool:
    """A pool to make. `provider` names a section of the servers' settings, `secret` a secret that they have; `offers` are patterns of
    those that may be rented, all of them by default, at `price_max_usd_per_hour` or less. Nodes have this `trust`, else
    what the driver says of each offer."""

    __pydantic_config__: ClassVar[Any] = STRICT  # a misspelt limit would be none
    name: PoolText
    driver: PoolText
    provider: PoolText = ""
    settings: DriverSettings | None = None
    secret: PoolText = ""
    nodes_min: NodesOfPool = 0
    nodes_max: NodesOfPool = 1
    offers: OfferPatterns = ()
    price_max_usd_per_hour: Ceiling = None
    trust: Annotated[int, Ge(0), Le(9)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """What to change of a pool; a field that is absent or null stays. `any_price` takes its ceiling away."""

    __pydantic_config__: ClassVar[Any] = STRICT
    settings: DriverSettings | None = None
    secret: PoolText | None = None
    nodes_min: NodesOfPool | None = None
    nodes_max: NodesOfPool | None = None
    offers: OfferPatterns | None = None
    price_max_usd_per_hour: Ceiling = None
    any_price: bool = False
    trust: Annotated[int, Ge(0), Le(9)] | None = None


@router.get("/pools")
def list_pools(deployment: ThisDeployment, _: Operator) -> list[PoolView]:
    """List the pools, and what their providers offer. Needs an operator's key."""
    return pools.pool_views(deployment)


@of_providers.post("/pools", status_code=201)
def add_pool(deployment: ThisDeployment, now: Now, _: Operator, wanted: WantedPool, repeat: Repeat) -> PoolView:
    """Make a pool, once its provider has answered. Needs an operator's key."""
    known = {name: getattr(wanted, name) for name in PoolWish.__slots__ if name != "settings"}
    wish, request = PoolWish(**known, settings=wanted.settings or {}), repeat.within(EVERY_PROJECT)
    with repeat.alone(EVERY_PROJECT):
        return pools.make_pool(deployment, wanted.name, wish, now, request)


@router.get("/pools/{pool}")
def show_pool(deployment: ThisDeployment, _: Operator, pool: str) -> PoolView:
    """Show a pool. Needs an operator's key."""
    return pools.pool_view(deployment, pool)


@of_providers.patch("/pools/{pool}")
def change_pool(deployment: ThisDeployment, now: Now, _: Operator, pool: str, change: PoolChange) -> PoolView:
    """Change a pool, once its provider has answered where its settings, secret, offers or price change. Its nodes stay. Needs an operator's
    key."""
    given = {name: getattr(change, name) for name in PoolChange.__slots__ if name != "any_price"}
    changes = {name: value for name, value in given.items() if value is not None}
    if change.any_price and change.price_max_usd_per_hour is not None:
        raise BadInput("any price and a highest price contradict each other", hint="name one of the two")
    if change.any_price:
        changes["price_max_usd_per_hour"] = None
    return pools.set_pool(deployment, pool, changes, now)


@router.post("/pools/{pool}/pause")
def pause_pool(deployment: ThisDeployment, now: Now, _: Operator, pool: str) -> PoolView:
    """Rent no further node for a pool. Those that are here work until they are idle. Needs an operator's key."""
    return pools.set_pool_state(deployment, pool, "paused", now)


@router.post("/pools/{pool}/resume")
def resume_pool(deployment: ThisDeployment, now: Now, _: Operator, pool: str) -> PoolView:
    """Rent nodes for a pool again. Needs an operator's key."""
    return pools.set_pool_state(deployment, pool, "active", now)


@router.post("/pools/{pool}/sync")
def sync_pool(deployment: ThisDeployment, now: Now, _: Operator, pool: str) -> PoolView:
    """Let the server look at the pool's provider now. Needs an operator's key."""
    return pools.ask_now(deployment, pool, now)


@of_providers.get("/pools/{pool}/instances")
def list_instances(deployment: ThisDeployment, _: Operator, pool: str) -> list[InstanceView]:
    """Ask the pool's provider which instances it has now, and list them. Needs an operator's key."""
    return pools.instance_views(deployment, pool)


@router.delete("/pools/{pool}")
def remove_pool(
    deployment: ThisDeployment, now: Now, _: Operator, pool: str, stop: Annotated[bool, Query()] = False
) -> PoolView:
    """Remove a pool: its nodes finish what they have, or save and hand it back if `stop` is true, and are given back; then it is gone.
    Needs an operator's key.
    """
    return pools.set_pool_state(deployment, pool, "removing", now, stop=stop)


@router.get("/pool-drivers")
def list_drivers(deployment: ThisDeployment, _: Operator) -> list[DriverView]:
    """List the drivers of this server, the settings of their pools and of their providers. Needs an operator's key."""
    return pools.driver_views(deployment)
