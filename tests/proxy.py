"""A bad network on loopback: an HTTP proxy before one server that delays, slows down, cuts, changes, holds and refuses.

What goes wrong with an exchange is the next of `faults`; when they are used up, all goes well. A client reaches it as if it
were the server, or as its proxy.
"""

import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader
from threading import Condition, Event, Lock, Thread
from types import TracebackType
from typing import Literal

PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`after` so many bytes of the body, which goes up with a PUT and down with a GET; `answer` is instead of the server's.
    Without a kind nothing goes wrong."""

    kind: Literal["", "cut", "change", "stall", "answer"] = ""
    after: int = 0
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heard:
    """A request, when it came, and what became of it."""

    at_s: float
    method: str
    target: str
    headers: dict[str, str]
    fault: str


class Cut(Exception):
    """This connection is gone, on both sides."""


class Line:
    """One direction: all of its connections share `bytes_per_s`."""

    def __init__(self, bytes_per_s: float, closing: Event) -> None:
        self.bytes = 0
        self._bytes_per_s = bytes_per_s
        self._closing = closing
        self._lock = Lock()
        self._free_s = 0.0

    def carry(self, count: int) -> None:
        with self._lock:
            self.bytes += count
            now_s = time.monotonic()
            self._free_s = max(self._free_s, now_s) + count / self._bytes_per_s
            wait_s = self._free_s - now_s
        if wait_s > 0 and self._closing.wait(wait_s):
            raise Cut


class Proxy:
    """Before the server at `address`. `knows_ranges=False` makes it a server that does not; with `closes` it is one that closes
    its connection after each answer."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        faults: Iterable[Fault] = (),
        bytes_per_s: float = float("inf"),
        delay_s: float = 0.0,
        knows_ranges: bool = True,
        closes: bool = False,
    ) -> None:
        self.faults = deque(faults)
        self.heard: list[Heard] = []
        self.connections = 0
        self._address = address
        self._delay_s = delay_s
        self._knows_ranges = knows_ranges
        self._closes = closes
        self._closing = Event()
        self.up, self.down = Line(bytes_per_s, self._closing), Line(bytes_per_s, self._closing)
        self._changed = Condition()
        self._threads: list[Thread] = []
        self._open: set[socket.socket] = set()

    def __enter__(self) -> "Proxy":
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._start(self._listen)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._closing.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for opened in list(self._open):  # who waits for the other side is told that it has gone
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def count(self, method: str) -> int:
        return Counter(heard.method for heard in self.heard)[method]

    def until(self, condition: Callable[["Proxy"], bool]) -> None:
        """Something has moved so that this is true; the time-out of the test ends it."""
        with self._changed:
            self._changed.wait_for(lambda: condition(self))

    def _start(self, work: Callable[..., None], *args: socket.socket) -> None:
        thread = Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.connections += 1
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(Cut, OSError), socket.create_connection(self._address) as server:
            self._open |= {client, server}
            if self._closing.is_set():  # too late to be told
                return
            with client.makefile("rb") as asked, server.makefile("rb") as answered:
                while head := _head(asked):
                    self._exchange(head, asked, server, answered, client)

    def _exchange(
        self,
        head: list[bytes],
        asked: BufferedReader,
        server: socket.socket,
        answered: BufferedReader,
        client: socket.socket,
    ) -> None:
        method, target, _ = head[0].decode().split(" ", 2)
        headers = _headers(head)
        fault = self._next(method, target, headers)
        if self._closing.wait(self._delay_s):
            raise Cut
        if fault.kind == "answer":
            _answer(client, fault)
            raise Cut
        up, down = (fault, Fault()) if method == "PUT" else (Fault(), fault)
        server.sendall(self._passed_on(head))
        self._carry(asked, server, int(headers.get("content-length", 0)), self.up, up)
        head = _head(answered)
        client.sendall(b"".join(head[:-1]) + b"Connection: close\r\n" * self._closes + head[-1])
        length = 0 if method == "HEAD" else int(_headers(head).get("content-length", 0))
        self._carry(answered, client, length, self.down, down)
        if self._closes:
            raise Cut

    def _next(self, method: str, target: str, headers: dict[str, str]) -> Fault:
        with self._changed:
            fault = self.faults.popleft() if self.faults else Fault()
            self.heard.append(Heard(time.monotonic(), method, target, headers, fault.kind))
            self._changed.notify_all()
        return fault

    def _passed_on(self, head: list[bytes]) -> bytes:
        """What a proxy is asked with a whole URL, a server is asked with a path."""
        method, target, rest = head[0].split(b" ", 2)
        if target.startswith(b"http://"):
            target = b"/" + target.split(b"/", 3)[3]
        kept = [line for line in head[1:] if self._knows_ranges or not line.lower().startswith(b"range:")]
        return b" ".join((method, target, rest)) + b"".join(kept)

    def _carry(self, source: BufferedReader, to: socket.socket, count: int, line: Line, fault: Fault) -> None:
        done = 0
        while done < count:
            before = fault.after - done if fault.kind and fault.after > done else count - done
            piece = source.read(min(PIECE_BYTES, before, count - done))
            if not piece:
                raise Cut
            if fault.kind and done == fault.after:
                piece = self._strike(fault, piece)
            line.carry(len(piece))
            to.sendall(piece)
            done += len(piece)
            with self._changed:
                self._changed.notify_all()

    def _strike(self, fault: Fault, piece: bytes) -> bytes:
        if fault.kind == "change":
            return bytes([piece[0] ^ 1]) + piece[1:]
        if fault.kind == "stall":
            self._closing.wait()
        raise Cut


def _head(stream: BufferedReader) -> list[bytes]:
    """The lines of a request or an answer before its body; none where the other side has gone."""
    lines = []
    while line := stream.readline():
        lines.append(line)
        if line == b"\r\n":
            return lines
    return []


def _headers(head: list[bytes]) -> dict[str, str]:
    pairs = (line.decode().split(":", 1) for line in head[1:] if b":" in line)
    return {name.strip().lower(): value.strip() for name, value in pairs}


def _answer(client: socket.socket, fault: Fault) -> None:
    """Before the body is read, then the connection is closed: as servers do."""
    headers = {"Content-Length": "0", "Connection": "close"} | fault.headers
    lines = [f"HTTP/1.1 {fault.status} Said by the proxy", *(f"{name}: {value}" for name, value in headers.items())]
    client.sendall("\r\n".join([*lines, "", ""]).encode())
