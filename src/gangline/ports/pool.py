"""A pool driver: the code for one provider of nodes. Every call may raise `Unreachable`, and may have taken effect all the same."""

from dataclasses import dataclass
from typing import Protocol

from gangline.core.errors import GanglineError


class NoCapacity(GanglineError):
    """The provider has no capacity for this offer now."""

    code = "no-capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine type that can be rented now. `gpu` is empty if it has none. The price means nothing unless `price_known`."""

    id: str
    gpu: str = ""
    gpu_memory_gb: float = 0
    slots: int = 1
    trust: int = 0
    price_micro_usd_per_hour: int = 0
    price_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A rented machine as the provider lists it. `name` is the one that `start` was given.

    It is billed from `billed_from_ms` (None: not yet) to `billed_to_ms` (None: still running). One that has ended stays in the list long
    enough to be noticed. `ended` says why it ended, as far as is known.
    """

    id: str
    name: str
    billed_from_ms: int | None
    billed_to_ms: int | None
    ended: str = ""


class Pool(Protocol):
    def offers(self) -> list[Offer]: ...

    def start(self, offer: str, name: str) -> None:
        """Rent a node that will run a worker for `name`. Raise `NoCapacity`. `list` will show whether it was created."""
        ...

    def stop(self, instance: str) -> None:
        """Stop an instance. It is no error if it is gone; you will be called again until the list shows that it has ended."""
        ...

    def list(self) -> list[Instance]:
        """Return all instances of this pool, and those that ended recently."""
        ...
