"""Bytes over HTTP by signed URLs, each file in a thread of its own."""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urljoin

import httpx

from gangline.core.errors import BadInput, Damaged, Denied, GanglineError, NotFound, Unreachable
from gangline.core.files import PART_BYTES, File, Grant, Signed, part_lengths
from gangline.ports.server import Upload

CHUNK = 1 << 20
TIMEOUT = httpx.Timeout(30, connect=10)
THREADS = 8
TAKEN = 412


class Bases(Protocol):
    def fetch(self, repo: str, commit: str) -> Path: ...


@dataclass(slots=True)
class ThreadTask:
    future: "Future[Path]"

    @property
    def done(self) -> bool:
        return self.future.done()

    @property
    def error(self) -> Exception | None:
        failure = self.future.exception() if self.future.done() else None
        assert failure is None or isinstance(failure, Exception)
        return failure

    @property
    def path(self) -> Path:
        return self.future.result()


class HttpTransfer:
    """`server` is where URLs without a host belong."""

    def __init__(self, server: str, bases: Bases) -> None:
        self._server = server
        self._bases = bases
        self._client = httpx.Client(timeout=TIMEOUT)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="transfer")

    def download(self, signed: Signed, file: File, to: Path) -> ThreadTask:
        return self._start(lambda: self._download(signed, file, to))

    def declare(self, file: File, source: Path) -> Upload:
        if file.bytes <= PART_BYTES:
            return Upload(path=file.path, bytes=file.bytes, sha256=file.sha256)
        with source.open("rb") as content:
            parts = tuple(hashlib.sha256(content.read(size)).hexdigest() for size in part_lengths(file.bytes))
        return Upload(path=file.path, bytes=file.bytes, sha256=file.sha256, parts=parts)

    def upload(self, grant: Grant, file: File, source: Path) -> ThreadTask:
        return self._start(lambda: self._upload(grant, file, source))

    def fetch_base(self, repo: str, commit: str) -> ThreadTask:
        return self._start(lambda: self._bases.fetch(repo, commit))

    def _start(self, work: Callable[[], Path]) -> ThreadTask:
        return ThreadTask(self._threads.submit(work))

    def _download(self, signed: Signed, file: File, to: Path) -> Path:
        to.parent.mkdir(parents=True, exist_ok=True)
        partial = to.with_name(f".{to.name}.partial")
        hashed = hashlib.sha256()
        try:
            with self._client.stream("GET", urljoin(self._server, signed.url)) as answer, partial.open("wb") as out:
                _check(answer, file)
                for chunk in answer.iter_bytes(CHUNK):
                    hashed.update(chunk)
                    out.write(chunk)
        except httpx.HTTPError as error:
            raise Unreachable(f"{file.path} could not be downloaded: {type(error).__name__}") from None
        if partial.stat().st_size != file.bytes or hashed.hexdigest() != file.sha256:
            partial.unlink()
            raise Damaged(f"{file.path} does not match its SHA-256")
        return partial.rename(to)

    def _upload(self, grant: Grant, file: File, source: Path) -> Path:
        with source.open("rb") as content:
            for signed, size in zip(grant.parts, part_lengths(file.bytes), strict=True):
                part = content.read(size)
                if signed is not None:
                    self._put(signed, part, file)
        return source

    def _put(self, signed: Signed, part: bytes, file: File) -> None:
        try:
            answer = self._client.put(urljoin(self._server, signed.url), content=part, headers=signed.headers)
        except httpx.HTTPError as error:
            raise Unreachable(f"{file.path} could not be uploaded: {type(error).__name__}") from None
        if answer.status_code != TAKEN:
            _check(answer, file)


def _check(answer: httpx.Response, file: File) -> None:
    kind: type[GanglineError]
    match answer.status_code:
        case status if status < 300:
            return
        case 401 | 403:
            kind = Denied
        case 404:
            kind = NotFound
        case 408 | 425 | 429:
            kind = Unreachable
        case status if status >= 500:
            kind = Unreachable
        case _:
            kind = BadInput
    raise kind(f"the object store answered {answer.status_code} for {file.path}")
