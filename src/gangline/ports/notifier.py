"""Telling somebody elsewhere what happens."""

from collections.abc import Mapping
from typing import Any, Protocol


class Notifier(Protocol):
    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        """Soon, in the background, tried again for as long as this process lives."""
        ...

    def close(self, seconds: float) -> int:
        """Wait at most so long for what was not delivered yet; how much was not."""
        ...
