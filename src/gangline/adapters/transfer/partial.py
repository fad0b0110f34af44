"""A file that is being downloaded: its bytes, in any order, and which parts are there."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from mmap import PROT_READ, mmap
from pathlib import Path
from threading import Event
from types import TracebackType

from gangline.core.canonical import digest
from gangline.core.errors import Damaged, Unreachable
from gangline.core.files import NAME_BYTES_MAX, PART_BYTES, File
from gangline.posix import flush

LOOK_EVERY_S = 0.2


class Partial:
    """A file beside its destination, under a name by which a later try, even of a later process, finds it and resumes. Its writer holds a
    lock on it; others wait, and then find the complete file (`there`) at the destination.

    It consists of the file's bytes followed by one byte for each part: 1 if that part is complete. Only the SHA-256 at the end is trusted,
    so it does not matter what a crash of the machine left behind. A damaged file is deleted.
    """

    def __init__(self, to: Path, file: File, stopped: Event) -> None:
        self._to = to
        self._stopped = stopped
        self.there = False
        self._file = file
        self._path = to.with_name(_partial_name(to.name, file.sha256))
        self.parts = -(-file.bytes // PART_BYTES)
        self._hash = hashlib.sha256()
        self._hashed = 0

    def __enter__(self) -> "Partial":
        self._to.parent.mkdir(parents=True, exist_ok=True)
        self._handle = self._open_alone()
        self.there = self._to.exists()
        if self.there:
            self._path.unlink()
            return self
        try:
            self._take_room(self._file.bytes + self.parts)
        except OSError:
            os.close(self._handle)
            self._path.unlink()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        os.close(self._handle)
        if kind is Damaged:
            self._path.unlink(missing_ok=True)

    def _open_alone(self) -> int:
        """Open and lock the file. Raises `Unreachable` if the transfer is stopped while another process writes it."""
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            while not _lock(handle):
                if self._stopped.wait(LOOK_EVERY_S):
                    os.close(handle)
                    raise Unreachable("the transfer was stopped")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), self._path.stat()):
                    return handle
            os.close(handle)  # its last writer has completed or deleted it

    def _take_room(self, size: int) -> None:
        """Allocate all space in advance, unless an earlier try did: a disk that is too small shows before anything is downloaded."""
        if os.fstat(self._handle).st_size != size:
            os.ftruncate(self._handle, 0)
            if size:
                os.posix_fallocate(self._handle, 0, size)

    def missing(self, parts_max: int) -> Iterator[range]:
        """Yield the missing ranges of bytes in order, each of at most `parts_max` parts."""
        there = os.pread(self._handle, self.parts, self._file.bytes)
        for complete, group in groupby(range(self.parts), key=lambda part: there[part] == 1):
            parts = [] if complete else list(group)
            for first in range(0, len(parts), parts_max):
                last = parts[first : first + parts_max][-1]
                yield range(parts[first] * PART_BYTES, min(self._file.bytes, (last + 1) * PART_BYTES))

    def write(self, at: int, piece: memoryview) -> None:
        """Write bytes that follow the previous ones in their part, or begin a part."""
        end = at + len(piece)
        while piece:
            piece = piece[os.pwrite(self._handle, piece, end - len(piece)) :]
        complete = self.parts if end == self._file.bytes else end // PART_BYTES
        for part in range(at // PART_BYTES, complete):
            os.pwrite(self._handle, b"\1", self._file.bytes + part)

    def check(self, end: int) -> None:
        """Hash the bytes up to `end`, read back from the file, since parts arrive in any order."""
        if end > self._hashed:
            whole = mmap(self._handle, 0, prot=PROT_READ)
            with whole, memoryview(whole) as content, content[self._hashed : end] as news:
                self._hash.update(news)
            self._hashed = end

    def complete(self, *, durable: bool) -> None:
        """Move the file to its destination. Raises `Damaged` if its bytes do not match the SHA-256."""
        self.check(self._file.bytes)
        if self._hash.hexdigest() != self._file.sha256:
            raise Damaged(f"{self._file.path} does not match its SHA-256")
        os.ftruncate(self._handle, self._file.bytes)
        if durable:
            os.fsync(self._handle)
        self._path.rename(self._to)
        if durable:
            flush(self._to.parent)


def _partial_name(name: str, sha256: str) -> str:
    """Return a recognisable name if it fits into `NAME_BYTES_MAX`, the longest name of a file, else a hash."""
    whole = f".{name}.{sha256[:16]}.partial"
    return whole if len(os.fsencode(whole)) <= NAME_BYTES_MAX else f".{digest([name, sha256])}.partial"


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
