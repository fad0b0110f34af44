"""How far uploads and downloads are: what both clients report to a caller's `progress`."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from gangline.core.datasets.views import DatasetVersionView
from gangline.core.errors import BadInput, UserError
from gangline.core.files import File, is_safe_path, partial_name

CHUNK = 1 << 20
FILES_AT_ONCE = 8
PARTS_AT_ONCE = 4
"""Parts are 16 MiB each, and held in memory while they are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    """How far an upload or a download is. `path` is the file that moved last; `bytes_done` and `bytes_total` are of all files together,
    `file_bytes_done` and `file_bytes` of this one. What was there already counts at once."""

    path: str
    bytes_done: int
    bytes_total: int
    file_bytes_done: int
    file_bytes: int

    def within(self, bytes_before: int, bytes_total: int) -> "TransferProgress":
        """Return the same as a part of more: `bytes_before` were done before, of `bytes_total` in all."""
        return replace(self, bytes_done=bytes_before + self.bytes_done, bytes_total=bytes_total)

    def __str__(self) -> str:
        return f"{self.path}: {self.bytes_done / 1e6:.1f} of {self.bytes_total / 1e6:.1f} MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFiles:
    """Files that are stored now. `sent` contents were uploaded; the others were stored already, or are the same as another file."""

    files: tuple[File, ...]
    sent: int

    @property
    def stored(self) -> int:
        """How many of the files were not sent."""
        return len(self.files) - self.sent


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedVersion:
    """The version of a data set that a push made or found. `sent` files were uploaded, `stored` ones were stored already."""

    version: DatasetVersionView
    sent: int
    stored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledFiles:
    """The files of a version that are in a folder now. `downloaded` are those that were not there before; `bytes` are of all."""

    files: int
    downloaded: int
    bytes: int


ProgressCallback = Callable[[TransferProgress], object]


class TransferTally:
    """Counts the bytes of files that move, some at the same time, and calls `progress` by one thread at a time.

    It is called for each file when it begins, with what is there already, and then whenever more of it has arrived.
    """

    def __init__(self, sizes: Mapping[str, int], progress: ProgressCallback | None) -> None:
        self._sizes = sizes
        self._total = sum(sizes.values())
        self._done: dict[str, int] = {}
        self._all_done = 0
        self._progress = progress
        self._lock = threading.Lock()

    def reached(self, path: str, done: int) -> None:
        """Note how many bytes of a file are there."""
        with self._lock:
            self._note(path, done)

    def moved(self, path: str, more: int) -> None:
        """Note that more bytes of a file have arrived."""
        with self._lock:
            self._note(path, self._done.get(path, 0) + more)

    def _note(self, path: str, done: int) -> None:
        before = self._done.get(path)
        if before == done:
            return
        self._done[path] = done
        self._all_done += done - (before or 0)
        if self._progress:
            self._progress(
                TransferProgress(
                    path=path,
                    bytes_done=self._all_done,
                    bytes_total=self._total,
                    file_bytes_done=done,
                    file_bytes=self._sizes[path],
                )
            )


class PartialFile:
    """A file while it is downloaded: hashed as it is written, and under its own name only once it is complete.

    Two downloads of one file may overlap, so each writes a partial file of its own: what it has hashed is what that file has.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.partial = target.with_name(partial_name(target.name, uuid4().hex))
        self._hashed = hashlib.sha256()
        self._out: BinaryIO | None = None

    def open(self) -> None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._out = self.partial.open("xb")

    def write(self, chunk: bytes) -> None:
        assert self._out
        self._hashed.update(chunk)
        self._out.write(chunk)

    def finish(self, sha256: str) -> bool:
        """Give the file its name if its bytes are the right ones. Return whether they are."""
        assert self._out
        self._out.close()
        if self._hashed.hexdigest() != sha256:
            return False
        self.partial.replace(self.target)
        return True

    def discard(self) -> None:
        """Leave nothing behind of a download that has not finished."""
        if self._out:
            self._out.close()
            self.partial.unlink(missing_ok=True)


def refuse_links_out(folder: Path, paths: Iterable[str]) -> None:
    """Raise `BadInput` if a folder below this one is a link that leads out of it: a file would be written there.

    Paths that lead out of it by themselves are left to the download, which refuses them."""
    inside = folder.resolve()
    for parent in sorted({(folder / path).parent for path in paths if is_safe_path(path)}):
        if not parent.resolve().is_relative_to(inside):
            raise BadInput(f"{parent} is a link that leads out of {folder}", hint="name another folder")


def has_bytes(path: Path, size: int) -> bool:
    """Return whether a file of this size is there."""
    try:
        return path.is_file() and path.stat().st_size == size
    except OSError:
        return False


def not_written(target: Path, error: OSError) -> UserError:
    why = (error.strerror or str(error)).lower()
    return UserError(f"{target} cannot be written: {why}", hint="name a folder on a disk with enough space")
