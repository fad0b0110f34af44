"""Bytes between a node and the object store, moved in the background."""

from pathlib import Path
from typing import Protocol

from gangline.core.files import File, Grant, Signed
from gangline.ports.server import Upload


class Task(Protocol):
    """Something that goes on by itself. `error` is None until it has failed, then one of `Damaged`, `Denied`, `Unreachable`, …"""

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        ...

    @property
    def error(self) -> Exception | None: ...

    @property
    def path(self) -> Path:
        """Of a download that ended well: where it lies."""
        ...


class Transfer(Protocol):
    def download(self, signed: Signed, file: File, to: Path) -> Task:
        """Into `to`, whole and with the right SHA-256 or not at all; fails with `Damaged` where the bytes are others."""
        ...

    def declare(self, file: File, source: Path) -> Upload:
        """With the SHA-256 of its parts."""
        ...

    def upload(self, grant: Grant, file: File, source: Path) -> Task: ...

    def fetch_base(self, repo: str, commit: str) -> Task:
        """A base from the hub, into the node's cache."""
        ...
