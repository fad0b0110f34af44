"""The driver of a pool whose simulation has ended."""

from gangline.core.errors import Unreachable
from gangline.ports.pool import Instance, Offer, Rental


class ClosedPool:
    """The `pool` port of a replay: all calls raise `Unreachable`. What the provider said before is in the store."""

    def offers(self) -> list[Offer]:
        raise _gone()

    def start(self, offer: str, rental: Rental) -> None:
        raise _gone()

    def stop(self, instance: str) -> None:
        raise _gone()

    def list(self) -> list[Instance]:
        raise _gone()


def _gone() -> Unreachable:
    return Unreachable("this is a replay: there is no provider to ask")
