"""A file that is still coming in: its bytes, in any order, and which of them are there."""

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
    """Lies beside its place under a name of its own, so that a later try, also of a later process, finds it and goes on. Who writes
    it holds a lock on it: others wait, and find the whole file (`there`) in its place.

    On the disk it is the bytes of the file and behind them one byte for each part: 1 where that part is complete. Nothing
    but the SHA-256 at the end is trusted, so what a crash of the machine left need not be whole. What turns out damaged goes.
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
        """Raises `Unreachable` where it is told to stop while another writes it."""
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            while not _lock(handle):
                if self._stopped.wait(LOOK_EVERY_S):
                    os.close(handle)
                    raise Unreachable("the transfer was stopped")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), self._path.stat()):
                    return handle
            os.close(handle)  # who had it has completed it, or given it up

    def _take_room(self, size: int) -> None:
        """All of it now, unless it was before: a disk that is too small is known before anything has come."""
        if os.fstat(self._handle).st_size != size:
            os.ftruncate(self._handle, 0)
            if size:
                os.posix_fallocate(self._handle, 0, size)

    def missing(self, parts_max: int) -> Iterator[range]:
        """The bytes that are not there yet, in order, in runs of at most so many parts."""
        there = os.pread(self._handle, self.parts, self._file.bytes)
        for complete, group in groupby(range(self.parts), key=lambda part: there[part] == 1):
            parts = [] if complete else list(group)
            for first in range(0, len(parts), parts_max):
                last = parts[first : first + parts_max][-1]
                yield range(parts[first] * PART_BYTES, min(self._file.bytes, (last + 1) * PART_BYTES))

    def write(self, at: int, piece: memoryview) -> None:
        """Bytes that follow on those before in their part, or begin it."""
        end = at + len(piece)
        while piece:
            piece = piece[os.pwrite(self._handle, piece, end - len(piece)) :]
        complete = self.parts if end == self._file.bytes else end // PART_BYTES
        for part in range(at // PART_BYTES, complete):
            os.pwrite(self._handle, b"\1", self._file.bytes + part)

    def check(self, end: int) -> None:
        """Take what lies before `end` into the hash: from the file, since parts come in any order."""
        if end > self._hashed:
            whole = mmap(self._handle, 0, prot=PROT_READ)
            with whole, memoryview(whole) as content, content[self._hashed : end] as news:
                self._hash.update(news)
            self._hashed = end

    def complete(self, *, durable: bool) -> None:
        """Give it its name. Raises `Damaged` where its bytes are not those of the file."""
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
    """Recognisable where that fits: a disk keeps no names of more than `NAME_BYTES_MAX`."""
    whole = f".{name}.{sha256[:16]}.partial"
    return whole if len(os.fsencode(whole)) <= NAME_BYTES_MAX else f".{digest([name, sha256])}.partial"


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
