"""Screens that nobody follows any more, for a while: who comes back to a window gets what was missed, and keeps what is there."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

LEFT_S = 600.0
LEFT_MAX = 50
Screen = TypeVar("Screen")


class LeftScreens(Generic[Screen]):
    """The last `LEFT_MAX` screens that were left by all, each for `LEFT_S`."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Screen, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, name: Hashable, screen: Screen) -> None:
        if len(self._kept) >= LEFT_MAX:
            self.take(next(iter(self._kept)))
        self._kept[name] = screen, asyncio.get_running_loop().call_later(LEFT_S, self.take, name)

    def take(self, name: Hashable) -> Screen | None:
        """Return the screen of this name, which is not kept any more; None if there is none."""
        if name not in self._kept:
            return None
        screen, timer = self._kept.pop(name)
        timer.cancel()
        return screen
