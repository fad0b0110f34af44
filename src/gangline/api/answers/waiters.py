"""Wake many streams that wait for the same news."""

import asyncio
from contextlib import suppress

WOKEN_AT_ONCE = 25
"""The number of streams that are woken before the event loop looks for requests again: a send takes it some 50 us."""
KEEP_ALIVE_S = 15.0


class Waiters:
    """The streams that wait for news of one thing."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def woken(self) -> bool:
        """Wait for news. Return False if there was none for `KEEP_ALIVE_S`."""
        news = asyncio.get_running_loop().create_future()
        self._waiting.append(news)
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await news
        except TimeoutError:
            return False
        finally:
            with suppress(ValueError):  # who was woken is in the list no more
                self._waiting.remove(news)
        return True

    async def wake(self) -> None:
        """Wake who waits, some at a time: what a heartbeat sends is read between them."""
        waiting, self._waiting = self._waiting, []
        for begin in range(0, len(waiting), WOKEN_AT_ONCE):
            _wake(waiting[begin : begin + WOKEN_AT_ONCE])
            await asyncio.sleep(0)

    def wake_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        _wake(waiting)


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for news in waiting:
        if not news.done():
            news.set_result(None)
