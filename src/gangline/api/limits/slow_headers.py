"""Add a time limit for a request's headers to uvicorn's protocol for HTTP/1.1, as each half-open connection costs a descriptor."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(HttpToolsProtocol):
    """A connection that is closed if the headers of a request are not complete after `headers_s` seconds.

    The time starts when the connection opens, or with the first byte of a later request. Between two requests uvicorn's own limit applies.
    """

    def __init__(self, *, headers_s: float, **options: Any) -> None:
        super().__init__(**options)
        self._headers_s = headers_s
        self._giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        self._end()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        """Start the timer, unless it is running."""
        self._giving_up = self._giving_up or self.loop.call_later(self._headers_s, self._give_up)

    def _end(self) -> None:
        if self._giving_up:
            self._giving_up.cancel()
        self._giving_up = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(SLOW)
            self.transport.close()
