"""The folder in which a script saves its checkpoints, on a tmpfs, with a link where the script names it (gangline.ports.workspace)."""

import hashlib
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from gangline.adapters.host.entries import date_files, files_at
from gangline.adapters.host.state_folder import lock, state_beside
from gangline.core.errors import UserError
from gangline.core.runs.in_memory import lack_of_memory, lies_in_memory
from gangline.posix import RunMemory, memory_cgroups, remove_tree, why_not_in_memory

PREFIX = "gangline-exec-"


class LocalFolderInMemory:
    """A folder below `tmpfs` for each path that a script names: the next start finds what a kill left there."""

    def __init__(self, tmpfs: Path, folder: Path) -> None:
        self.link = folder.parent.resolve() / folder.name
        self._tmpfs = tmpfs
        self._around = tmpfs / f"{PREFIX}{hashlib.sha256(os.fsencode(self.link)).hexdigest()[:16]}"
        self.place = self._around / self.link.name
        self._memory = RunMemory(self._around, tuple(memory_cgroups()))
        self._lock: int | None = None

    def enter(self, size: int) -> str:
        why_not = self._why_not()
        if why_not or not self.link.name:
            return why_not or "a folder that a script runs in cannot be moved to memory"
        try:
            self._around.mkdir(mode=0o700, exist_ok=True)
            found = self._around.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                return f"{self._around} is somebody else's"
            self._lock = lock(self._around / "lock", self.link)
            self.place.mkdir(exist_ok=True)
            if why_not := self.lack(size):
                return why_not
            if not self._leads_to_memory:
                self.link.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    self.link.rmdir()
                self.link.symlink_to(self.place)
        except OSError as error:
            return f"{error.filename or self._tmpfs} cannot be used: {error.strerror}"
        return ""

    def _why_not(self) -> str:
        if why_not := why_not_in_memory(self._tmpfs):
            return why_not
        if self.link.is_symlink():
            return "" if self._leads_to_memory else f"{self.link} is a link"
        if self.link.is_dir() and not any(self.link.iterdir()):
            return ""
        return f"{self.link} has files already" if self.link.exists() else ""

    @property
    def _leads_to_memory(self) -> bool:
        return self.link.is_symlink() and self.link.readlink() == self.place

    def lack(self, size: int) -> str:
        held, free = self._memory.held(), self._memory.free()
        fits = lies_in_memory(size, held=held, free=free)
        return "" if fits else lack_of_memory(size, held=held, free=free)

    def move_to_disk(self) -> None:
        if self._leads_to_memory:
            moving = self.link.with_name(f".{self.link.name}.moving")
            remove_tree(moving)
            try:
                shutil.copytree(self.place, moving / "folder", symlinks=True)
                written_ns = {path: (self.place / path).stat().st_mtime_ns for path in files_at(self.place)}
                date_files(moving / "folder", list(written_ns), written_ns)
                if state_beside(self.place).is_dir():
                    shutil.copytree(state_beside(self.place), moving / "state", symlinks=True)
                    remove_tree(state_beside(self.link))
                    (moving / "state").rename(state_beside(self.link))
                self.link.unlink()
                (moving / "folder").rename(self.link)
            except OSError as error:
                remove_tree(moving)
                raise UserError(
                    f"{self.link} cannot be moved from memory to disk: {error.strerror}",
                    hint="make room on the disk, or in memory: its files are still there",
                ) from None
            remove_tree(moving)
        self._leave()

    def discard(self) -> None:
        if self._leads_to_memory:
            self.link.unlink()
        self._leave()

    def _leave(self) -> None:
        if self._lock is not None:
            remove_tree(self._around)
            os.close(self._lock)
            self._lock = None
