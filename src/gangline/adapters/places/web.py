"""Download URLs that users give. The server connects only to addresses that have passed the guard (`core/places/urls.py`).

A host name is resolved once for each connection, its addresses are checked, and one of those is connected to: a name server that answers
differently the next time (DNS rebinding) gains nothing. Redirects are followed here, each through the same check. Proxies of the
environment are ignored: they would connect to addresses that nobody has checked.
"""

import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urljoin

import httpcore

from gangline.adapters.https import http_header, httpcore_url
from gangline.adapters.places.saving import ASK_S, Watch, save_chunks
from gangline.core.errors import BadInput, GanglineError, Unreachable
from gangline.core.places.urls import IPNetwork, Url, check_url, checked_addresses, is_allowed
from gangline.hosts import HostLookup, resolve_host
from gangline.ports.places.fetcher import Check
from gangline.tls import trusted

PATIENCE = {"timeout": {"connect": 10.0, "read": 30.0, "write": 30.0}}
"""Timeouts in seconds for each wait; none extends the time limit of the file."""
REDIRECTS = (301, 302, 303, 307, 308)
REDIRECTS_MAX = 5
TRY_AGAIN = (408, 409, 425, 429)
ASKED = [(b"Accept", b"*/*"), (b"Accept-Encoding", b"identity"), (b"User-Agent", b"gangline")]
OPEN_HINT = (
    "give a public address, or ask the operator to open its network (`networks` in [fetching] of the server's settings)"
)


class _Timed(httpcore.NetworkStream):
    """A stream that ends at the time limit of the file. With a timeout for each read alone, a server that sends a byte now and then, in its
    headers or between chunks, could hold a connection for ever."""

    def __init__(self, inner: httpcore.NetworkStream, watch: Watch) -> None:
        self._inner, self._watch = inner, watch

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read, waiting a second at a time, so that the fetch can be ended while the server sends nothing."""
        ends_s = monotonic() + self._within(timeout)
        while True:
            self._watch.ask()
            left_s = ends_s - monotonic()
            try:
                return self._inner.read(max_bytes, max(0.001, min(ASK_S, left_s)))
            except httpcore.ReadTimeout:
                if left_s <= ASK_S:
                    raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._within(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        try:
            within = self._within(timeout)
        except httpcore.ReadTimeout:
            self.close()  # as httpcore does when TLS fails: nobody else holds the socket
            raise
        return _Timed(self._inner.start_tls(ssl_context, server_hostname, within), self._watch)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def _within(self, timeout: float | None) -> float:
        return _within(timeout, self._watch)


class Guarded(httpcore.NetworkBackend):
    """Connects only to checked addresses, and within the time limit of the file."""

    def __init__(self, allowed: Sequence[IPNetwork], resolve: HostLookup, watch: Watch) -> None:
        self._allowed, self._resolve, self._watch = allowed, resolve, watch
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = self.check(host, port)
        within = _within(timeout, self._watch)
        stream = self._inner.connect_tcp(addresses[0], port, within, local_address, socket_options)
        return _Timed(stream, self._watch)

    def check(self, host: str, port: int) -> list[str]:
        """Return the addresses of `host` that may be connected to. Raises `BadInput` if there is none."""
        try:
            found = list(self._resolve(host, port))
        except (OSError, UnicodeError):
            raise Unreachable(f"{host} has no address", hint="is its name right?") from None
        passed, why = checked_addresses(found, self._allowed)
        if not passed:
            raise BadInput(f"{host} may not be fetched from: its address is {why}", hint=OPEN_HINT)
        return passed


class Web:
    def __init__(
        self, allowed: Sequence[IPNetwork] = (), resolve: HostLookup = resolve_host, tls: ssl.SSLContext | None = None
    ) -> None:
        self._allowed, self._resolve = allowed, resolve
        self._tls = tls or trusted()

    def fetch(self, text: str, to: Path, *, bytes_max: int, seconds: float, check: Check) -> int:
        """Download a URL to `to`; return its length in bytes. Raises `BadInput` for errors that a retry does not repair, else
        `Unreachable`."""
        watch, url = Watch(seconds, check), check_url(text)
        guarded = Guarded(self._allowed, self._resolve, watch)
        with httpcore.ConnectionPool(ssl_context=self._tls, network_backend=guarded, max_connections=1) as pool:
            for _ in range(REDIRECTS_MAX + 1):
                self._check_plain(url, guarded)
                headers = [(b"Host", url.authority.encode()), *ASKED]
                try:
                    with pool.stream("GET", httpcore_url(url), headers=headers, extensions=PATIENCE) as answer:
                        if answer.status not in REDIRECTS:
                            _check_status(answer, url)
                            return _save(answer, url, to, bytes_max, watch)
                        url = check_url(urljoin(url.text, http_header(answer, b"location")))
                except GanglineError:
                    raise
                except OSError as error:
                    raise Unreachable(f"{url.shown} cannot be saved on this server: {error.strerror}") from None
                except Exception as error:  # httpcore's errors have no other common base
                    raise Unreachable(f"{url.shown} cannot be fetched ({type(error).__name__})") from None
        raise BadInput(
            f"{check_url(text).shown} redirects more than {REDIRECTS_MAX} times",
            hint="give the final address",
        )

    def _check_plain(self, url: Url, guarded: Guarded) -> None:
        """Raise `BadInput` for http outside networks that the operator opened: anybody on the way could change the content."""
        if url.is_plain and not all(is_allowed(each, self._allowed) for each in guarded.check(url.host, url.port)):
            raise BadInput(f"{url.shown} is not an https:// URL", hint="give an https:// URL")


def _within(timeout: float | None, watch: Watch) -> float:
    """Return the seconds that the next wait may take. Raises httpcore's `ReadTimeout` if the time limit has passed."""
    left_s = watch.left_s
    if left_s <= 0:
        raise httpcore.ReadTimeout
    return left_s if timeout is None else min(timeout, left_s)


def _check_status(answer: httpcore.Response, url: Url) -> None:
    if answer.status == 200:
        encoding = http_header(answer, b"content-encoding")
        if encoding not in ("", "identity"):
            raise BadInput(f"{url.shown} was sent compressed ({encoding[:20]!r}), although the request excludes that")
        return
    if answer.status >= 500 or answer.status in TRY_AGAIN:
        raise Unreachable(f"{url.shown} answered {answer.status}")
    raise BadInput(f"{url.shown} answered {answer.status}", hint="check that it can be opened without signing in")


def _save(answer: httpcore.Response, url: Url, to: Path, bytes_max: int, watch: Watch) -> int:
    length = http_header(answer, b"content-length")
    told = int(length) if length.isdecimal() else None
    size = save_chunks(answer.iter_stream(), to, shown=url.shown, told=told, bytes_max=bytes_max, watch=watch)
    if told not in (None, size):
        raise Unreachable(f"{url.shown} ended early, after {size:,} bytes")
    return size
