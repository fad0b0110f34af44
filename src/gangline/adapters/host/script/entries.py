"""Read a folder's files: list them, link and copy them, read what they say of themselves, and restore their times."""

import fcntl
import json
import os
import shutil
import stat as modes
from collections.abc import Iterator, Mapping
from contextlib import suppress
from errno import EACCES
from pathlib import Path
from threading import Event
from typing import Any

from gangline.core.command.completeness import is_complete_file
from gangline.core.command.layout import INDEX, OF_LIGHTNING
from gangline.core.command.results import FileMark
from gangline.core.command.step import STATES

LINKED, UNREADABLE = "is a link to a folder, which is not followed", "cannot be read"
OUTSIDE = "is a link out of the run, which is not followed"
Entries = dict[str, tuple[os.stat_result, str]]
"""Files by their paths, each with its stat and, if it cannot be held, the reason."""

TOLD_BYTES_MAX = 4 * 2**20
HEAD_BYTES = 65_536
CLONE = 0x40049409
"""FICLONE of ioctl_ficlone(2): a copy that shares its blocks, where the file system can."""
FEW, TICK_S = 256, 0.001
"""Up to this many files, the order in which they were written is restored in their inodes' change times as well."""


def mark_of(stat: os.stat_result) -> FileMark:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def files_at(place: Path) -> Iterator[str]:
    """Yield the paths of the files below a folder; for a file, the empty path. Raises PermissionError if a folder cannot be read."""
    for path, _, odd in entries_at(place):
        if odd == UNREADABLE:
            raise PermissionError(EACCES, os.strerror(EACCES), str(place / path))
        if not odd:
            yield path


def leads_out(place: Path, within: Path | None) -> bool:
    """Return whether a path is, or lies behind, a symbolic link out of the folder `within`; None has no outside."""
    return within is not None and not place.resolve().is_relative_to(within)


def entries_at(place: Path, within: Path | None = None) -> Iterator[tuple[str, os.stat_result, str]]:
    """Yield the path below a folder, the stat and, for what cannot be looked into, the reason; a file has the empty path. What disappears
    in the meantime is skipped, and so is anything that is neither a file nor a folder. Links out of `within` are not followed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        stat = place.stat()
        if leads_out(place, within):
            yield "", stat, OUTSIDE
            return
        if modes.S_ISREG(stat.st_mode):
            yield "", stat, ""
        if not modes.S_ISDIR(stat.st_mode):
            return
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except PermissionError:
            yield "", stat, UNREADABLE
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                for path, below, odd in entries_at(place / entry.name, within):
                    yield f"{entry.name}/{path}", below, odd
            else:
                yield from entry_of(entry, stat, within)


def entry_of(
    entry: os.DirEntry[str], folder: os.stat_result, within: Path | None = None
) -> Iterator[tuple[str, os.stat_result, str]]:
    try:
        stat = entry.stat()
    except PermissionError:
        yield entry.name, folder, UNREADABLE
    except OSError:  # it was deleted, or is a link to nothing or to itself
        return
    else:
        if entry.is_symlink() and leads_out(Path(entry.path), within):
            yield entry.name, stat, OUTSIDE
        elif modes.S_ISDIR(stat.st_mode):
            yield entry.name, stat, LINKED
        elif modes.S_ISREG(stat.st_mode):
            yield entry.name, stat, ""


def link(source: Path, to: Path) -> bool:
    """Hard-link `to` to the file, following symlinks and replacing what stands there. Return False if the system refuses."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.unlink(missing_ok=True)
        os.link(source.resolve(), to)
    except OSError:
        return False
    return True


def copy(source: Path, to: Path) -> None:
    """Copy the file. Raises OSError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, to.open("wb") as write:
        try:
            fcntl.ioctl(write, CLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, write, 1 << 20)


def put(source: Path, to: Path, *, copied: bool) -> None:
    """Link the file, or copy it if asked or if no link can be made. If the disk is too full for a copy, link it after all. Raises
    OSError."""
    if copied or not link(source, to):
        try:
            copy(source, to)
        except OSError:
            if not (copied and link(source, to)):
                raise


def is_complete_at(path: Path, name: str, size: int) -> bool:
    try:
        with path.open("rb") as file:
            return is_complete_file(name, size, lambda at, count: os.pread(file.fileno(), count, at))
    except OSError:
        return False


def told_at(path: Path, name: str, size: int) -> Any:
    """Return the content of a small JSON file; for a Lightning checkpoint, `OF_LIGHTNING`."""
    try:
        if name.endswith(".ckpt"):
            with path.open("rb") as file:
                return OF_LIGHTNING if OF_LIGHTNING.encode() in file.read(HEAD_BYTES) else None
        if size <= TOLD_BYTES_MAX and (name.endswith(INDEX) or name in STATES):
            return json.loads(path.read_text())
    except (OSError, ValueError):
        pass
    return None


def date_files(come: Path, paths: list[str], written_ns: Mapping[str, int]) -> None:
    """Restore the modification times of restored files, and set their change times in the same order, as some scripts sort by those."""
    changed_ns = 0
    for path in sorted(paths, key=lambda path: (written_ns.get(path, 0), path)):
        at = come / path
        when_ns = written_ns.get(path) or at.stat().st_mtime_ns
        os.utime(at, ns=(when_ns, when_ns))
        while len(paths) <= FEW and at.stat().st_ctime_ns <= changed_ns:  # until the kernel's clock has moved on
            Event().wait(TICK_S)
            os.utime(at, ns=(when_ns, when_ns))
        changed_ns = at.stat().st_ctime_ns
