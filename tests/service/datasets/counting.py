"""A server that counts what it is sent: the bytes of each upload, whoever sent them."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class Received:
    """`bodies`: the bytes that arrived for each object; `puts`: how often one was sent completely."""

    bodies: Counter[str] = field(default_factory=Counter)
    puts: Counter[str] = field(default_factory=Counter)
    pause_s: float = 0.0

    @property
    def twice(self) -> dict[str, int]:
        """The bytes that arrived a second time of objects that had been sent completely."""
        return {path: self.bodies[path] // count * (count - 1) for path, count in self.puts.items() if count > 1}


class Counting:
    """An ASGI middleware. Each upload takes `pause_s` longer, so that a client can be killed in the midst of them."""

    def __init__(self, app: ASGIApp, received: Received) -> None:
        self._app, self._received = app, received

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "PUT":
            await self._app(scope, receive, send)
            return
        path = scope["path"]

        async def counted() -> Message:
            message = await receive()
            self._received.bodies[path] += len(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body"):
                self._received.puts[path] += 1
            return message

        await asyncio.sleep(self._received.pause_s)
        await self._app(scope, counted, send)
