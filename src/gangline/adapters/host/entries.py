"""The files of a folder: what lies there, links to it, what they say of themselves, and when they were written."""

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
from gangline.core.command.step import STATES

LINKED, UNREADABLE = "is a link to a folder, which is not followed", "cannot be read"
Mark = tuple[int, int, int]
"""Which file, how long, when it was written last: another one is another file, or another content."""
Entries = dict[str, tuple[os.stat_result, str]]
"""Files by their paths, each with what it is, and why it cannot be held."""

TOLD_BYTES_MAX = 4 * 2**20
HEAD_BYTES = 65_536
CLONE = 0x40049409
"""FICLONE of ioctl_ficlone(2): a copy that shares its blocks, where the file system can."""
FEW, TICK_S = 256, 0.001
"""Of so many files the order in which they were written is restored in their inodes' times as well."""


def mark_of(stat: os.stat_result) -> Mark:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def files_at(place: Path) -> Iterator[str]:
    """Their paths below a folder; a file has the empty one. Raises PermissionError where a folder cannot be read."""
    for path, _, odd in entries_at(place):
        if odd == UNREADABLE:
            raise PermissionError(EACCES, os.strerror(EACCES), str(place / path))
        if not odd:
            yield path


def entries_at(place: Path) -> Iterator[tuple[str, os.stat_result, str]]:
    """Files with their paths below a folder; a file has the empty one. What goes away meanwhile is left out, and what is neither a file
    nor a folder. The last word says of what was not looked into why."""
    with suppress(FileNotFoundError, NotADirectoryError):
        stat = place.stat()
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
                for path, below, odd in entries_at(place / entry.name):
                    yield f"{entry.name}/{path}", below, odd
            else:
                yield from entry_of(entry, stat)


def entry_of(entry: os.DirEntry[str], folder: os.stat_result) -> Iterator[tuple[str, os.stat_result, str]]:
    try:
        stat = entry.stat()
    except PermissionError:
        yield entry.name, folder, UNREADABLE
    except OSError:  # it has gone, or is a link to nothing or itself
        return
    else:
        if modes.S_ISDIR(stat.st_mode):
            yield entry.name, stat, LINKED
        elif modes.S_ISREG(stat.st_mode):
            yield entry.name, stat, ""


def link(source: Path, to: Path) -> bool:
    """Whether it could be made, to the file itself; a link by this name to another one goes."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.unlink(missing_ok=True)
        os.link(source.resolve(), to)
    except OSError:
        return False
    return True


def copy(source: Path, to: Path) -> None:
    """Raises OSError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, to.open("wb") as write:
        try:
            fcntl.ioctl(write, CLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, write, 1 << 20)


def put(source: Path, to: Path, *, copied: bool) -> None:
    """The file itself, or a copy of it where that is asked for or a link cannot be; a link again where the disk is too full for one.
    Raises OSError."""
    if copied or not link(source, to):
        try:
            copy(source, to)
        except OSError:
            if not (copied and link(source, to)):
                raise


def is_whole_at(path: Path, name: str, size: int) -> bool:
    try:
        with path.open("rb") as file:
            return is_complete_file(name, size, lambda at, count: os.pread(file.fileno(), count, at))
    except OSError:
        return False


def told_at(path: Path, name: str, size: int) -> Any:
    """What a small file of JSON says; of a file of Lightning's, that it is one."""
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
    """Each restored file gets back when it was written; and in that order when it was changed last, as some scripts go by that."""
    changed_ns = 0
    for path in sorted(paths, key=lambda path: (written_ns.get(path, 0), path)):
        at = come / path
        when_ns = written_ns.get(path) or at.stat().st_mtime_ns
        os.utime(at, ns=(when_ns, when_ns))
        while len(paths) <= FEW and at.stat().st_ctime_ns <= changed_ns:  # until the kernel's clock has moved on
            Event().wait(TICK_S)
            os.utime(at, ns=(when_ns, when_ns))
        changed_ns = at.stat().st_ctime_ns
