"""The door of the application: the checks that a request passes before its body is parsed, or even read.

    rate of its key or address         429 and Retry-After
    that a page of ours sent it        403, where a cookie is all that says who sends it
    declared length of its body        413
    key, if it has a body              401
    body, as it arrives                413, or 408 if it arrives too slowly

Of each kind of sender, one large body at a time enters: the interpreter needs 0.05 s to parse 1 MB, and between two of them come the
waiting heartbeats, not the next large body.

Heartbeats have no rate limit, and their key is checked by their route, as they are nearly all requests of a large fleet. A refused body is
never read, so its connection is closed.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gangline.api.answers.problems import of_our
from gangline.api.lanes import USERS, WORKERS
from gangline.api.limits.rates import RateLimiter
from gangline.api.limits.routes import RequestBounds, bounds_of
from gangline.api.sessions.cookie import refuse_forged, token_of
from gangline.core.access import Role
from gangline.core.errors import GanglineError, TooLarge, TooMany, TooSlow
from gangline.core.server.limits import Limits
from gangline.wire.problem import of_error

DENIED = 401
LARGE_BYTES = 65_536
"""Bodies larger than this enter one at a time."""
IDENTITY = "gangline.identity"
"""The key in a request's scope for the identity of its sender, once the door has looked it up."""
Recognize = Callable[[str, Role], object]


class Door:
    """An ASGI middleware. `recognize_user` and `recognize_node` raise `Denied` for an invalid token.

    They may ask the store, so each runs in a lane; `remembers_node` does not, and spares a valid token that hop.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        *,
        recognize_user: Recognize,
        recognize_node: Recognize,
        remembers_node: Callable[[str], bool],
    ) -> None:
        self._app = app
        self._limits = limits
        self._recognize = {"user": recognize_user, "worker": recognize_node}
        self._remembers_node = remembers_node
        self._keys = RateLimiter(limits.key_rate_per_s, limits.key_burst)
        self._addresses = RateLimiter(limits.address_rate_per_s, limits.address_burst)
        self._large = {sender: asyncio.Lock() for sender in self._recognize}  # a guest's body is small

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bounds, headers = bounds_of(scope["path"], self._limits), Headers(scope=scope)
        try:
            if bounds.sender == "signed":
                await self._app(scope, self._while_it_comes(receive, bounds.body_bytes_max), send)
                return
            self._check_rate(scope, headers, bounds)
            refuse_forged(scope["method"], headers)
            entering, size = await self._entering(scope, headers, receive, bounds)
        except ClientDisconnect:
            return
        except GanglineError as error:
            await _refuse(error, scope, receive, send)
            return
        async with self._large[bounds.sender] if size > LARGE_BYTES else nullcontext():
            await self._app(scope, entering, self._counting_refusals(scope, send))

    def _check_rate(self, scope: Scope, headers: Headers, bounds: RequestBounds) -> None:
        """Raise `TooMany` if the sender exceeds its rate.

        A token has its own rate, valid or not. The address of an invalid one is charged when it is refused.
        """
        if bounds.sender == "heartbeat":
            return
        token, now_s = _token(headers), time.monotonic()
        wait_s = self._addresses.wait_s(_address(scope), now_s)
        if not wait_s:
            wait_s = self._keys.take(token, now_s) if token else self._addresses.take(_address(scope), now_s)
        if wait_s:
            raise TooMany("too many requests", wait_s=wait_s)

    async def _entering(
        self, scope: Scope, headers: Headers, receive: Receive, bounds: RequestBounds
    ) -> tuple[Receive, int]:
        """Return the `receive` that the route gets instead of the connection's, and how many bytes of the body were read here.

        Raise `TooLarge`, `TooSlow` or `Denied`.
        """
        announced = headers.get("content-length", "")
        # Nineteen digits are enough: more is too large anyway, and int() refuses texts of thousands of digits.
        if announced.isdecimal() and int(announced[:19]) > bounds.body_bytes_max:
            raise _too_large(bounds.body_bytes_max)
        if announced in ("", "0") and "transfer-encoding" not in headers:
            return receive, 0
        if bounds.sender == "user" or (
            bounds.sender == "worker" and not self._remembers_node(_token(headers, hashed=False))
        ):
            scope[IDENTITY] = await self._look_up(scope, headers, bounds)
        if not bounds.whole:
            return self._while_it_comes(receive, bounds.body_bytes_max), 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                body = await _read(receive, bounds)
                return _again(body, receive), len(body)
        except TimeoutError:
            raise TooSlow(f"the body was not complete in {self._limits.body_s:g} s") from None

    async def _look_up(self, scope: Scope, headers: Headers, bounds: RequestBounds) -> object:
        """Return the identity of the sender, before the body is read."""
        lane = WORKERS if bounds.sender == "worker" else USERS
        try:
            return await lane.run(partial(self._recognize[bounds.sender], _token(headers, hashed=False), bounds.needed))
        except GanglineError as error:
            if of_error(error).status == DENIED:
                self._addresses.take(_address(scope), time.monotonic())
            raise

    def _counting_refusals(self, scope: Scope, send: Send) -> Send:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == DENIED:
                self._addresses.take(_address(scope), time.monotonic())
            await send(message)

        return counting

    def _while_it_comes(self, receive: Receive, bytes_max: int) -> Receive:
        """Return a `receive` that raises `TooLarge` or `TooSlow` in a route that reads its body piece by piece."""
        left = bytes_max

        async def limited() -> Message:
            nonlocal left
            try:
                async with asyncio.timeout(self._limits.body_idle_s):
                    message = await receive()
            except TimeoutError:
                raise TooSlow(f"no byte of the body arrived for {self._limits.body_idle_s:g} s") from None
            left -= len(message.get("body", b""))
            if left < 0:
                raise _too_large(bytes_max)
            return message

        return limited


async def _read(receive: Receive, bounds: RequestBounds) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > bounds.body_bytes_max:
            raise _too_large(bounds.body_bytes_max)
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns the body, which was read already, and then what the connection receives."""
    unread = [body]

    async def reading() -> Message:
        return {"type": "http.request", "body": unread.pop()} if unread else await receive()

    return reading


async def _refuse(error: GanglineError, scope: Scope, receive: Receive, send: Send) -> None:
    answer = of_our(error)
    answer.headers["Connection"] = "close"
    await answer(scope, receive, send)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than {bytes_max:,} bytes",
        hint="send several jobs as JSON lines, and keep a large data set in a bucket, so that its spec names an address",
    )


def _token(headers: Headers, *, hashed: bool = True) -> str:
    """Return the request's token, by default its SHA-256, so that no table of buckets has secrets."""
    token = token_of(headers)
    return sha256(token.encode()).hexdigest() if token and hashed else token


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""
