"""A node's cache: files named by their SHA-256, and virtual environments, below a limit. Several workers of one machine may share it.

A run uses a file through a hard link, so a file with two names is in use. A download holds a lock on its partial file.

Beside it there may be a cache that is only read, such as one in an image. Its files are copied from there, and checked as downloads are: a
link to them would make them a run's, and an image's layers cannot be linked to without being copied anyway.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.adapters.host.environments import Environments
from gangline.core.canonical import digest
from gangline.core.files import File, is_sha256
from gangline.core.fleet.cache import Cached, to_evict

SHARE_OF_DISK = 0.5
"""The default limit, as a share of the space that is free or in the cache."""

FREE_BYTES_MIN = 2 * 2**30
"""Free space that the cache leaves to others."""

BASES, ENVIRONMENTS = "bases", "environments"


class Cache:
    def __init__(
        self,
        folder: Path,
        limit_bytes: int | None = None,
        environments: Environments | None = None,
        read_only: Path | None = None,
    ) -> None:
        self.folder = folder
        self.read_only = read_only
        self.environments = environments or Environments(folder / ENVIRONMENTS)
        (folder / BASES).mkdir(parents=True, exist_ok=True)
        known = sum(each.bytes for each in self._look())
        self.limit_bytes = limit_bytes or round(SHARE_OF_DISK * (shutil.disk_usage(folder).free + known))

    def room_bytes(self) -> int:
        """Return the bytes that are free on its disk, or would be if the cache were empty."""
        return shutil.disk_usage(self.folder).free + sum(each.bytes for each in self._look())

    def place(self, sha256: str) -> Path:
        """Return the path for the bytes with this hash, whether they are there or not."""
        return self.folder / sha256

    def unchecked(self, file: File) -> Path | None:
        """Return where the read-only cache has a file of this name and size, None if it has none."""
        place = self.read_only / file.sha256 if self.read_only else None
        with suppress(OSError):
            if place and place.is_file() and place.stat().st_size == file.bytes:
                return place
        return None

    def link(self, file: File, to: Path) -> bool:
        """Give the file a second name. Return False if it is not here; if its size is not the one that was checked, it is deleted."""
        place = self.place(file.sha256)
        try:
            if place.stat().st_size != file.bytes:
                place.unlink(missing_ok=True)
                return False
            os.utime(place)
            to.parent.mkdir(parents=True, exist_ok=True)
            os.link(place, to)
        except FileNotFoundError:
            return False
        return True

    def make_room(self, room_bytes: int) -> None:
        """Evict files until there is room for this many more bytes. Files in use stay, so that a run keeps what it needs; the limit may be
        exceeded until it ends."""
        with self._alone():
            environments = list(self.environments.kept())
            found = [*self._files(), *environments]
            size = sum(each.bytes for each in found)
            free = shutil.disk_usage(self.folder).free - FREE_BYTES_MIN
            limit = min(self.limit_bytes, size + max(0, free))
            for each in to_evict(found, room_bytes=room_bytes, limit_bytes=limit, now_s=time.time()):
                if each in environments:
                    self.environments.evict(each.name)
                else:
                    (self.folder / each.name).unlink(missing_ok=True)

    def remember(self, base: str, files: tuple[File, ...]) -> None:
        """Record the files that runs on this node use of a base."""
        path = self.folder / BASES / f"{digest(base)}.json"
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps({"base": base, "files": [file.sha256 for file in files]}))
        partial.rename(path)

    def bases(self) -> tuple[str, ...]:
        """Return the bases whose files are all still here, or in the read-only cache."""
        folders = [self.folder, *([self.read_only] if self.read_only else [])]
        held = []
        for path in sorted(path for folder in folders for path in (folder / BASES).glob("*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(path.read_text())
                if all(any((folder / sha256).exists() for folder in folders) for sha256 in record["files"]):
                    held.append(str(record["base"]))
        return tuple(dict.fromkeys(held))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _look(self) -> list[Cached]:
        return [*self._files(), *self.environments.kept()]

    def _files(self) -> list[Cached]:
        return [found for entry in os.scandir(self.folder) if (found := _cached(entry))]


def _cached(entry: "os.DirEntry[str]") -> Cached | None:
    partial = entry.name.endswith(".partial")
    if not partial and not is_sha256(entry.name):
        return None
    try:
        status = entry.stat()
        in_use = is_locked(Path(entry.path)) if partial else status.st_nlink > 1
    except FileNotFoundError:
        return None
    size = status.st_blocks * 512 if partial else status.st_size
    return Cached(name=entry.name, bytes=size, used_s=status.st_mtime, partial=partial, in_use=in_use)


def is_locked(path: Path) -> bool:
    """Return whether another process holds a lock on the file."""
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
