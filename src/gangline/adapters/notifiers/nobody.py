"""A notifier that reports nothing."""

from collections.abc import Mapping
from typing import Any


class Nobody:
    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        pass

    def close(self, seconds: float) -> int:
        return 0
