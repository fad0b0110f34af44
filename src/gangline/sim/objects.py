"""The object store and the way to it: signed URLs, write-once keys, bytes that take their time and may not arrive."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from gangline.core.errors import BadInput, Damaged, Denied, GanglineError, NotFound, Unreachable
from gangline.core.files import File
from gangline.ports.objects import Stat
from gangline.ports.transfer import Task
from gangline.sim.world import World

if TYPE_CHECKING:
    from gangline.sim.faults import Faults

LATENCY_S = 0.2


@dataclass(slots=True)
class Object:
    size: int
    sha256: str
    made_ms: int
    damaged: bool = False
    content: bytes = b""


class SimObjects:
    """The `objects` port."""

    def __init__(self, world: World, faults: "Faults") -> None:
        self._world = world
        self._faults = faults
        self.objects: dict[str, Object] = {}
        self.bytes_sent = 0
        self._byte_ms_deleted: dict[str, int] = {}

    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> str:
        return f"PUT {now_ms + round(seconds * 1000)} {bytes} {sha256} {key}"

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> str:
        return f"GET {now_ms + round(seconds * 1000)} 0 - {key}"

    def stat(self, key: str) -> Stat | None:
        self._reach()
        found = self.objects.get(key)
        if found is None or self._faults.is_listing_stale(found.made_ms):
            return None
        return Stat(bytes=found.size, sha256=found.sha256)

    def write(self, key: str, content: bytes) -> None:
        self._reach()
        self.objects[key] = Object(len(content), "", self._world.now_ms, content=content)

    def read(self, key: str) -> bytes:
        self._reach()
        if key not in self.objects:
            raise NotFound(f"there is no object {key}")
        return self.objects[key].content

    def delete(self, key: str) -> None:
        self._reach()
        found = self.objects.pop(key, None)
        if found:
            self._byte_ms_deleted[key] = found.size * (self._world.now_ms - found.made_ms)

    def receive(self, url: str, file: File) -> None:
        """An upload that has come in whole."""
        self._reach()
        method, expires, size, sha256, key = url.split(" ", 4)
        if method != "PUT" or (int(size), sha256) != (file.bytes, file.sha256):
            raise Damaged("the upload is not what was signed for")
        if self._world.now_ms > int(expires):
            raise Denied("this URL has expired")
        if key in self.objects and self.objects[key].sha256 != sha256:
            raise BadInput(f"{key} is taken by other bytes")
        self.objects.setdefault(key, Object(file.bytes, sha256, self._world.now_ms))

    def send(self, url: str, file: File) -> None:
        """A download that has come to its end."""
        self._reach()
        method, expires, _, _, key = url.split(" ", 4)
        if method != "GET" or self._world.now_ms > int(expires):
            raise Denied("this URL has expired")
        found = self.objects.get(key)
        if found is None:
            raise NotFound(f"there is no object {key}")
        self.bytes_sent += found.size
        if found.damaged or found.sha256 != file.sha256:
            raise Damaged(f"{file.path} does not match its SHA-256")

    def byte_ms_of_attempts(self) -> int:
        """Bytes × milliseconds of all that attempts have written, as a store bills them."""
        now = self._world.now_ms
        lies = {key: found.size * (now - found.made_ms) for key, found in self.objects.items()}
        return sum(spent for key, spent in [*lies.items(), *self._byte_ms_deleted.items()] if "/attempts/" in key)

    def _reach(self) -> None:
        if self._faults.is_store_down():
            raise Unreachable("the object store does not answer")


class SimTask:
    """A transfer under way."""

    def __init__(self, to: Path) -> None:
        self.done = False
        self.error: Exception | None = None
        self.path = to


@dataclass(slots=True, kw_only=True)
class SimTransfer:
    """The `transfer` port of one node. `arrived` is told what lies on its disk now, `news` that something ended."""

    world: World
    objects: SimObjects
    faults: "Faults"
    rng: Random
    up_bytes_per_s: float
    down_bytes_per_s: float
    arrived: Callable[[Path, File], None]
    news: Callable[[], None]
    is_alive: Callable[[], bool]

    def download(self, url: str, file: File, to: Path) -> Task:
        def end() -> None:
            self.objects.send(url, file)
            self.arrived(to, file)

        return self._start(SimTask(to), file.bytes / self.down_bytes_per_s, "downloaded", end)

    def upload(self, url: str, file: File, source: Path) -> Task:
        cut = self.faults.cuts_upload(self.rng)

        def end() -> None:
            if cut:
                raise Unreachable("the upload was cut off")
            self.objects.receive(url, file)

        return self._start(SimTask(source), file.bytes / self.up_bytes_per_s * (0.5 if cut else 1), "uploaded", end)

    def fetch_base(self, repo: str, commit: str) -> Task:
        raise AssertionError("simulated jobs have their base in the object store")

    def _start(self, task: SimTask, seconds: float, what: str, end: Callable[[], None]) -> SimTask:
        def ended() -> None:
            if not self.is_alive():
                return
            try:
                end()
            except GanglineError as error:
                task.error = error
            task.done = True
            self.news()

        self.world.after(LATENCY_S + seconds * self.faults.store_slowness(), what, ended)
        return task
