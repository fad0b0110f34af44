"""Simulate the object store and the transfers to it: signed URLs, write-once keys, transfers that take time and may fail."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Generic, TypeVar

from gangline.core.errors import BadInput, Damaged, Denied, GanglineError, NotFound, Unreachable
from gangline.core.files import PART_BYTES, File, Grant, Signed, part_lengths
from gangline.core.models.bases import ModelRole
from gangline.ports.objects import Stat, UploadPart
from gangline.ports.server import Upload
from gangline.ports.transfer import Task
from gangline.sim.world import World

if TYPE_CHECKING:
    from gangline.sim.faults import Faults

T = TypeVar("T")
R = TypeVar("R")

LATENCY_S = 0.2


@dataclass(slots=True)
class Object:
    size: int
    sha256: str
    made_ms: int
    damaged: bool = False
    content: bytes = b""


@dataclass(slots=True)
class OpenUpload:
    """A multipart upload. `sha256` is that of the whole file, which the store may trust, as every part is checked."""

    key: str
    sha256: str = ""
    parts: dict[int, UploadPart] = field(default_factory=dict)


class SimObjects:
    """The `objects` port."""

    def __init__(self, world: World, faults: "Faults") -> None:
        self._world = world
        self._faults = faults
        self.objects: dict[str, Object] = {}
        self.open: dict[str, OpenUpload] = {}
        self.bytes_sent = 0
        self.deleted: Callable[[str], None] = lambda _: None
        """A function that is called with the key of each object that is deleted."""
        self._begun = 0
        self._below: dict[str, dict[str, None]] = {}
        self._byte_ms_deleted: dict[str, int] = {}

    @property
    def creates_only(self) -> bool:
        return True

    def at_once(self, asks: Iterable[Callable[[], T]]) -> list[T]:
        return [ask() for ask in asks]

    def in_parts(self, bytes: int) -> bool:
        return bytes > PART_BYTES

    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> Signed:
        return Signed(url=f"PUT {now_ms + round(seconds * 1000)} {bytes} {sha256} {key}")

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> Signed:
        return Signed(url=f"GET {now_ms + round(seconds * 1000)} 0 - {key}")

    def sign_part(self, key: str, upload: str, number: int, part: UploadPart, *, now_ms: int, seconds: float) -> Signed:
        return Signed(url=f"PART {now_ms + round(seconds * 1000)} {part.bytes} {part.sha256} {upload} {number}")

    def begin(self, key: str) -> str:
        self._reach()
        self._begun += 1
        upload = f"upload-{self._begun}"
        self.open[upload] = OpenUpload(key)
        return upload

    def put_part(self, key: str, upload: str, number: int, content: bytes) -> None:
        self._reach()
        if upload not in self.open:
            raise NotFound(f"there is no upload {upload}")
        self.open[upload].parts[number] = UploadPart(len(content), hashlib.sha256(content).hexdigest())

    def parts(self, key: str, upload: str) -> dict[int, UploadPart] | None:
        self._reach()
        return self.open[upload].parts if upload in self.open else None

    def complete(self, key: str, upload: str, parts: Sequence[UploadPart]) -> None:
        self._reach()
        if key in self.objects or self.parts(key, upload) != dict(enumerate(parts, 1)):
            return
        ended = self.open.pop(upload)
        self._put(key, Object(sum(part.bytes for part in parts), ended.sha256, self._world.now_ms))

    def abort(self, key: str, upload: str) -> None:
        self._reach()
        self.open.pop(upload, None)

    def uploads(self, key: str) -> list[str]:
        self._reach()
        return [upload for upload, found in self.open.items() if found.key == key]

    def list(self, prefix: str) -> Iterator[str]:
        self._reach()
        return iter(self._below.get(prefix, ()))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        return ((key, self.objects[key].size) for key in self.list(prefix))

    def stat(self, key: str) -> Stat | None:
        self._reach()
        found = self.objects.get(key)
        if found is None or self._faults.is_listing_stale(found.made_ms):
            return None
        return Stat(bytes=found.size, sha256=found.sha256)

    def write(self, key: str, content: bytes) -> None:
        self._reach()
        self._put(key, Object(len(content), "", self._world.now_ms, content=content))

    def read(self, key: str) -> bytes:
        self._reach()
        if key not in self.objects:
            raise NotFound(f"there is no object {key}")
        return self.objects[key].content

    def chunks(self, key: str) -> Iterator[bytes]:
        yield self.read(key)

    def read_back(self, key: str) -> str:
        self._reach()
        if key not in self.objects:
            raise NotFound(f"there is no object {key}")
        found = self.objects[key]
        sha256 = found.sha256 or hashlib.sha256(found.content).hexdigest()
        return hashlib.sha256(sha256.encode()).hexdigest() if found.damaged else sha256

    def delete(self, keys: Sequence[str]) -> None:
        self._reach()
        for key in keys:
            found = self.objects.pop(key, None)
            if found:
                self._below.get(_attempt_of(key), {}).pop(key, None)
                self._byte_ms_deleted[key] = found.size * (self._world.now_ms - found.made_ms)
                self.deleted(key)

    def receive(self, grant: Grant, file: File, share: float = 1.0) -> None:
        """Receive an upload, or only the first `share` of its parts. Raises the errors that a real store would answer with."""
        self._reach()
        missing = [signed.url.split(" ", 4) for signed in grant.parts if signed is not None]
        for method, expires, size, sha256, where in missing[: round(len(missing) * share)]:
            if self._world.now_ms > int(expires):
                raise Denied("this URL has expired")
            if method == "PART":
                self._receive_part(where, UploadPart(int(size), sha256), file)
            else:
                self._receive_whole(method, where, int(size), sha256, file)

    def _receive_part(self, where: str, part: UploadPart, file: File) -> None:
        upload, number = where.split(" ")
        if upload not in self.open:
            raise NotFound(f"there is no upload {upload}")
        if part != simulated_parts(file)[int(number) - 1]:
            raise Damaged("the part is not what was signed for")
        self.open[upload].sha256 = file.sha256
        self.open[upload].parts[int(number)] = part

    def _receive_whole(self, method: str, key: str, size: int, sha256: str, file: File) -> None:
        if method != "PUT" or (size, sha256) != (file.bytes, file.sha256):
            raise Damaged("the upload is not what was signed for")
        if key in self.objects and self.objects[key].sha256 != sha256:
            raise BadInput(f"{key} already has other content")
        if key not in self.objects:
            self._put(key, Object(file.bytes, sha256, self._world.now_ms))

    def _put(self, key: str, found: Object) -> None:
        self.objects[key] = found
        self._below.setdefault(_attempt_of(key), {})[key] = None

    def send(self, signed: Signed, file: File) -> None:
        """Complete a download. Raises the errors of a real store, and `Damaged` if the bytes do not match `file`."""
        self._reach()
        method, expires, _, _, key = signed.url.split(" ", 4)
        if method != "GET" or self._world.now_ms > int(expires):
            raise Denied("this URL has expired")
        found = self.objects.get(key)
        if found is None:
            raise NotFound(f"there is no object {key}")
        self.bytes_sent += found.size
        if found.damaged or found.sha256 != file.sha256:
            raise Damaged(f"{file.path} does not match its SHA-256")

    def byte_ms_of_attempts(self) -> int:
        """Return the bytes × milliseconds of all objects that attempts wrote, which a store bills."""
        now = self._world.now_ms
        lies = {key: found.size * (now - found.made_ms) for key, found in self.objects.items()}
        return sum(spent for key, spent in [*lies.items(), *self._byte_ms_deleted.items()] if "/attempts/" in key)

    def _reach(self) -> None:
        if self._faults.is_store_down():
            raise Unreachable("the object store does not answer")


def _attempt_of(key: str) -> str:
    """Return the folder of the attempt that wrote the object."""
    return "/".join(key.split("/", 6)[:6])


@lru_cache(1024)
def simulated_parts(file: File) -> list[UploadPart]:
    """Return the parts of a file with invented SHA-256s, which no other file has: simulated files have no bytes."""
    return [
        UploadPart(size, hashlib.sha256(f"{file.sha256} {number}".encode()).hexdigest())
        for number, size in enumerate(part_lengths(file.bytes), 1)
    ]


class SimTask(Generic[T]):
    """A transfer in progress."""

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None
        self.result: T


@dataclass(slots=True, kw_only=True)
class SimTransfer:
    """The `transfer` port of one node. It calls `arrived` for each file that is now on disk, and `news` when a transfer ends. `written`
    returns what a file that is still being written will be."""

    world: World
    objects: SimObjects
    faults: "Faults"
    rng: Random
    up_bytes_per_s: float
    down_bytes_per_s: float
    arrived: Callable[[Path, File], None]
    written: Callable[[Path, File], File]
    news: Callable[[], None]
    is_alive: Callable[[], bool]
    idle: bool = True
    _life: int = 0

    def apart(self) -> "SimTransfer":
        return replace(self)

    def describe(self, file: File, source: Path) -> Task[Upload]:
        parts = tuple(part.sha256 or "" for part in simulated_parts(file)) if file.bytes > PART_BYTES else ()
        task = SimTask[Upload]()
        task.result = Upload(path=file.path, bytes=file.bytes, sha256=file.sha256, parts=parts)
        task.done = True  # the time to hash a file is negligible here
        return task

    def upload(self, grant: Grant, file: File, source: Path) -> Task[None]:
        share = 0.5 if self.faults.cuts_upload(self.rng) else 1.0
        lengths = zip(grant.parts, part_lengths(file.bytes), strict=True)
        size = sum(length for signed, length in lengths if signed is not None)

        whole = self.written(source, file)

        def end() -> None:
            self.objects.receive(grant, whole, share)
            if share < 1:
                raise Unreachable("the upload was cut off")

        seconds = LATENCY_S + size / self.up_bytes_per_s * self.faults.store_slowness()
        return self._start(seconds * share, "uploaded", end)

    def download(self, signed: Signed, file: File, to: Path, *, durable: bool) -> Task[None]:
        def end() -> None:
            self.objects.send(signed, file)
            self.arrived(to, file)

        seconds = LATENCY_S + file.bytes / self.down_bytes_per_s * self.faults.store_slowness()
        return self._start(seconds, "downloaded", end)

    def list_hub(self, repo: str, commit: str, role: ModelRole) -> Task[tuple[File, ...]]:
        raise AssertionError("simulated jobs have their base in the object store")

    def download_from_hub(self, repo: str, commit: str, file: File, to: Path) -> Task[None]:
        raise AssertionError("simulated jobs have their base in the object store")

    def stop(self) -> None:
        self._life += 1

    def _start(self, seconds: float, what: str, end: Callable[[], R]) -> Task[R]:
        task, life = SimTask[R](), self._life

        def ended() -> None:
            if not self.is_alive() or life != self._life:
                return
            try:
                task.result = end()
            except GanglineError as error:
                task.error = error
            task.done = True
            self.news()

        self.world.after(seconds, what, ended)
        return task
