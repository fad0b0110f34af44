"""Move files over HTTP by signed requests: in parts, several concurrently, each retried by itself. Every call blocks until it is done.

Memory use is a small buffer for each part in transfer, no matter how large the files are.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from random import Random
from typing import IO, TypeVar

from gangline.adapters.transfer.connections import Connections, network, pieces
from gangline.adapters.transfer.partial import Partial
from gangline.core.errors import BadInput, Damaged, Denied, GanglineError, NotFound, Unreachable, UserError
from gangline.core.files import PART_BYTES, File, Grant, Signed, absolute_url, part_ranges
from gangline.core.jobs.retry import RETRY_S_FIRST, RETRY_S_MAX, retry_s
from gangline.ports.server import Upload

T = TypeVar("T")
OpenSource = Callable[[Path], AbstractContextManager[IO[bytes]]]

BUFFER_BYTES = 2**20
SHORT_BYTES = 8 * PART_BYTES
STREAMS = 4
PARTIAL, EXISTS = 206, 412
ENDED = (b"<Code>ExpiredToken<", b"<Code>TokenRefreshRequired<", b"<Code>InvalidToken<")
"""The credentials expired before the URL that they signed: S3 answers 400, not 403."""
ARCHIVED = b"<Code>InvalidObjectState<"
"""A lifecycle rule has moved the object to Glacier: a fresh URL does not help."""
SENTENCE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many seconds a connection may stall, and how many times in a row a part may fail before its file does."""

    connect_s: float = 10.0
    stall_s: float = 30.0
    tries: int = 4
    retry_s_first: float = RETRY_S_FIRST


class RangesIgnored(Exception):
    """Raised when the store sends the whole file in answer to a range request."""


