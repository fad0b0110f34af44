"""A provider in memory, whose pools a server opens as it opens those of any driver. It answers at once, as its till says."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Annotated, Any, ClassVar

from gangline.compose.pools import DriverEntry, Drivers, OpenedPool
from gangline.core.errors import GanglineError
from gangline.core.policy import STRICT
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental

SMALL = Offer(id="small", gpu="RTX 3060", gpu_memory_gb=12, price_micro_usd_per_hour=100_000)
LARGE = Offer(id="large", gpu="H100", gpu_memory_gb=80, price_micro_usd_per_hour=2_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopSettings:
    """What a pool of the shop may say."""

    __pydantic_config__: ClassVar[Any] = STRICT
    town: Annotated[str, "The shop is in this town."] = ""
    shelves: Annotated[tuple[str, ...], "It looks on these shelves."] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopAddress:
    """What a server's settings may say of the shop."""

    __pydantic_config__: ClassVar[Any] = STRICT
    endpoint: Annotated[str, "The shop has this address."] = ""


@dataclass(slots=True)
class Till:
    """What all drivers of the shop share: its stock, what it was asked for, and what it answers."""

    offers: list[Offer] = field(default_factory=lambda: [SMALL, LARGE])
    instances: dict[str, Instance] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    opened: list[OpenedPool] = field(default_factory=list)
    sold_out: set[str] = field(default_factory=set)
    before_refusing: Callable[[], object] = lambda: None
    never_stops: bool = False
    refuses: GanglineError | None = None
    refuses_offers: GanglineError | None = None
    refuses_list: GanglineError | None = None
    now_ms: int = 1
    numbers: Any = field(default_factory=count)


class ShopPool:
    """The `pool` port: an instance is there, and billed, as soon as it is asked for."""

    def __init__(self, till: Till) -> None:
        self._till = till

    def offers(self) -> list[Offer]:
        self._answer()
        if self._till.refuses_offers:
            raise self._till.refuses_offers
        return list(self._till.offers)

    def start(self, offer: str, rental: Rental) -> None:
        self._answer()
        if offer in self._till.sold_out:
            self._till.before_refusing()
            raise NoCapacity(f"no {offer} is left")
        self._till.started.append(offer)
        instance = f"instance-{next(self._till.numbers)}"
        self._till.instances[instance] = Instance(
            id=instance, name=rental.name, billed_from_ms=self._till.now_ms, billed_to_ms=None
        )

    def stop(self, instance: str) -> None:
        self._answer()
        found = self._till.instances.get(instance)
        if found and found.billed_to_ms is None and not self._till.never_stops:
            self._till.instances[instance] = replace(found, billed_to_ms=self._till.now_ms)

    def list(self) -> list[Instance]:
        self._answer()
        if self._till.refuses_list:
            raise self._till.refuses_list
        return list(self._till.instances.values())

    def logs(self, instance: str) -> str:
        return f"{instance} is ready"

    def _answer(self) -> None:
        if self._till.refuses:
            raise self._till.refuses


def make_drivers(till: Till, **settings: Any) -> Drivers:
    """A registry with the shop, and with one that needs a secret and nodes that reach the server from elsewhere."""

    def make(opened: OpenedPool) -> ShopPool:
        till.opened.append(opened)
        return ShopPool(till)

    known: dict[str, Any] = {"settings": ShopSettings, "provider": ShopAddress}
    shop = DriverEntry(rents="machines of a shop", make=make, near=True, **known)
    entries = {"shop": shop, "far-shop": replace(shop, near=False, needs_secret=True)}
    return Drivers(entries, **({"providers": {}, "url": "http://127.0.0.1:1", "secrets": None} | settings))
