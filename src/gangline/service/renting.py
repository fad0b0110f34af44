"""The pools of a server: those of its own settings, and those whose rows all servers of a database share."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gangline.core.errors import GanglineError
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.fleet.pools import PoolTerms
from gangline.ports.pool import MachineIdentity, Pool, PoolDrivers, PoolOrder, Rental
from gangline.ports.store import Row
from gangline.service.deployment import RentedPool
from gangline.service.driving import Driving, Look, RefusedStart

NO_NODES = (0, 0)


@dataclass(frozen=True, slots=True)
class Unopened:
    """The driving of a pool whose driver this server cannot open: each look says why."""

    because: str
    driver: Pool | None = None
    has_news: bool = False

    def look(self, now_ms: int) -> Look | None:
        raise GanglineError(self.because)

    def start(self, offer: str, rental: Rental) -> None: ...

    def stop(self, instance: str) -> None: ...

    def reallocate(self, node: str, instance: str, because: str) -> None: ...

    def identify(self, token: str) -> MachineIdentity:
        raise GanglineError(self.because)

    def refusals(self) -> list[RefusedStart]:
        return []

    def close(self) -> None: ...


class Renting(Mapping[str, RentedPool]):
    """All pools by name. `refresh` brings those of rows up to date; a driver stays open for as long as what opened it stays the same.
    `drive` makes its driving, given the pool's name.
    """

    def __init__(
        self, own: Mapping[str, RentedPool], drivers: PoolDrivers, drive: Callable[[str, Pool], Driving]
    ) -> None:
        self._own = dict(own)
        self._drivers = drivers
        self._drive = drive
        self._opened: dict[PoolKey, Driving] = {}
        self._pools: dict[str, RentedPool] = dict(own)

    def __getitem__(self, name: str) -> RentedPool:
        return self._pools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def __len__(self) -> int:
        return len(self._pools)

    def refresh(self, rows: Sequence[Row]) -> None:
        """Make the pools those of the settings and of these rows. A name of the settings is never a row's."""
        keys = {row["name"]: _key(row) for row in rows if row["name"] not in self._own}
        for key in [key for key in self._opened if key not in keys.values()]:
            self._opened.pop(key).close()
        self._pools = self._own | {
            row["name"]: self._pool(row, keys[row["name"]]) for row in rows if row["name"] in keys
        }

    def _pool(self, row: Row, key: "PoolKey") -> RentedPool:
        driving = self._opened.get(key)
        if driving is None or isinstance(driving, Unopened):
            driving = self._opened[key] = self._open(row)
        least, most = (row["nodes_min"], row["nodes_max"]) if row["state"] == "active" else NO_NODES
        limits = PoolLimits(name=row["name"], nodes_min=least, nodes_max=most)
        return RentedPool(limits, driving, terms=terms_of_row(row), state=row["state"])

    def _open(self, row: Row) -> Driving:
        try:
            driver = self._drivers.open(order_of(row))
        except GanglineError as error:
            return Unopened(f"the server whose turn it is cannot ask it: {error.message}")
        return self._drive(row["name"], driver)


PoolKey = tuple[str, str, str, str, str, str]


def _key(row: Row) -> PoolKey:
    return row["name"], row["id"], row["driver"], row["provider"], row["settings"], row["secret"]


def order_of(row: Row) -> PoolOrder:
    known = {name: row[name] for name in ("name", "id", "driver", "provider", "secret")}
    return PoolOrder(**known, settings=json.loads(row["settings"]))


def terms_of_row(row: Row) -> PoolTerms:
    offers = tuple(json.loads(row["offers"]))
    return PoolTerms(
        offers=offers, price_max_micro_usd_per_hour=row["price_max_micro_usd_per_hour"], trust=row["trust"]
    )
