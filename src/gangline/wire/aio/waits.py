"""What differs between the two clients: how they pause, leave work to a thread, do several things at once, and stop in time.

The synchronous client has a file of the same functions, the only one there that is written by hand.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from time import monotonic
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread
import httpx

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


async def async_sleep(seconds: float) -> None:
    await anyio.sleep(seconds)


async def async_in_thread(function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
    """Call what blocks, such as reading a file, off the event loop. A canceled call is waited for, so keep each one short."""
    return await anyio.to_thread.run_sync(lambda: function(*args, **named))


async def async_for_each(function: Callable[[T], Awaitable[R]], items: Sequence[T], at_once: int) -> list[R]:
    """Return the result for each item, in order, at most `at_once` of them at a time. The first error ends the others."""
    results: dict[int, R] = {}
    remaining = iter(enumerate(items))

    async def work() -> None:
        for number, item in remaining:
            results[number] = await function(item)

    try:
        async with anyio.create_task_group() as group:
            for _ in range(min(at_once, len(items))):
                group.start_soon(work)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [results[number] for number in range(len(items))]


async def async_chunks_until(answer: httpx.Response, until_s: float | None) -> AsyncGenerator[bytes]:
    """Yield what arrives until a moment of the monotonic clock; None: until the answer ends."""
    chunks = answer.aiter_bytes()
    while True:
        found: bytes | None = None
        with anyio.move_on_after(None if until_s is None else until_s - monotonic()):
            found = await anext(chunks, None)
        if found is None:
            return
        yield found
