"""A cache of remote data sets' blocks on this machine's disk. The least recently used blocks are deleted first.

Several processes may share a folder. A block that is damaged or deleted is downloaded again.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

SUM_BYTES = 16


@dataclass(slots=True)
class BlockCache:
    """A cache of at most `limit_bytes` in all. The folder is scanned after each tenth of that was written."""

    folder: Path
    limit_bytes: int
    written: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_room()

    def get(self, key: str, read: Callable[[], pa.Table]) -> pa.Table:
        """Return the block from disk, or call `read` and keep its result if there is room."""
        path = self.folder / f"{blake2b(key.encode(), digest_size=20).hexdigest()}.block"
        kept = _load(path)
        if kept is not None:
            return kept
        table = read()
        with suppress(OSError):  # a full disk is no reason to stop training
            self._keep(path, table)
        return table

    def _keep(self, path: Path, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content = sink.getvalue()
        if content.size > self.limit_bytes // 10:
            return
        partial = path.with_suffix(f".{os.getpid()}.partial")
        try:
            with partial.open("wb") as file:
                file.write(_sum(content))
                file.write(content)
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self.written += content.size
        if self.written > self.limit_bytes // 10:
            self._make_room()

    def _make_room(self) -> None:
        self.written = 0
        files = []
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):
                stat = path.stat()
                files.append((stat.st_mtime, stat.st_size, path))
        held = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if held <= self.limit_bytes * 9 // 10:
                return
            path.unlink(missing_ok=True)
            held -= size


def _load(path: Path) -> pa.Table | None:
    try:
        content = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    body = memoryview(content)[SUM_BYTES:]
    if content[:SUM_BYTES] != _sum(body):
        return None
    return pa.ipc.open_stream(body).read_all()


def _sum(content: memoryview | pa.Buffer) -> bytes:
    return blake2b(content, digest_size=SUM_BYTES).digest()
