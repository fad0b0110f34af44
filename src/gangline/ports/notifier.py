"""Notify another service of what happens."""

from collections.abc import Mapping
from typing import Any, Protocol


class Notifier(Protocol):
    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        """Deliver this soon, in the background, with retries for as long as this process lives."""
        ...

    def close(self, seconds: float) -> int:
        """Wait at most this long for pending deliveries; return how many are left."""
        ...
