"""Hash files, in steps that are short enough for a thread that an event loop waits for.

A plan hashes what an upload then needs hashed, so results are remembered.
"""

import hashlib
from pathlib import Path

from gangline.core.files import PART_BYTES

REMEMBERED_MAX = 10_000
Hashes = tuple[str, tuple[str, ...]]
"""The SHA-256 of a file and, if it has several parts, of each."""
_known: dict[tuple[Path, int, int], Hashes] = {}


class Hashing:
    """The hashing of one file. `hashes` is None until enough steps are taken, and known at once for a file that has not changed since."""

    def __init__(self, path: Path) -> None:
        seen = path.stat()
        self.path = path
        self.bytes = seen.st_size
        self._key = (path, seen.st_size, seen.st_mtime_ns)
        self._whole = hashlib.sha256()
        self._parts: list[str] = []
        self.hashes: Hashes | None = _known.get(self._key)

    def step(self) -> None:
        """Read and hash one part."""
        with self.path.open("rb") as content:
            content.seek(len(self._parts) * PART_BYTES)
            part = content.read(PART_BYTES)
        if part:
            self._whole.update(part)
            self._parts.append(hashlib.sha256(part).hexdigest())
        if len(part) < PART_BYTES:
            self.hashes = self._whole.hexdigest(), tuple(self._parts) if len(self._parts) > 1 else ()
            _remember(self._key, self.hashes)


def hashes(path: Path) -> Hashes:
    """Return the SHA-256 of a file and, if it has several parts, of each."""
    hashing = Hashing(path)
    while hashing.hashes is None:
        hashing.step()
    return hashing.hashes


def _remember(key: tuple[Path, int, int], found: Hashes) -> None:
    while len(_known) >= REMEMBERED_MAX:
        _known.pop(next(iter(_known)), None)
    _known[key] = found
