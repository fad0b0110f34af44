"""Bytes over HTTP in the background: a thread for each file, and a few for the parts of all of them."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar

from gangline.adapters.carrier import Carrier, Patience
from gangline.core.files import File, Grant, Signed
from gangline.ports.server import Upload

T = TypeVar("T")

FILES_AT_ONCE = 8
PARTS_AT_ONCE = 8
PATIENCE = Patience()


class Bases(Protocol):
    def fetch(self, repo: str, commit: str) -> Path: ...


@dataclass(slots=True)
class FutureTask(Generic[T]):
    future: "Future[T]"

    @property
    def done(self) -> bool:
        return self.future.done()

    @property
    def error(self) -> Exception | None:
        failure = self.future.exception() if self.future.done() else None
        assert failure is None or isinstance(failure, Exception)
        return failure

    @property
    def result(self) -> T:
        return self.future.result()


class HttpTransfer:
    """`server` is where URLs without a host belong."""

    def __init__(self, server: str, bases: Bases, rng: Random, patience: Patience = PATIENCE) -> None:
        self._bases = bases
        self._files = ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="file")
        self._new_carrier = partial(
            Carrier, server, ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="part"), patience, rng
        )
        self._carrier = self._new_carrier()
        self._under_way: list[Future[Any]] = []

    def describe(self, file: File, source: Path) -> FutureTask[Upload]:
        return self._start(partial(self._carrier.describe, file, source))

    def upload(self, grant: Grant, file: File, source: Path) -> FutureTask[None]:
        return self._start(partial(self._carrier.upload, grant, file, source))

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> FutureTask[None]:
        return self._start(partial(self._carrier.download, signed, file, to, durable=durable))

    def fetch_base(self, repo: str, commit: str) -> FutureTask[Path]:
        """In a thread that does not keep the process from ending: the hub's library cannot be stopped, and goes on next time."""
        future: Future[Path] = Future()
        Thread(target=_settle, args=(future, partial(self._bases.fetch, repo, commit)), daemon=True).start()
        return FutureTask(future)

    def stop(self) -> None:
        self._carrier.close()
        self._carrier = self._new_carrier()

    @property
    def idle(self) -> bool:
        self._under_way = [future for future in self._under_way if not future.done()]
        return not self._under_way

    def _start(self, work: Callable[[], T]) -> FutureTask[T]:
        future = self._files.submit(work)
        self._under_way = [*(other for other in self._under_way if not other.done()), future]
        return FutureTask(future)


def _settle(future: "Future[T]", work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
