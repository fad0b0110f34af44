"""Transfer files over HTTP in the background: a thread for each file, and a few for the parts of all of them."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from gangline.adapters.transfer.carrier import Carrier, OpenSource, Patience, open_anywhere
from gangline.core.errors import Denied, GanglineError
from gangline.core.files import File, Grant, Signed
from gangline.core.models.bases import ModelRole
from gangline.ports.server import Upload

T = TypeVar("T")

FILES_AT_ONCE = 8
PARTS_AT_ONCE = 8
PATIENCE = Patience()


class NodeHub(Protocol):
    """The calls to the hub that a node makes; see `NodesHub`."""

    def files(self, repo: str, commit: str, role: ModelRole) -> tuple[File, ...]: ...

    def locate(self, repo: str, commit: str, path: str) -> Signed: ...

    def take_users(self, repo: str, commit: str, file: File, to: Path) -> bool: ...


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
    """The `transfer` port. `server` is the base of URLs without a host. `nice` is how far its threads lower their priority (setpriority(2),
    which Linux applies to each thread); `opens` opens what is uploaded; `news` is called, by any thread, when a task has ended."""

    def __init__(
        self,
        server: str,
        rng: Random,
        patience: Patience = PATIENCE,
        *,
        nice: int = 0,
        opens: OpenSource = open_anywhere,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        self._news = news
        threads = partial(ThreadPoolExecutor, initializer=os.nice, initargs=(nice,))
        self._files = threads(FILES_AT_ONCE, thread_name_prefix="file")
        parts = threads(PARTS_AT_ONCE, thread_name_prefix="part")
        self._new_carrier = partial(Carrier, server, parts, patience, rng, opens)
        self._carrier = self._new_carrier()
        self._under_way: list[Future[Any]] = []

    def describe(self, file: File, source: Path) -> FutureTask[Upload]:
        return self._start(partial(self._carrier.describe, file, source))

    def upload(self, grant: Grant, file: File, source: Path) -> FutureTask[None]:
        return self._start(partial(self._carrier.upload, grant, file, source))

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> FutureTask[None]:
        return self._start(partial(self._carrier.download, signed, file, to, durable=durable))

    def stop(self) -> None:
        self._carrier.close()
        self._carrier = self._new_carrier()

    @property
    def idle(self) -> bool:
        self._under_way = [future for future in self._under_way if not future.done()]
        return not self._under_way

    def _start(self, work: Callable[[], T]) -> FutureTask[T]:
        future = self._files.submit(work)
        future.add_done_callback(lambda _: self._news())
        self._under_way = [*(other for other in self._under_way if not other.done()), future]
        return FutureTask(future)


def nowhere(_file: File) -> Path | None:
    return None


class NodesTransfer(HttpTransfer):
    """A transfer that also downloads from the hub. What this machine has at the place that `finds` returns is copied from there, unless it
    turns out to be something else."""

    def __init__(
        self,
        server: str,
        hub: NodeHub,
        rng: Random,
        patience: Patience = PATIENCE,
        *,
        opens: OpenSource = open_anywhere,
        news: Callable[[], None] = lambda: None,
        finds: Callable[[File], Path | None] = nowhere,
    ) -> None:
        super().__init__(server, rng, patience, opens=opens, news=news)
        self._hub = hub
        self._finds = finds
        self._apart = partial(NodesTransfer, server, hub, rng, patience, opens=opens, news=news, finds=finds)

    def apart(self) -> "NodesTransfer":
        return (
            self._apart()
        )  # with threads of its own: a long download of one attempt holds up no checkpoint of another

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> FutureTask[None]:
        return self._start(partial(self._download, self._carrier, signed, file, to, durable=durable))

    def list_hub(self, repo: str, commit: str, role: ModelRole) -> FutureTask[tuple[File, ...]]:
        return self._start(partial(self._hub.files, repo, commit, role))

    def download_from_hub(self, repo: str, commit: str, file: File, to: Path) -> FutureTask[None]:
        return self._start(partial(self._download_from_hub, self._carrier, repo, commit, file, to))

    def _download(self, carrier: Carrier, signed: Signed, file: File, to: Path, *, durable: bool) -> None:
        if not self._copied(carrier, file, to):
            carrier.download(signed, file, to, durable=durable)

    def _copied(self, carrier: Carrier, file: File, to: Path) -> bool:
        found = self._finds(file)
        return found is not None and carrier.copy(file, found, to)

    def _download_from_hub(self, carrier: Carrier, repo: str, commit: str, file: File, to: Path) -> None:
        if self._copied(carrier, file, to) or self._hub.take_users(repo, commit, file, to):
            return
        try:
            signed = self._hub.locate(repo, commit, file.path)
        except Denied as error:  # permanent, unlike a URL that has expired
            raise GanglineError(error.message, hint=error.hint) from None
        carrier.download(signed, file, to, durable=True)
