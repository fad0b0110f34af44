"""Follow a stream of server-sent events until its end, across interruptions."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any

from gangline.core.errors import Unreachable
from gangline.core.jobs.retry import retry_s
from gangline.wire.aio.http import AsyncHttp
from gangline.wire.aio.waits import async_chunks_until, async_sleep
from gangline.wire.stream import (
    END,
    MessageParser,
    StreamMessage,
    Waiting,
    moment_after,
    parse_message,
    seconds_left,
    stream_timeout,
)


async def async_follow(
    http: AsyncHttp,
    path: str,
    after: str,
    kinds: Mapping[str, Any],
    *,
    timeout_s: float | None = None,
    waiting: Waiting | None = None,
    reached: bool = False,
) -> AsyncGenerator[Any]:
    """Yield every message once, as a value of its kind, up to the end of the stream or of the time limit.

    Where the connection is lost, connect again and resume after the last message; call `waiting` each time. Raise the error of a problem,
    and `Unreachable` if the first connection fails, unless the caller has `reached` the server just before.
    """
    following = _messages(http, path, after, moment_after(timeout_s), waiting, began=reached)
    async with aclosing(following) as messages:
        async for message in messages:
            yield parse_message(message, kinds)


async def _messages(
    http: AsyncHttp, path: str, after: str, until_s: float | None, waiting: Waiting | None, *, began: bool
) -> AsyncGenerator[StreamMessage]:
    tries, rng = 0, Random()  # noqa: S311 - for jitter
    while seconds_left(until_s, 1.0):
        try:
            async with http.stream(path, after, stream_timeout(until_s)) as answer:
                tries, began, parser = 0, True, MessageParser()
                async with aclosing(async_chunks_until(answer, until_s)) as chunks:
                    async for chunk in chunks:
                        for message in parser.feed(chunk):
                            after = message.id or after
                            yield message
                            if message.event == END:
                                return
        except Unreachable as error:
            if not seconds_left(until_s, 1.0):  # that is why
                return
            if not began:
                raise
            if waiting:
                waiting(error)
        await async_sleep(seconds_left(until_s, retry_s(tries, rng)))
        tries += 1
