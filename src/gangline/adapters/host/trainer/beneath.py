"""Read what a program left in its folder, and leave it a mark or a line there, without following a symbolic link out of it: the program
may have put one there."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import ELOOP
from pathlib import Path
from typing import IO

from gangline.core.errors import Damaged


@contextmanager
def opened_beneath(root: Path, path: str) -> Iterator[IO[bytes]]:
    """Open a regular file below `root` for reading. Raises `OSError` where it is none, or lies behind a symbolic link."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *folders, name = path.split("/")
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            os.close(handle)
            handle = inner
        found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    finally:
        os.close(handle)
    with os.fdopen(found, "rb") as file:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(f"{path} is not a regular file")
        yield file


def mark_beneath(root: Path, name: str) -> None:
    """Make an empty file in `root`, unless something of that name is there. Nothing happens on a full disk: who marks, repeats it."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=handle))
    finally:
        os.close(handle)


def append_beneath(root: Path, name: str, text: bytes) -> None:
    """Append to a file in `root`. Nothing happens where it is no regular file, or the disk is full."""
    with suppress(OSError):
        handle = os.open(root / name, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                os.write(handle, text)
        finally:
            os.close(handle)


@contextmanager
def open_of_runs(roots: Sequence[Path], path: Path) -> Iterator[IO[bytes]]:
    """Open a file that a run left, as `opened_beneath` one of the folders of all runs. Raises `Damaged` where it is none any more."""
    with ExitStack() as opened:
        try:
            runs = next(root for root in roots if path.is_relative_to(root))
            file = opened.enter_context(opened_beneath(runs, path.relative_to(runs).as_posix()))
        except OSError as error:
            why = "a link of a run is not followed" if error.errno == ELOOP else error.strerror or str(error)
            raise Damaged(f"{path.name} cannot be read: {why}") from None
        yield file


def files_beneath(folder: Path) -> list[str]:
    """Return the paths of all regular files below a folder, sorted; what lies behind a symbolic link is left out."""
    found = list[str]()
    try:
        _collect(folder, found)
    except RecursionError:
        raise Damaged(f"the folders in {folder.name} are too deep") from None
    return sorted(found)


def _collect(folder: Path, found: list[str]) -> None:
    with suppress(OSError):
        if stat.S_ISDIR(folder.lstat().st_mode):
            for at, _, names, handle in os.fwalk(folder):
                for name in names:
                    with suppress(FileNotFoundError):
                        if stat.S_ISREG(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                            found.append((Path(at) / name).relative_to(folder).as_posix())
