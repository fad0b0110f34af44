"""The files on this machine that somebody's script leaves beside its checkpoints."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gangline.core.command.results import FileMark, Turn
from gangline.core.files import File


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """A file as a scan found it. `group` is what lies in the folder of all by one name."""

    at: Path
    mark: FileMark
    turn: Turn
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """As what, and by which run to which address, a file was sent last."""

    mark: FileMark
    run: str
    address: str


class ResultFiles(Protocol):
    def scan(self) -> dict[str, ScannedFile]:
        """Files by the paths that they have in the store."""
        ...

    def unreadable(self) -> list[str]:
        """What the last scan could not look into."""
        ...

    def missing(self) -> list[Path]:
        """What was named besides the folder and is not there."""
        ...

    def is_written(self, look: ScannedFile) -> bool:
        """Whether anybody has it open for writing. Raises OSError where it has gone."""
        ...

    def hold(self, path: str, look: ScannedFile, *, copied: bool) -> AbstractContextManager[tuple[File, Path]]:
        """The file with its SHA-256 and a place where it stays: a copy, where that is asked for. Raises `Damaged` where it is not as it
        was at the scan, `BadInput` where it cannot have its name in the store; OSError where it has gone or does not fit on the disk."""
        ...

    def is_whole(self, path: str, at: Path) -> bool:
        """By its own format."""
        ...

    def sent(self) -> Mapping[str, Sent]:
        """What `note` was told, also by earlier processes."""
        ...

    def note(self, sent: Mapping[str, Sent]) -> None: ...
