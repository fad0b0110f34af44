"""A pool driver: the code for one provider of nodes. Every call may raise `Unreachable`, and may have taken effect all the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from gangline.core.errors import GanglineError
from gangline.core.fleet.pools import DriverView


class NoCapacity(GanglineError):
    """The provider has no capacity for this offer now."""

    code = "no-capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine type that can be rented now. `gpu` is empty if it has none. The price means nothing unless `price_known`. It is not older
    than `priced_ms`, for a provider whose prices are those of a catalog (None: it is the price now)."""

    id: str
    gpu: str = ""
    gpu_memory_gb: float = 0
    slots: int = 1
    trust: int = 0
    price_micro_usd_per_hour: int = 0
    price_known: bool = True
    priced_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """What the worker of a rented node needs to join. The provider's object is named `name`, and a second request with it rents nothing.

    The worker joins the server at `server` with `token`, which opens the pool to this rental alone, for as long as it lives.
    """

    name: str
    server: str
    token: str = field(repr=False)

    def environment(self) -> dict[str, str]:
        """Return the variables that `gangline worker` reads."""
        return {"GANGLINE_SERVER": self.server, "GANGLINE_TOKEN": self.token, "GANGLINE_NODE": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A rented machine as the provider lists it. `name` is the one that `start` was given.

    It is billed from `billed_from_ms` (None: not yet) to `billed_to_ms` (None: still running), except in the spans `unbilled`, each from
    when to when. One that has ended stays in the list long enough to be noticed. `ended` says why it ended, as far as is known.

    `place` identifies the machine that it is on, for a provider that moves instances by itself: another place is another machine under the
    same name. It is empty while it has none, and always for a provider that moves nothing. `moved` says why it left its last place.
    `machine` is the id of the machine at this place, for a driver `WithIdentity`.
    `progress` says for people how far its start is.
    """

    id: str
    name: str
    billed_from_ms: int | None
    billed_to_ms: int | None
    ended: str = ""
    place: str = ""
    moved: str = ""
    progress: str = ""
    unbilled: tuple[tuple[int, int], ...] = ()
    machine: str = ""


class Pool(Protocol):
    def offers(self) -> list[Offer]: ...

    def start(self, offer: str, rental: Rental) -> None:
        """Rent a node that will run a worker for the rental. Raise `NoCapacity`. `list` will show whether it was created."""
        ...

    def stop(self, instance: str) -> None:
        """Stop an instance. It is no error if it is gone; you will be called again until the list shows that it has ended."""
        ...

    def list(self) -> list[Instance]:
        """Return all instances of this pool, and those that ended recently."""
        ...


@runtime_checkable
class WithLogs(Protocol):
    """A driver that can fetch what an instance printed."""

    def logs(self, instance: str) -> str:
        """Return the last lines that the instance printed, for people: why did it never join?"""
        ...


@runtime_checkable
class WithReallocation(Protocol):
    """A driver whose provider can move an instance to another machine on request."""

    def reallocate(self, instance: str, because: str) -> None:
        """Ask for another machine for this instance: its list will show a new place."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdentity:
    """A machine, by its provider's id, and the instance that runs on it."""

    machine: str
    instance: str


@runtime_checkable
class WithIdentity(Protocol):
    """A driver whose provider signs tokens that prove on which machine a node is."""

    @property
    def demands_identity(self) -> bool:
        """Return whether each node of this pool must have such a token to join."""
        ...

    def identify(self, token: str) -> MachineIdentity:
        """Return what a token proves, and ask nobody: a worker waits for the answer. Raise `Denied` if it proves nothing, and `Unreachable`
        while it cannot be told: then you are called again after `learn_to_identify`."""
        ...

    def learn_to_identify(self) -> None:
        """Fetch what `identify` needs, such as the provider's public keys."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOrder:
    """What a driver is opened with: the row's words. `provider` names a section of this server's settings, `secret` one of its secrets.
    `id` is no other pool's, on any server; it is empty for a pool that is not made yet."""

    name: str
    id: str = ""
    driver: str
    provider: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    secret: str = ""


class PoolDrivers(Protocol):
    """The drivers of this server."""

    def list(self) -> list[DriverView]: ...

    def open(self, order: PoolOrder) -> Pool:
        """Make the driver of a pool; the provider is not asked. Raise `BadInput` for what the order says wrong, and `UserError` for what
        this server lacks."""
        ...
