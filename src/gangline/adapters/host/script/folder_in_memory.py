"""The folder in which a script saves its checkpoints, on a tmpfs, with a link where the script names it (gangline.ports.workspace)."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from gangline.adapters.host.script.entries import date_files, files_at
from gangline.adapters.host.script.state_folder import lock, state_beside
from gangline.adapters.host.script.workspace import ASIDE
from gangline.core.errors import UserError
from gangline.core.runs.in_memory import lack_of_memory, lies_in_memory
from gangline.core.words import size_words
from gangline.posix import RunMemory, memory_cgroups, remove_tree, why_not_in_memory

PREFIX = "gangline-exec-"
COPYING, COPIED = "copying", "copied"


class LocalFolderInMemory:
    """A folder below `tmpfs` for each path that a script names: the next start finds what a kill left there."""

    def __init__(self, tmpfs: Path, folder: Path) -> None:
        self.link = folder.parent.resolve() / folder.name
        self._tmpfs = tmpfs
        self._around = tmpfs / f"{PREFIX}{hashlib.sha256(os.fsencode(self.link)).hexdigest()[:16]}"
        self.place = self._around / self.link.name
        self._lock: int | None = None

    @cached_property
    def _memory(self) -> RunMemory:
        return RunMemory(self._around, tuple(memory_cgroups()))

    @property
    def _moving(self) -> Path:
        return self.link.with_name(f".{self.link.name}.moving")

    @property
    def leads_to_memory(self) -> bool:
        return self.link.is_symlink() and self.link.readlink() == self.place

    @property
    def is_empty(self) -> bool:
        return not any(self.place.iterdir()) and not self._has_more

    def enter(self, size: int) -> str:
        if not self.link.name:
            return "a folder that a script runs in cannot be moved to memory"
        try:
            self._finish_move()
            return self._why_not() or self._enter(size)
        except OSError as error:
            return f"{error.filename or self._tmpfs} cannot be used: {error.strerror}"

    def _why_not(self) -> str:
        if why_not := why_not_in_memory(self._tmpfs):
            return why_not
        if self.leads_to_memory or not os.path.lexists(self.link):
            return ""
        if self.link.is_symlink():
            return f"{self.link} is a link"
        if self.link.is_dir() and not any(self.link.iterdir()):
            return ""
        if self._take():  # of a start whose files have moved to disk, or were deleted there
            self._leave()
        return f"{self.link} has files already"

    def _enter(self, size: int) -> str:
        with suppress(FileExistsError):
            self._around.mkdir(mode=0o700)
        if not self._take():
            return f"{self._around} is somebody else's"
        if not self.leads_to_memory:  # what is still there belongs to a folder that its owner has deleted
            remove_tree(self.place)
            remove_tree(state_beside(self.place))
        self.place.mkdir(exist_ok=True)
        if lack := self.lack(size):
            return lack
        if not self.leads_to_memory:
            self.link.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                self.link.rmdir()
            self.link.symlink_to(self.place)
        return ""

    def _take(self) -> bool:
        """Lock the folder around all and return True, if there is one of this user. Raises `UserError` if another process uses it."""
        with suppress(FileNotFoundError):
            found = self._around.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                self._lock = lock(self._around / "lock", self.link) if self._lock is None else self._lock
                return True
        return False

    @property
    def _has_more(self) -> bool:
        """Return whether it has what is never uploaded: hidden files, and what the last start set aside."""
        aside = state_beside(self.place) / ASIDE
        return any(self.place.glob(".*")) or (aside.is_dir() and any(aside.iterdir()))

    def lack(self, size: int) -> str:
        held, free = self._memory.held(), self._memory.free()
        fits = lies_in_memory(size, held=held, free=free)
        return "" if fits else lack_of_memory(size, held=held, free=free)

    def move_to_disk(self) -> None:
        if self.leads_to_memory:
            try:
                if self._take() and self.place.is_dir():
                    self._copy()
                    self.link.unlink()
                    self._finish_move()
                else:  # the machine was restarted, and perhaps somebody else has taken the name
                    self.link.unlink()
                    self.link.mkdir()
            except OSError as error:
                raise self._refusal(error.strerror or error.args[0][0][2]) from None  # shutil.Error has a list
        self._leave()

    def _copy(self) -> None:
        held, free = self._memory.held(), shutil.disk_usage(self.link.parent).free
        if held > free:
            raise self._refusal(f"{size_words(held)} are needed, and {size_words(free)} are free")
        remove_tree(self._moving)
        copying = self._moving / COPYING
        try:
            shutil.copytree(self.place, copying, symlinks=True, ignore=_special)
            written_ns = {path: (self.place / path).stat().st_mtime_ns for path in files_at(copying)}
            date_files(copying, list(written_ns), written_ns)
            if state_beside(self.place).is_dir():
                remove_tree(state_beside(self.link))
                shutil.copytree(state_beside(self.place), state_beside(self.link), symlinks=True)
        except BaseException:
            remove_tree(self._moving)
            raise
        copying.rename(self._moving / COPIED)

    def _refusal(self, because: str) -> UserError:
        return UserError(
            f"{self.link} cannot be moved from memory to disk: {because}",
            hint="make room on the disk, or in memory: its files are still there",
        )

    def _finish_move(self) -> None:
        """Give the copy the name of the link, once that is gone, also after a kill; remove one that is not complete."""
        copied = self._moving / COPIED
        if copied.is_dir() and not os.path.lexists(self.link):
            copied.rename(self.link)
        remove_tree(self._moving)

    def discard(self) -> bool:
        if self._has_more:
            return False
        if self.leads_to_memory:
            self.link.unlink()
        self._leave()
        return True

    def _leave(self) -> None:
        if self._lock is not None:
            remove_tree(self._around)
            os.close(self._lock)
            self._lock = None


def _special(folder: str, names: Iterable[str]) -> list[str]:
    """Return the names of what is neither a file nor a folder nor a link."""
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return [name for name in names if not any(of(Path(folder, name).lstat().st_mode) for of in kinds)]
