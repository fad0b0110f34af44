"""Pools that operators make: their terms, which of a provider's offers these admit, and what the API says of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

from gangline.core.events import Described, markdown_list

POOL_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
PoolState = Literal["active", "paused", "removing"]
POOL_STATES: Mapping[str, str] = {
    "active": "nodes are rented for it",
    "paused": "no further node is rented; those that are here work until they are idle, and are given back",
    "removing": "its nodes finish what they have and are given back; then it is gone",
}
assert set(POOL_STATES) == set(get_args(PoolState)), "every state says what it means"


def is_pool_name(name: str) -> bool:
    """Return whether this may be a pool's name: up to 40 lower-case letters, digits and hyphens, beginning with a letter."""
    return bool(POOL_NAME.fullmatch(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTerms:
    """What a pool may rent. `offers` are patterns of offers' ids, such as `rtx4090*`; without any, all may be rented.

    `trust` is that of its nodes; None for what the driver says of each.
    """

    offers: tuple[str, ...] = ()
    price_max_micro_usd_per_hour: int | None = None
    trust: int | None = None


def excluded(terms: PoolTerms, *, offer: str, price_micro_usd_per_hour: int, price_known: bool) -> str:
    """Return why a pool may not rent this offer; empty if it may."""
    if terms.offers and not any(fnmatchcase(offer.lower(), pattern.lower()) for pattern in terms.offers):
        return f"it is none of the pool's offers ({', '.join(terms.offers)})"
    ceiling = terms.price_max_micro_usd_per_hour
    if ceiling is None:
        return ""
    if not price_known:
        return f"its price is not known, and the pool pays at most ${ceiling / 1e6:g} an hour"
    if price_micro_usd_per_hour > ceiling:
        return f"it costs ${price_micro_usd_per_hour / 1e6:g} an hour, and the pool pays at most ${ceiling / 1e6:g}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferView:
    """A machine type that the provider offered at the last look. `excluded` says why it is not rented, else it is empty. The price is not
    older than `priced_ms` (None: it was the price at that look)."""

    id: str
    gpu: str
    gpu_memory_gb: float
    slots: int
    trust: int
    price_usd_per_hour: float
    price_known: bool = True
    excluded: str = ""
    priced_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool. `nodes` are those that are rented now. `because` says why nothing is rented, or is empty; `seen_ms` is when its provider
    answered last. `refused` is what the provider said when it refused a node last, at `refused_ms`. A pool that a server makes from its own
    settings is not `editable`."""

    name: str
    driver: str
    provider: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    secret: str = ""
    nodes: int
    nodes_min: int
    nodes_max: int
    offers: tuple[str, ...] = ()
    price_max_usd_per_hour: float | None = None
    trust: int | None = None
    state: Annotated[PoolState, Described(f"Whether nodes are rented:\n\n{markdown_list(POOL_STATES)}", POOL_STATES)]
    because: str = ""
    seen_ms: int | None = None
    refused: str = ""
    refused_ms: int | None = None
    offered: tuple[OfferView, ...] = ()
    editable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance as the pool's provider lists it now. `rental` is the name that it was rented by, the id of its first node. It is billed
    until `billed_to_ms`, null while it runs; `ended` says why it ended, `progress` how far its start is."""

    id: str
    rental: str
    place: str
    billed_from_ms: int | None
    billed_to_ms: int | None
    ended: str
    progress: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSetting:
    """A setting of a driver: its name, what it means, and whether a pool must say it."""

    name: str
    meaning: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverView:
    """A driver of this server: what it rents, whether it needs a secret, the settings of its pools, and those of a section
    [providers.NAME] in the server's own settings."""

    name: str
    rents: str
    needs_secret: bool
    settings: tuple[DriverSetting, ...] = ()
    provider: tuple[DriverSetting, ...] = ()
