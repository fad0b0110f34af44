"""Pool HTTP connections that another thread can cut, for bodies of many megabytes; built on the standard library's client.

Everything else uses httpx. Its bodies pass, 64 KB at a time, through a parser in Python, which halves the rate of a download on two cores
(`benchmarks/transfer.py`), and a thread that waits in it cannot be interrupted.
"""

import socket
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import chain
from select import POLLIN, poll
from threading import Event, Lock
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from gangline.core.errors import Unreachable
from gangline.tls import trusted


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int | None


class Connections:
    """A pool of connections, safe for threads. `connect_s` limits the wait for a connection, `stall_s` the wait for the next bytes on
    it."""

    def __init__(self, *, connect_s: float, stall_s: float) -> None:
        self.closed = Event()
        self._connect_s = connect_s
        self._stall_s = stall_s
        self._lock = Lock()
        self._idle: dict[Origin, list[HTTPConnection]] = defaultdict(list)
        self._busy: dict[HTTPConnection, socket.socket] = {}
        """The socket is kept too, since an answer may hold it longer than its connection does."""

    @contextmanager
    def ask(
        self, method: str, url: str, headers: dict[str, str], body: Iterable[memoryview] = ()
    ) -> Iterator[HTTPResponse]:
        """Send a request and yield the answer with its body unread. Raises `Unreachable`."""
        parts = urlsplit(url)
        origin = Origin(parts.scheme, parts.hostname or "", parts.port)
        proxy = _proxy(origin)
        connection = self._take(origin, proxy)
        whole = False
        try:
            headers = headers | _proxy_headers(proxy, origin)
            with closing(_converse(connection, method, _target(parts, proxy), headers, body)) as answer:
                yield answer
                whole = answer.isclosed()
        finally:
            self._give_back(origin, connection, whole)

    def close(self) -> None:
        """Close for good; threads that wait on a connection fail at once."""
        with self._lock:
            self.closed.set()
            for sock in self._busy.values():
                with suppress(OSError):  # the plain socket's shutdown, since another thread may be inside TLS
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
            for connection in chain.from_iterable(self._idle.values()):
                connection.close()

    def _take(self, origin: Origin, proxy: SplitResult | None) -> HTTPConnection:
        connection = self._kept(origin) or self._connect(origin, proxy)
        with self._lock:
            if self.closed.is_set():
                connection.close()
                raise Unreachable("the transfer was stopped")
            self._busy[connection] = connection.sock
        return connection

    def _kept(self, origin: Origin) -> HTTPConnection | None:
        with self._lock:
            idle = self._idle[origin]
            while idle:
                connection = idle.pop()
                if not _is_readable(connection.sock):
                    return connection
                connection.close()  # the server has closed it while it was idle
        return None

    def _give_back(self, origin: Origin, connection: HTTPConnection, whole: bool) -> None:
        """Return the connection to the pool if the last exchange was completed, else close it."""
        with self._lock:
            del self._busy[connection]
            if whole and connection.sock and not self.closed.is_set():
                self._idle[origin].append(connection)
            else:
                connection.close()

    def _connect(self, origin: Origin, proxy: SplitResult | None) -> HTTPConnection:
        host, port = (proxy.hostname or "", proxy.port) if proxy else (origin.host, origin.port)
        if origin.scheme == "https":
            connection = HTTPSConnection(host, port, timeout=self._connect_s, context=trusted())
            if proxy:
                connection.set_tunnel(origin.host, origin.port, headers=_credentials(proxy))
        else:
            connection = HTTPConnection(host, port, timeout=self._connect_s)
        with network():
            connection.connect()
        connection.sock.settimeout(self._stall_s)
        return connection


def pieces(answer: HTTPResponse, count: int, buffer: memoryview) -> Iterator[memoryview]:
    """Yield the next `count` bytes of a body in pieces, all in the same buffer. Raises `Unreachable` if the body ends early."""
    while count:
        with network():
            got = answer.readinto(buffer[:count])
        if not got:
            raise Unreachable("the object store closed the connection early")
        count -= got
        yield buffer[:got]


@contextmanager
def network() -> Iterator[None]:
    """Translate errors of the network. Wrap only calls that wait for the network: an `OSError` of the disk means something else."""
    try:
        yield
    except (OSError, HTTPException) as error:
        raise Unreachable(f"the object store does not answer ({type(error).__name__})") from None


def _converse(
    connection: HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: Iterable[memoryview]
) -> HTTPResponse:
    with network():
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
    for piece in body:
        try:
            connection.send(piece)
        except (BrokenPipeError, ConnectionResetError):
            break  # a server that refuses may stop reading early; its answer can still be read
        except OSError as error:
            raise Unreachable(f"the connection to the object store broke ({type(error).__name__})") from None
    with network():
        return connection.getresponse()


def _is_readable(sock: socket.socket) -> bool:
    waiting = poll()
    waiting.register(sock, POLLIN)
    return bool(waiting.poll(0))


def _proxy(origin: Origin) -> SplitResult | None:
    """Return the proxy that the environment names for this host."""
    named = None if proxy_bypass(origin.host) else getproxies().get(origin.scheme)
    return urlsplit(named) if named else None


def _target(parts: SplitResult, proxy: SplitResult | None) -> str:
    """Return the request target: an HTTP proxy gets the whole URL, everything else the path."""
    if proxy and parts.scheme == "http":
        return parts.geturl()
    return parts._replace(scheme="", netloc="", fragment="").geturl()


def _proxy_headers(proxy: SplitResult | None, origin: Origin) -> dict[str, str]:
    return _credentials(proxy) if proxy and origin.scheme == "http" else {}


def _credentials(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    known = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(known.encode()).decode()}"}
