"""A real object server on loopback, a bad network before it, and something to carry."""

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from gangline.adapters.hub import HuggingFaceHub, NodesHub
from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.transfer.carrier import Patience
from gangline.adapters.transfer.transfer import NodesTransfer, nowhere
from gangline.api.answers import problems
from gangline.api.object_routes import object_routes
from gangline.core.files import PART_BYTES, File, Grant, Signed
from gangline.ports.server import Upload
from gangline.ports.transfer import Task
from tests.proxy import Proxy

HURRIED = Patience(connect_s=5, stall_s=20, tries=3, retry_s_first=0.01)


@dataclass
class Clock:
    """All that the routes of the object store want of the database."""

    time_ms: int = 0

    def now_ms(self) -> int:
        return self.time_ms


@dataclass
class Place:
    """`objects` behind HTTP at `address`; each part of an upload is an object of its own here."""

    objects: LocalObjects
    address: tuple[str, int]
    folder: Path
    clock: Clock = field(default_factory=Clock)

    def file(self, length: int, name: str = "w.safetensors") -> tuple[File, Path]:
        """Bytes that are the same each time."""
        path = self.folder / name
        content = Random(length).randbytes(length)
        path.write_bytes(content)
        return File(path=name, bytes=length, sha256=hashlib.sha256(content).hexdigest()), path

    def stored(self, length: int) -> tuple[File, bytes]:
        file, path = self.file(length)
        self.objects.write(f"whole/{file.path}", path.read_bytes())
        return file, path.read_bytes()

    def to_read(self, proxy: Proxy, file: File) -> Signed:
        return _through(proxy, self.objects.sign_get(f"whole/{file.path}", now_ms=0, seconds=1))

    def to_write(self, proxy: Proxy, upload: Upload) -> Grant:
        """A request for each part that is not here yet."""
        return Grant(parts=tuple(self._part(proxy, upload, number) for number in range(len(upload.parts) or 1)))

    def came_in(self, upload: Upload) -> bytes:
        return b"".join(self.objects.read(f"{upload.path}/{number}") for number in range(len(upload.parts) or 1))

    def _part(self, proxy: Proxy, upload: Upload, number: int) -> Signed | None:
        key = f"{upload.path}/{number}"
        sha256 = upload.parts[number] if upload.parts else upload.sha256
        length = min(PART_BYTES, upload.bytes - number * PART_BYTES) if upload.parts else upload.bytes
        if self.objects.stat(key):
            return None
        return _through(proxy, self.objects.sign_put(key, bytes=length, sha256=sha256, now_ms=0, seconds=1))


def _through(proxy: Proxy, signed: Signed) -> Signed:
    return Signed(url=proxy.url + signed.url, headers=signed.headers)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    objects = LocalObjects(tmp_path / "store", "secret")
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    there = Place(objects, listening.getsockname(), tmp_path)
    app = FastAPI()
    problems.install(app)
    app.include_router(object_routes(objects, there.clock))  # type: ignore[arg-type]
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="critical", log_config=None, access_log=False, timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield there
    server.should_exit = True
    thread.join()


@pytest.fixture
def make_transfer() -> Iterator[Callable[..., NodesTransfer]]:
    made: list[NodesTransfer] = []

    def make(
        patience: Patience = HURRIED,
        server: str = "http://nowhere.invalid",
        finds: Callable[[File], Path | None] = nowhere,
    ) -> NodesTransfer:
        made.append(NodesTransfer(server, NodesHub(HuggingFaceHub(""), Path()), Random(0), patience, finds=finds))
        return made[-1]

    yield make
    for transfer in made:
        transfer.stop()


@pytest.fixture
def transfer(make_transfer: Callable[..., NodesTransfer]) -> NodesTransfer:
    return make_transfer()


def ended(task: Task[Any]) -> Exception | None:
    """Wait for it; its error. pytest's time-out ends it."""
    return task.future.exception()  # type: ignore[attr-defined]
