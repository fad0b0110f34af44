"""Pools as operators make and change them. All servers of a database rent for them; the one that has its turn asks their providers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.errors import BadInput, Denied, NotFound, Unreachable
from gangline.core.fleet.pools import DriverView, InstanceView, OfferView, PoolTerms, PoolView, is_pool_name
from gangline.core.words import counted
from gangline.ports.pool import Instance, NoCapacity, Offer, Pool, PoolDrivers, WithLogs
from gangline.ports.store import Row, guard, write
from gangline.service.access.access import DEFAULT_POOL
from gangline.service.access.requests import KeyedRequest, made_before, recording
from gangline.service.attempts import TRIES_MAX, ask_to_stop
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.fleet.fleet import REMOVED
from gangline.service.fleet.terms import seen_of, trust_of, why_excluded
from gangline.service.renting import order_of, terms_of_row

NEED_NO_ANSWER = frozenset({"nodes_min", "nodes_max", "trust"})
"""What may be changed without the provider's word: also while it does not answer, a pool can be made to rent less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWish:
    """What an operator says of a pool. The price is in US dollars per hour; without it, any price is paid."""

    driver: str = ""
    provider: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    secret: str = ""
    nodes_min: int = 0
    nodes_max: int = 1
    offers: tuple[str, ...] = ()
    price_max_usd_per_hour: float | None = None
    trust: int | None = None

    def columns(self) -> dict[str, Any]:
        """Return what of it may be changed later, as columns of the store."""
        ceiling = self.price_max_usd_per_hour
        return {
            "settings": canonical_json(dict(self.settings)),
            "secret": self.secret,
            "nodes_min": self.nodes_min,
            "nodes_max": self.nodes_max,
            "offers": canonical_json(list(self.offers)),
            "price_max_micro_usd_per_hour": None if ceiling is None else round(ceiling * 1e6),
            "trust": self.trust,
        }


def make_pool(
    deployment: Deployment, name: str, wish: PoolWish, now_ms: int, request: KeyedRequest | None = None
) -> PoolView:
    """Make a pool, once its provider has answered with these settings. Raise `BadInput` for what is wrong, and if the name is taken."""
    earlier = made_before(deployment, request)
    if earlier:
        return pool_view(deployment, earlier)
    if not is_pool_name(name):
        raise BadInput(
            f"{name or 'an empty text'} cannot be the name of a pool",
            hint="it has up to 40 lower-case letters, digits and hyphens, and begins with a letter",
        )
    if name == DEFAULT_POOL or _is_own(deployment, name):
        raise BadInput(f"there is a pool {name} already, of the server's own", hint="choose another name")
    if deployment.store.load("pool", name=name):
        raise _taken(deployment, name)
    row = _row_of(name, deployment.new_id("pool"), wish)
    _check_limits(wish)
    _ask_provider(deployment, row)
    if not deployment.store.apply(guard("add_pool", **row, now=now_ms), *recording(request, name, now_ms)):
        raise _taken(deployment, name)
    return pool_view(deployment, name)


def _row_of(name: str, identity: str, wish: PoolWish) -> dict[str, Any]:
    return {"name": name, "id": identity, "driver": wish.driver, "provider": wish.provider, **wish.columns()}


def _taken(deployment: Deployment, name: str) -> BadInput:
    if any(row["state"] == "removing" for row in deployment.store.load("pool", name=name)):
        return BadInput(f"the pool {name} is being removed", hint="wait until it is gone, or choose another name")
    return BadInput(f"there is a pool {name} already", hint=f"`gangline pools set {name}` changes it")


def _check_limits(wish: PoolWish) -> None:
    if wish.nodes_min > wish.nodes_max:
        raise BadInput(
            f"a pool cannot have at least {counted(wish.nodes_min, 'node')} and at most {wish.nodes_max}",
            hint="the minimum is at most the maximum",
        )


def _ask_provider(deployment: Deployment, row: Row) -> list[Instance]:
    """Ask the provider for its offers and its list, so that a wrong key, project or class is said now and not in the log of tonight. Return
    the list."""
    terms = terms_of_row(row)
    with _asking():
        driver = _drivers(deployment).open(order_of(row))
        offers, instances = driver.offers(), driver.list()
    if offers and all(why_excluded(offer, terms) for offer in offers):
        at_any_price = replace(terms, price_max_micro_usd_per_hour=None)
        named = [offer for offer in offers if not why_excluded(offer, at_any_price)] or offers
        nearest = min(named, key=lambda offer: (not offer.price_known, offer.price_micro_usd_per_hour))
        what = f"none of the {len(offers)} offers" if len(offers) > 1 else "not the only offer"
        raise BadInput(
            f"the pool could rent {what}: {nearest.id}: {why_excluded(nearest, terms)}",
            hint="the provider offers "
            + ", ".join(each.id for each in offers[:10])
            + (" …" if len(offers) > 10 else ""),
        )
    return instances


