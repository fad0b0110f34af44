"""What was seen of something in a script's folder that may be a checkpoint."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

ROOT = "."
"""The name of the checkpoint that consists of files in the folder of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFile:
    """A file of a checkpoint. `sound`: it is closed, and whole. `told`: what it says, where it is a small one of JSON. `odd`: why it
    cannot be held at all. `written_ns`: when it was written last (Unix), which only orders it among others."""

    bytes: int
    sound: bool
    told: Any = field(default=None, compare=False)
    odd: str = ""
    written_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCandidate:
    """A file, or a folder's files by their paths below it, that may be a checkpoint. `name` is its name in the folder of all, and
    `ROOT` for files that lie there themselves.

    `settled`: nothing of it has changed for a while, or its writer has ended, or it is gone from the folder. `patient`: nothing has for
    long, or its writer has ended well, or it is gone. `before` is the version that was taken last or was written over, as its files and
    when each was written; `fresh` are the files that have changed since. Both are None where there was none. `due`: the kinds of files
    (gangline.core.command.version) that a version of such a name has, as far as is known. `written_ns`: when the newest file was
    written (Unix), by which no rule of completeness goes.
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
    """Of a file of the checkpoint with this name, below the folder of all."""
    if name == ROOT:
        return path
    return f"{name}/{path}" if path else name


def title_of(name: str, paths: Collection[str]) -> str:
    """What people call a checkpoint: by its name, or by a file of it where that lies in the folder of all."""
    if name != ROOT or not paths:
        return name
    first = min(paths, key=lambda path: (not re.search(r"\d", path), path))
    return first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"
