"""Post notices to addresses that users name, by asyncio. It connects only to addresses that have passed the guard (`core/places/urls.py`).

A host name is looked up for each request, its addresses are checked, and one of those is connected to: a name server that answers
differently the next time (DNS rebinding) gains nothing. No redirect is followed, no proxy is used, and every wait ends at one time limit.
"""

import asyncio
import os
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, cast

import httpcore

from gangline.adapters.https import http_header, httpcore_url
from gangline.core.display import printable
from gangline.core.errors import BadInput
from gangline.core.notices.sharing import may_start
from gangline.core.places.urls import IPNetwork, Url, check_url, checked_addresses, hide_target
from gangline.hosts import HostLookup, resolve_host
from gangline.ports.notices.notices import NoticeAnswer, NoticeRequest
from gangline.tls import trusted
from gangline.version import VERSION

GONE = 410
ANSWER_BYTES_MAX = 65_536
EXCERPT_BYTES = 400
EXCERPT_MAX = 160
"""Bytes of an answer that are read, bytes that are decoded, and characters that the log shows of it."""
REST_S = 2.0
"""Seconds for the rest of an answer whose status is known."""
ADDRESSES_MAX = 3
LOOKUPS_MAX = 64
"""The most names that are looked up at the same time: a name server that never answers holds a thread for half a minute."""
LOOKUP_WAIT_S, LOOKUP_PAUSE_S = 5.0, 0.05
"""How long a request waits for a free thread at most, and the time between two checks whether there is one."""
CHECKS_MAX = 16
"""The most names that are looked up only to check an address, by threads of their own: whoever adds endpoints stops no notice."""
OPEN_HINT = "ask the operator to open its network (`networks` in [notices] of the server's settings)"