@contextmanager
def _asking() -> Iterator[None]:
    """Say what a provider refuses as it concerns who asked this server: nothing is wrong with their own key."""
    try:
        yield
    except Denied as error:
        raise BadInput(error.message, hint=error.hint) from None
    except NoCapacity as error:
        raise Unreachable(error.message, hint=error.hint) from None


def set_pool(deployment: Deployment, name: str, changes: Mapping[str, Any], now_ms: int) -> PoolView:
    """Change what `changes` names of a pool's wish. Its nodes stay. Raise as `make_pool` does."""
    for _ in range(TRIES_MAX):
        row = _row(deployment, name)
        if row["state"] == "removing":
            raise BadInput(f"the pool {name} is being removed", hint="add another one")
        wish = replace(_wish_of(row), **changes)
        _check_limits(wish)
        if changes.keys() - NEED_NO_ANSWER:
            instances = _ask_provider(deployment, _row_of(name, row["id"], wish))
            if any(row[column] != wish.columns()[column] for column in ("settings", "secret")):
                _check_that_nodes_are_listed(deployment, name, instances)
        changed = guard("set_pool", name=name, version=row["version"], **wish.columns(), now=now_ms)
        if deployment.store.apply(changed):
            return pool_view(deployment, name)
    raise Unreachable(f"the pool {name} changed {TRIES_MAX} times meanwhile; try again")


def _check_that_nodes_are_listed(deployment: Deployment, name: str, instances: Sequence[Instance]) -> None:
    """Raise `BadInput` if the provider, asked with new settings, does not list each node of the pool: nobody would stop it any more."""
    listed = {instance.name for instance in instances if instance.billed_to_ms is None}
    for node in deployment.store.load("nodes_of_pool_here", pool=name):
        if node["rental"] not in listed:
            raise BadInput(
                f"with these settings the provider of {name} does not list its node {node['name']}, which would be billed on",
                hint=f"pause {name} until its nodes are gone, or add another pool",
            )


def set_pool_state(deployment: Deployment, name: str, state: str, now_ms: int, *, stop: bool = False) -> PoolView:
    """Pause, resume or begin to remove a pool. With `stop`, its nodes save and hand their jobs back instead of finishing them."""
    _row(deployment, name)
    if not deployment.store.apply(guard("set_pool_state", name=name, state=state, now=now_ms)) and state != "removing":
        raise BadInput(f"the pool {name} is being removed", hint="add another one")
    if stop:
        for lease in deployment.store.load("leases_of_pool", pool=name):
            ask_to_stop(deployment, lease, REMOVED, now_ms)
    return pool_view(deployment, name)


def ask_now(deployment: Deployment, name: str, now_ms: int) -> PoolView:
    """Let the server that has its turn look at the provider now."""
    _row(deployment, name)
    deployment.store.apply(write("look_at_pool", name=name, now=now_ms))
    return pool_view(deployment, name)


def pool_views(deployment: Deployment) -> list[PoolView]:
    rows = deployment.store.load("pools")
    own = [pool for name, pool in deployment.pools.items() if pool.terms is None and pool.limits.nodes_max]
    return [*(_own_view(deployment, pool) for pool in own), *(_view(deployment, row) for row in rows)]


def pool_view(deployment: Deployment, name: str) -> PoolView:
    if _is_own(deployment, name):
        return _own_view(deployment, deployment.pools[name])
    return _view(deployment, _row(deployment, name))


def driver_views(deployment: Deployment) -> list[DriverView]:
    return _drivers(deployment).list()


def instance_views(deployment: Deployment, name: str) -> list[InstanceView]:
    """Ask the provider which instances the pool has now. A driver that remembers nothing asks, so that only what is there is listed."""
    with _asking():
        instances = _driver_to_list(deployment, name).list()
    return [
        InstanceView(
            id=each.id,
            rental=each.name,
            place=each.place,
            billed_from_ms=each.billed_from_ms,
            billed_to_ms=each.billed_to_ms,
            ended=each.ended,
            progress=each.progress,
        )
        for each in instances
    ]


