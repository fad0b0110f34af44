"""uvicorn's protocol for HTTP/1.1, with a time limit for the headers of a request: half-open connections cost a descriptor each."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(HttpToolsProtocol):
    """Closes a connection whose headers are not complete after `headers_s` seconds: from when it was opened, or from the first byte of
    a later request. Between two requests uvicorn's own limit holds."""

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
        """Start the clock, if it does not run already."""
        self._giving_up = self._giving_up or self.loop.call_later(self._headers_s, self._give_up)

    def _end(self) -> None:
        if self._giving_up:
            self._giving_up.cancel()
        self._giving_up = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(SLOW)
            self.transport.close()
