"""The files that a scan of a script's checkpoint folder found and that may be a checkpoint."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

ROOT = "."
"""The name of the checkpoint that consists of files directly in the checkpoint folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFile:
    """A file of a candidate. `sound`: nobody has it open for writing, and it is complete by its own format. `told` is the content of a
    small JSON file. `odd` says why it cannot be held at all. `written_ns` is its modification time (Unix), used only to order files."""

    bytes: int
    sound: bool
    told: Any = field(default=None, compare=False)
    odd: str = ""
    written_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCandidate:
    """A file, or the files of a folder by their paths below it, that may be a checkpoint. `name` is its name in the checkpoint folder, or
    `ROOT` for files directly in that folder.

    `settled`: nothing of it has changed for a while, or the command has ended, or it is gone from the folder. `patient`: nothing has
    changed for long, or the command ended well, or it is gone. `before` is the version that was taken last or was overwritten, as its files
    and their modification times; `fresh` are the files that have changed since. Both are None if there was no such version. `due` are the
    kinds of files (gangline.core.command.version) that a version with such a name has, as far as is known. `written_ns` is the modification
    time of the newest file (Unix); no rule of completeness uses it.
    """

    name: str
    folder: bool
    files: Mapping[str, SeenFile]
    settled: bool = False
    patient: bool = False
    before: Mapping[str, int] | None = None
    fresh: frozenset[str] | None = None
    due: frozenset[str] | None = None
    written_ns: int = 0

    @property
    def title(self) -> str:
        return title_of(self.name, self.files)


def path_below(name: str, path: str) -> str:
    """Return the path of a checkpoint's file relative to the checkpoint folder."""
    if name == ROOT:
        return path
    return f"{name}/{path}" if path else name


def title_of(name: str, paths: Collection[str]) -> str:
    """Return the name that messages use: the checkpoint's name, or for `ROOT` the name of one of its files."""
    if name != ROOT or not paths:
        return name
    first = min(paths, key=lambda path: (not re.search(r"\d", path), path))
    return first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"