def _driver_to_list(deployment: Deployment, name: str) -> Pool:
    if not _is_own(deployment, name):
        return _drivers(deployment).open(order_of(_row(deployment, name)))
    driver = deployment.pools[name].driving.driver
    assert driver is not None, "the pools of the server's own settings are open"
    return driver


def node_logs(deployment: Deployment, node: str) -> str:
    """Return the last lines that a rented node printed, as its provider has them. Raise `NotFound`, or `BadInput` if none are kept."""
    rows = deployment.store.load("node", id=node)
    if not rows:
        raise NotFound(f"there is no node {node}", hint="`gangline nodes ls` lists them")
    pool = deployment.pools.get(rows[0]["pool"])
    driver = pool.driving.driver if pool else None
    if not rows[0]["instance"] or not isinstance(driver, WithLogs):
        raise BadInput(
            f"the provider of {rows[0]['name']} keeps nothing that it printed",
            hint="the log of a job is in `gangline logs`; the worker's own is where it runs",
        )
    with _asking():
        return driver.logs(rows[0]["instance"])


def _drivers(deployment: Deployment) -> PoolDrivers:
    if deployment.drivers is None:
        raise BadInput("this server rents no nodes", hint="it was made without drivers")
    return deployment.drivers


def _is_own(deployment: Deployment, name: str) -> bool:
    return name in deployment.pools and deployment.pools[name].terms is None


def _row(deployment: Deployment, name: str) -> Row:
    rows = deployment.store.load("pool", name=name)
    if rows:
        return rows[0]
    if _is_own(deployment, name):
        raise BadInput(
            f"the pool {name} belongs to the server's own settings", hint="change it there: `gangline settings show`"
        )
    raise NotFound(f"there is no pool {name}", hint="`gangline pools ls` lists them")


def _wish_of(row: Row) -> PoolWish:
    ceiling = row["price_max_micro_usd_per_hour"]
    known = {name: row[name] for name in ("driver", "provider", "secret", "nodes_min", "nodes_max", "trust")}
    return PoolWish(
        **known,
        settings=json.loads(row["settings"]),
        offers=tuple(json.loads(row["offers"])),
        price_max_usd_per_hour=None if ceiling is None else ceiling / 1e6,
    )


def _view(deployment: Deployment, row: Row) -> PoolView:
    wish, terms = asdict(_wish_of(row)), terms_of_row(row)
    offers, away = seen_of(row)
    nodes = deployment.store.load("rented_in_pool", pool=row["name"])[0]["nodes"]
    refused = deployment.store.load("last_refusal", pool=row["name"])
    return PoolView(
        name=row["name"],
        **wish,
        nodes=nodes,
        state=row["state"],
        because=_why_so(row, away, nodes),
        seen_ms=row["seen_ms"],
        refused=f"{refused[0]['offer']}: {refused[0]['because']}" if refused else "",
        refused_ms=refused[0]["since_ms"] if refused else None,
        offered=tuple(_offer_view(offer, terms) for offer in offers or ()),
    )


def _why_so(row: Row, away: str, nodes: int) -> str:
    if away:
        return f"its provider did not answer: {away}"
    if row["state"] == "removing" and not nodes:
        return "it is gone once its provider has shown that nothing of it is left"
    return "" if row["seen_ms"] else "it has not been asked yet"


def _own_view(deployment: Deployment, pool: RentedPool) -> PoolView:
    name, answer = pool.limits.name, deployment.recent.offers_of(pool.limits.name)
    return PoolView(
        name=name,
        driver="local",
        nodes=deployment.store.load("rented_in_pool", pool=name)[0]["nodes"],
        nodes_min=pool.limits.nodes_min,
        nodes_max=pool.limits.nodes_max,
        state=pool.state,
        because=f"its provider did not answer: {answer.away}" if answer and answer.away else "",
        offered=tuple(_offer_view(offer, None) for offer in (answer.offers if answer else None) or ()),
        editable=False,
    )


def _offer_view(offer: Offer, terms: PoolTerms | None) -> OfferView:
    return OfferView(
        id=offer.id,
        gpu=offer.gpu,
        gpu_memory_gb=offer.gpu_memory_gb,
        slots=offer.slots,
        trust=trust_of(offer, terms),
        price_usd_per_hour=offer.price_micro_usd_per_hour / 1e6,
        price_known=offer.price_known,
        excluded="" if terms is None else why_excluded(offer, terms),
        priced_ms=offer.priced_ms,
    )
