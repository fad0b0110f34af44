"""A node's cache: bytes under their SHA-256, below a limit. Several workers of one machine may share it.

A run has hard links to what it uses, so a file with two names is in use; who downloads one holds a lock on what there is of it.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.core.canonical import digest
from gangline.core.files import File, is_sha256
from gangline.core.fleet.cache import Cached, to_evict

SHARE_OF_DISK = 0.5
"""Of what is free or in the cache, where no limit is given."""

FREE_BYTES_MIN = 2 * 2**30
"""So much of the disk is left to others."""

BASES = "bases"


class Cache:
    def __init__(self, folder: Path, limit_bytes: int | None = None) -> None:
        self.folder = folder
        (folder / BASES).mkdir(parents=True, exist_ok=True)
        known = sum(each.bytes for each in self._look())
        self.limit_bytes = limit_bytes or round(SHARE_OF_DISK * (shutil.disk_usage(folder).free + known))

    def room_bytes(self) -> int:
        """Return what is free on its disk, or would be without all that it holds."""
        return shutil.disk_usage(self.folder).free + sum(each.bytes for each in self._look())

    def place(self, sha256: str) -> Path:
        """Where the bytes with this hash lie, or are to be put."""
        return self.folder / sha256

    def link(self, file: File, to: Path) -> bool:
        """A second name for it. False where it is not here, or not as long as it was when it came and was checked."""
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
        """For so much more. What is in use stays, so that a run always has what it needs; after it the limit holds again."""
        with self._alone():
            found = self._look()
            size = sum(each.bytes for each in found)
            free = shutil.disk_usage(self.folder).free - FREE_BYTES_MIN
            limit = min(self.limit_bytes, size + max(0, free))
            for each in to_evict(found, room_bytes=room_bytes, limit_bytes=limit, now_s=time.time()):
                (self.folder / each.name).unlink(missing_ok=True)

    def remember(self, base: str, files: tuple[File, ...]) -> None:
        """That these are what runs on this node use of a base."""
        path = self.folder / BASES / f"{digest(base)}.json"
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps({"base": base, "files": [file.sha256 for file in files]}))
        partial.rename(path)

    def bases(self) -> tuple[str, ...]:
        """Those whose files are all here still."""
        held = []
        for path in sorted((self.folder / BASES).glob("*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(path.read_text())
                if all(self.place(sha256).exists() for sha256 in record["files"]):
                    held.append(str(record["base"]))
        return tuple(held)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _look(self) -> list[Cached]:
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
    """Whether somebody holds a lock on it."""
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
