"""A pool driver: the code for one provider of nodes. Every call may raise `Unreachable`, and may have happened all the same."""

from dataclasses import dataclass
from typing import Protocol

from gangline.core.errors import GanglineError


class NoCapacity(GanglineError):
    """The provider has nothing of this offer now."""

    code = "no-capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What can be rented now. `gpu` is empty where there is none. The price says nothing where it is not known."""

    id: str
    gpu: str = ""
    gpu_memory_gb: float = 0
    slots: int = 1
    trust: int = 0
    price_micro_usd_per_hour: int = 0
    price_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A node as the provider sees it. `name` is the one that `start` gave. Billed from `billed_from_ms` (None: not yet)
    to `billed_to_ms` (None: still); one that has ended stays in the list long enough to be seen. `ended`: why, as far as is known."""

    id: str
    name: str
    billed_from_ms: int | None
    billed_to_ms: int | None
    ended: str = ""


class Pool(Protocol):
    def offers(self) -> list[Offer]: ...

    def start(self, offer: str, name: str) -> None:
        """Rent a node that will run a worker for `name`. Raises `NoCapacity`. The list will tell whether it came to be."""
        ...

    def stop(self, instance: str) -> None:
        """If it is gone already, so much the better; you will be called again until the list says so."""
        ...

    def list(self) -> list[Instance]:
        """All instances of this pool, and those that ended of late."""
        ...
