"""The files on this machine that a user's script writes besides its checkpoints."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gangline.core.command.results import FileMark, Turn
from gangline.core.files import File


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """A file as a scan found it. `group` names the top-level file or folder that it belongs to."""

    at: Path
    mark: FileMark
    turn: Turn
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The version of a file that was uploaded last, and by which run to which address."""

    mark: FileMark
    run: str
    address: str


class ResultFiles(Protocol):
    def scan(self) -> dict[str, ScannedFile]:
        """Return the files, by the paths that they have in the store."""
        ...

    def unreadable(self) -> list[str]:
        """Return what the last scan did not read, each path with the reason."""
        ...

    def missing(self) -> list[Path]:
        """Return the paths that were named besides the folder and do not exist."""
        ...

    def is_written(self, look: ScannedFile) -> bool:
        """Return whether a process has the file open for writing. Raise OSError if it is gone."""
        ...

    def hold(self, path: str, look: ScannedFile, *, copied: bool) -> AbstractContextManager[tuple[File, Path]]:
        """Return the file with its SHA-256 and a path where its content stays the same: a copy if `copied`.

        Raise `Damaged` if it changed since the scan, `BadInput` if it cannot have its name in the store, OSError if it is gone or does not
        fit on the disk.
        """
        ...

    def is_complete(self, path: str, at: Path) -> bool:
        """Return whether the file is complete by its own format."""
        ...

    def sent(self) -> Mapping[str, Sent]:
        """Return everything that was passed to `note`, also by earlier processes."""
        ...

    def note(self, sent: Mapping[str, Sent]) -> None: ...