class Busy(Unreachable):
    """Raised when the store asks for a retry, after `after_s` seconds if it names a time."""

    def __init__(self, message: str, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s


def open_anywhere(path: Path) -> AbstractContextManager[IO[bytes]]:
    return path.open("rb", buffering=0)


class Carrier:
    """Transfers single files. `server` is the base of URLs without a host; `threads` move the parts; `opens` opens what is uploaded."""

    def __init__(
        self,
        server: str,
        threads: ThreadPoolExecutor,
        patience: Patience,
        rng: Random,
        opens: OpenSource = open_anywhere,
    ) -> None:
        self._server = server
        self._threads = threads
        self._patience = patience
        self._rng = rng
        self._opens = opens
        self._connections = Connections(connect_s=patience.connect_s, stall_s=patience.stall_s)

    def close(self) -> None:
        """Stop for good: running transfers fail and no new one starts."""
        self._connections.close()

    def describe(self, file: File, source: Path) -> Upload:
        """Return the file's size and hashes. The whole file is hashed concurrently with the parts, and must match `file.sha256`: so an
        attestation of the parts holds for the whole. Raises `Damaged`."""
        self._refuse_if_closed()
        whole = self._threads.submit(self._hash, file, source, range(file.bytes))
        parts = tuple(self._hash(file, source, part) for part in part_ranges(file.bytes))
        if whole.result() != file.sha256:
            raise Damaged(f"{file.path} has changed: it no longer matches its SHA-256")
        return Upload(path=file.path, bytes=file.bytes, sha256=file.sha256, parts=parts if len(parts) > 1 else ())

    def upload(self, grant: Grant, file: File, source: Path) -> None:
        self._refuse_if_closed()
        ranges = part_ranges(file.bytes) if len(grant.parts) > 1 else (range(file.bytes),)
        with self._opens(source) as content:
            self._all(
                partial(self._put, signed, file, content.fileno(), part)
                for signed, part in zip(grant.parts, ranges, strict=True)
                if signed
            )

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> None:
        """Download to `to` unless the file is there already. If another process is downloading it, wait for that."""
        self._refuse_if_closed()
        get = partial(self._get, signed, file)
        with Partial(to, file, self._connections.closed) as incoming:
            if incoming.there:
                return
            # A URL may expire while a long file downloads, so all its ranges are requested at once. A short file is requested part by
            # part, in order, so that hashing keeps pace with the download.
            runs = incoming.missing(1 if file.bytes <= SHORT_BYTES else -(-incoming.parts // STREAMS))
            try:
                self._all((partial(get, incoming, run) for run in runs), then=incoming.check)
            except RangesIgnored:
                get(incoming, range(file.bytes), ranged=False)
            incoming.complete(durable=durable)

    def copy(self, file: File, source: Path, to: Path) -> bool:
        """Copy a file of this machine to `to`, checked as a download is. Return False if its bytes are others or cannot be read: then
        nothing is left of it."""
        self._refuse_if_closed()
        try:
            with _opened(file, source) as content, Partial(to, file, self._connections.closed) as incoming:
                for run in () if incoming.there else incoming.missing(1):
                    self._refuse_if_closed()
                    self._copy_part(file, content.fileno(), incoming, run)
                if not incoming.there:
                    incoming.complete(durable=True)
        except Damaged:
            return False
        return True

    def _copy_part(self, file: File, content: int, incoming: Partial, part: range) -> None:
        at = part.start
        for piece in _read_from_disk(file, content, part):
            incoming.write(at, piece)
            at += len(piece)
        incoming.check(at)

    def _hash(self, file: File, source: Path, part: range) -> str:
        hashed = hashlib.sha256()
        with self._opens(source) as content:
            for piece in _read(file, content.fileno(), part):
                hashed.update(piece)
        return hashed.hexdigest()

    def _put(self, signed: Signed, file: File, content: int, part: range) -> None:
        def once() -> None:
            body = _read(file, content, part)
            with self._connections.ask("PUT", self._url(signed), _with_length(signed, part), body) as answer:
                # EXISTS on a create-only PUT means that an earlier try arrived and its answer was lost. If the key holds other
                # bytes, the server finds that when it checks the upload.
                if answer.status != EXISTS:
                    _check(answer, file, refused=Damaged)  # most likely corrupted in transit: retry
                with network():
                    answer.read()

        self._insist(once)

    def _get(self, signed: Signed, file: File, incoming: Partial, run: range, *, ranged: bool = True) -> int:
        """Download a range and return its end. After a cut it resumes at the last byte, unless the store ignores ranges."""
        at = run.start

        def once() -> None:
            nonlocal at
            at = at if ranged else run.start
            headers = signed.headers | ({"Range": f"bytes={at}-{run.stop - 1}"} if ranged else {})
            with self._connections.ask("GET", self._url(signed), headers) as answer:
                _check(answer, file)
                if ranged and answer.status != PARTIAL:
                    raise RangesIgnored
                if answer.length not in (None, run.stop - at):
                    raise Damaged(f"{file.path} has the wrong length in the object store")
                for piece in pieces(answer, run.stop - at, memoryview(bytearray(BUFFER_BYTES))):
                    incoming.write(at, piece)
                    at += len(piece)

        self._insist(once, at=lambda: at if ranged else 0)
        return run.stop

    def _all(self, jobs: Iterable[Callable[[], T]], then: Callable[[T], None] = lambda _: None) -> None:
        """Run the jobs concurrently and pass their results to `then` in order. After a failure, wait for running jobs and start no more."""
        futures = [self._threads.submit(job) for job in jobs]
        try:
            for future in futures:
                then(future.result())
        finally:
            wait([future for future in futures if not future.cancel()])

    def _insist(self, once: Callable[[], None], at: Callable[[], int] = lambda: 0) -> None:
        """Retry `once` until it succeeds, or has failed `tries` times in a row without progress of `at`."""
        tries, before = 0, at()
        while True:
            try:
                return once()
            except (Unreachable, Damaged) as error:
                tries = tries + 1 if at() == before else 1
                before = at()
                if tries >= self._patience.tries or self._connections.closed.wait(self._pause_s(error, tries)):
                    raise

    def _pause_s(self, error: GanglineError, tries: int) -> float:
        asked_s = error.after_s if isinstance(error, Busy) else 0.0
        return max(asked_s, retry_s(tries - 1, self._rng, first_s=self._patience.retry_s_first))

    def _url(self, signed: Signed) -> str:
        return absolute_url(self._server, signed.url)

    def _refuse_if_closed(self) -> None:
        """Raise `Unreachable` in a job that was still queued when the carrier was closed."""
        if self._connections.closed.is_set():
            raise Unreachable("the transfer was stopped")


def _read(file: File, content: int, part: range) -> Iterator[memoryview]:
    """Yield the bytes of a part in pieces, all in the same buffer."""
    buffer, at = memoryview(bytearray(BUFFER_BYTES)), part.start
    while at < part.stop:
        count = os.preadv(content, [buffer[: part.stop - at]], at)
        if not count:
            raise Damaged(f"{file.path} became shorter")
        at += count
        yield buffer[:count]


def _opened(file: File, source: Path) -> IO[bytes]:
    try:
        return source.open("rb", buffering=0)
    except OSError as error:
        raise Damaged(f"{file.path} cannot be opened: {error}") from None


def _read_from_disk(file: File, content: int, part: range) -> Iterator[memoryview]:
    """Do the same where a file that the disk cannot read counts as damaged. What the caller does with a piece is not caught here."""
    try:
        yield from _read(file, content, part)
    except OSError as error:
        raise Damaged(f"{file.path} cannot be read: {error}") from None


def _with_length(signed: Signed, part: range) -> dict[str, str]:
    """Return exactly the signed headers, plus Content-Length if it is not among them."""
    named = any(name.lower() == "content-length" for name in signed.headers)
    return signed.headers if named else signed.headers | {"Content-Length": str(len(part))}


def _check(answer: HTTPResponse, file: File, *, refused: type[GanglineError] = BadInput) -> None:
    """Raise the error that the answer means; `refused` is the one for a status that names no cause."""
    said = f"the object store answered {answer.status} for {file.path}"
    match answer.status:
        case status if status < 300:
            return
        case 403 if _says(answer, ARCHIVED):
            raise UserError(
                f"{file.path} is archived in the object store, and cannot be read",
                hint="restore it there, and keep what runs need out of the bucket's lifecycle rules",
            )
        case 401 | 403:
            raise Denied(said)
        case 400 if _says(answer, *ENDED):
            raise Denied(said)
        case 404:
            raise NotFound(said)
        case 416:  # the object is empty, or ends before the range
            raise Damaged(f"{file.path} has the wrong length in the object store")
        case 408 | 409 | 425 | 429:
            raise Busy(said, _retry_after_s(answer))
        case status if status >= 500:
            raise Busy(said, _retry_after_s(answer))
        case _:
            raise refused(said)


def _says(answer: HTTPResponse, *codes: bytes) -> bool:
    with network():
        said = answer.read(SENTENCE_BYTES)
    return any(code in said for code in codes)


def _retry_after_s(answer: HTTPResponse) -> float:
    """Return the seconds of Retry-After; 0 if it is absent or too long."""
    said = answer.headers.get("Retry-After", "")
    return float(said) if said.isdecimal() and int(said) <= RETRY_S_MAX else 0.0
