"""JSON lines that are sent as they are made, in bounded memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

JSON_LINES = "application/jsonl"


class JsonLines(StreamingResponse):
    """An answer of lines. It does not listen to the client meanwhile: whoever makes the lines may still read the request."""

    def __init__(self, lines: AsyncIterator[bytes], headers: dict[str, str] | None = None) -> None:
        super().__init__(lines, media_type=JSON_LINES, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


async def made_ahead(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the same lines, made by a task of their own that never waits for their reader. Raise what making the first one raises.

    A client may send its whole request before it reads a line of the answer. If reading the request waited until the answer is read, each
    of the two would wait for the other.
    """
    ready: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()

    async def make() -> None:
        try:
            async for line in lines:
                ready.put_nowait(line)
        except BaseException as error:
            ready.put_nowait(error)
        else:
            ready.put_nowait(None)

    task = asyncio.create_task(make())
    first = await ready.get()
    if isinstance(first, BaseException):
        raise first
    return _told(first, ready, task)


async def _told(
    line: bytes | None, ready: asyncio.Queue[bytes | BaseException | None], task: asyncio.Task[None]
) -> AsyncIterator[bytes]:
    try:
        while line is not None:
            yield line
            following = await ready.get()
            if isinstance(following, BaseException):
                raise following
            line = following
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