class GuardedPoster:
    """The `NoticePoster`. It keeps no connection, so event loops of several threads may use one; `answer_s` limits each request."""

    def __init__(
        self,
        allowed: Sequence[IPNetwork] = (),
        *,
        answer_s: float = 15.0,
        resolve: HostLookup = resolve_host,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed, self._answer_s = allowed, answer_s
        wait_s = min(LOOKUP_WAIT_S, answer_s / 2)
        self._lookups, self._checks = (_Lookups(resolve, most, wait_s) for most in (LOOKUPS_MAX, CHECKS_MAX))
        self._tls = tls or trusted()

    async def post(self, request: NoticeRequest) -> NoticeAnswer:
        try:
            url = check_url(request.url)
        except BadInput as error:
            return NoticeAnswer(outcome="refused", because=error.message)
        pinned = _Pinned(self._answer_s / 2)
        connection = httpcore.AsyncHTTPConnection(httpcore_url(url).origin, self._tls, network_backend=pinned)
        try:
            async with asyncio.timeout(self._answer_s) as limit:
                pinned.addresses = (await self._addresses(url, self._lookups, request.project))[:ADDRESSES_MAX]
                answer = await connection.handle_async_request(_as_http(url, request))
            left_s = (limit.when() or 0.0) - asyncio.get_running_loop().time()
            return _verdict(url, answer, await _excerpt(answer, min(left_s, REST_S)))
        except _Busy as error:
            return NoticeAnswer(outcome="untried", because=str(error), ours=True)
        except _Refused as error:  # a name may have another address tomorrow
            return NoticeAnswer(outcome="refused" if _is_address(url.host) else "again", because=str(error))
        except TimeoutError:
            return _again(f"{url.host} did not answer within {self._answer_s:g} s")
        except (OSError, httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            return _again(f"{url.host} {pinned.why(error)}")
        finally:
            await connection.aclose()
            await pinned.aclose()

    async def why_refused(self, url: str) -> str:
        try:
            async with asyncio.timeout(self._answer_s):
                await self._addresses(check_url(url), self._checks, "")
        except BadInput as error:
            return error.message
        except _Refused as error:
            return str(error)
        except (TimeoutError, OSError, _Busy):
            pass
        return ""

    async def _addresses(self, url: Url, lookups: "_Lookups", project: str) -> list[str]:
        """Return the addresses that may be connected to. Raises `_Refused`, `_Busy`, and `OSError` if the host has none."""
        found = [url.host] if _is_address(url.host) else await lookups.find(url.host, url.port, project)
        if not found:
            raise OSError(0, "it has no address")
        passed, why = checked_addresses(found, self._allowed, plain=url.is_plain)
        if why == "public":
            raise _Refused(f"{url.shown} is not an https:// URL")
        if not passed:
            raise _Refused(f"nothing may be sent to {url.host}: its address is {why} ({OPEN_HINT})")
        return passed


class _Refused(Exception):
    """Nothing may be sent there; the text says why."""


class _Busy(Exception):
    """This server looks up as many names as it may; the text says so."""


class _Pinned(httpcore.AsyncNetworkBackend):
    """Connects to the first of `addresses` that accepts, whatever the name is. It makes one connection, and knows what came over it."""

    addresses: Sequence[str] = ()
    read = 0

    def __init__(self, each_s: float) -> None:
        self._each_s = each_s
        self._inner = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())
        self._stream: httpcore.AsyncNetworkStream | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        for number, address in enumerate(self.addresses, 1):
            try:
                self._stream = await self._inner.connect_tcp(address, port, self._each_s)
                break
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(self.addresses):
                    raise
        assert self._stream is not None, "a host that passed has an address"
        return _Counted(self._stream, self)

    async def aclose(self) -> None:
        """Close the socket, also of a connection that was given up before it was encrypted."""
        if self._stream is not None:
            await self._stream.aclose()

    def why(self, error: Exception) -> str:
        """Return why there was no answer, in words that follow its name."""
        found = _causes(error)
        secure = next((each for each in found if isinstance(each, ssl.SSLError)), None)
        if secure is not None:
            return f"offers no secure connection: {_tls_words(secure)}"
        return f"cannot be reached: {self._words(error, found)}"

    def _words(self, error: Exception, causes: Sequence[BaseException]) -> str:
        if isinstance(error, httpcore.ConnectTimeout):
            return f"no connection within {self._each_s:g} s"
        for each in reversed(causes):
            if isinstance(each, OSError) and (
                words := os.strerror(each.errno).lower() if each.errno else each.strerror
            ):
                return words
        if self.read > ANSWER_BYTES_MAX:
            return "its answer begins with too many headers"
        if not self.read or isinstance(error, httpcore.NetworkError):
            return "it closed the connection without an answer"
        return "its answer is incomplete, or not HTTP"


class _Counted(httpcore.AsyncNetworkStream):
    """A stream of bounded length."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, of: _Pinned) -> None:
        self._inner, self._of = inner, of

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._of.read > ANSWER_BYTES_MAX:
            raise httpcore.RemoteProtocolError("the answer is too long")
        content = await self._inner.read(max_bytes, timeout)
        self._of.read += len(content)
        return content

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _Counted(await self._inner.start_tls(ssl_context, server_hostname, timeout), self._of)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Lookups:
    """Looks up names in at most `most` threads of its own, one at a time for each name: a name whose servers never answer holds one thread.
    They are shared among projects as connections are among endpoints, so some stay free for the others."""

    def __init__(self, resolve: HostLookup, most: int, wait_s: float) -> None:
        self._resolve, self._most, self._wait_s = resolve, most, wait_s
        self._lock = threading.Lock()
        self._open: dict[tuple[str, int], Future[list[str]]] = {}
        self._of_project = Counter[str]()

    async def find(self, host: str, port: int, project: str) -> list[str]:
        """Return the addresses of a name, none if it has none. Raise `_Busy` if too many names are being looked up for too long."""
        until_s = time.monotonic() + self._wait_s
        while (found := self._begin(host, port, project)) is None:
            if time.monotonic() >= until_s:
                raise _Busy("the names of too many hosts are being looked up")
            await asyncio.sleep(LOOKUP_PAUSE_S)
        return await asyncio.shield(asyncio.wrap_future(found))

    def _begin(self, host: str, port: int, project: str) -> "Future[list[str]] | None":
        """Return a lookup that has begun; None if no thread is free for this project. Without a project, all threads are."""
        with self._lock:
            found, free = self._open.get((host, port)), self._most - len(self._open)
            if found is None and (
                may_start(in_flight=self._of_project[project], limit=self._most, free=free) if project else free > 0
            ):
                self._of_project[project] += 1
                found = self._open[host, port] = Future()
                told = (host, port, project, found)
                threading.Thread(target=self._look, args=told, name="lookup", daemon=True).start()
        return found

    def _look(self, host: str, port: int, project: str, found: Future[list[str]]) -> None:
        try:
            addresses = list(self._resolve(host, port))
        except (OSError, UnicodeError):
            addresses = []
        with self._lock:
            del self._open[host, port]
            self._of_project[project] -= 1
            self._of_project += Counter()  # forget those that have none
        found.set_result(addresses)


def _again(because: str, retry_after_s: float | None = None) -> NoticeAnswer:
    return NoticeAnswer(outcome="again", because=because, retry_after_s=retry_after_s)


async def _excerpt(answer: httpcore.Response, seconds: float) -> bytes:
    """Return the beginning of the body. The status is known, and counts whatever becomes of the rest."""
    body = b""
    try:
        async with asyncio.timeout(seconds):
            async for part in answer.aiter_stream():
                body += part[: EXCERPT_BYTES - len(body)]
    except (TimeoutError, httpcore.ProtocolError, httpcore.NetworkError):
        return body
    return body


def _verdict(url: Url, answer: httpcore.Response, body: bytes) -> NoticeAnswer:
    status = answer.status
    if 200 <= status < 300:
        return NoticeAnswer(outcome="delivered", because=f"{url.host} answered {status}")
    excerpt = printable(hide_target(url, body.decode(errors="replace").strip()))[:EXCERPT_MAX]
    words = f"{url.host} answered {status}" + f": {excerpt}" * bool(excerpt)
    if status == GONE:
        return NoticeAnswer(outcome="gone", because=words)
    if 300 <= status < 400:
        return _again(f"{url.host} answered {status}, and redirects are not followed")
    return _again(words, _seconds(http_header(answer, b"retry-after")))


def _seconds(retry_after: str) -> float | None:
    """Return the value of a Retry-After header (RFC 9110, 10.2.3) in seconds; None if there is none."""
    if retry_after.isdecimal() and len(retry_after) < 10:
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _as_http(url: Url, request: NoticeRequest) -> httpcore.Request:
    headers = {"host": url.authority, "user-agent": f"gangline/{VERSION}", "accept": "*/*", "connection": "close"}
    headers |= {name.lower(): value for name, value in request.headers} | {"content-length": str(len(request.body))}
    lines = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    return httpcore.Request("POST", httpcore_url(url), headers=lines, content=request.body)


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and what caused it, the first cause last."""
    return [error, *(_causes(error.__cause__) if error.__cause__ is not None else ())]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _tls_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or type(error).__name__).lower().replace("_", " ")
