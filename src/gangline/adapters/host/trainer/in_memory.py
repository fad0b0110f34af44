"""The folder in memory (tmpfs) where the checkpoints and results of a worker's runs lie, so that nothing of them is written to its disk."""

import fcntl
import os
import secrets
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gangline.adapters.host.trainer.enclosures import Enclosure
from gangline.core.runs.in_memory import lies_in_memory, node_place
from gangline.posix import RunMemory, memory_cgroups, remove_tree, why_not_in_memory

PREFIX = "gangline-runs-"
PASSABLE = 0o711


class MemoryOfRuns:
    """A folder for each run below one that is locked for as long as this worker lives, named as the run's directory below `runs` is.

    What a worker leaves that was killed is removed by the next one of the same user on this machine: its lock is free. If the folder is
    deleted while this worker lives, it uses none from then on, and tells that to `say`: a sandbox that waits for its run shows the old one.
    """

    def __init__(self, tmpfs: Path, runs: Path, say: Callable[[str], None]) -> None:
        self._runs = runs
        self._say = say
        self._has_said = False
        self.limits = tuple(memory_cgroups())
        _sweep(tmpfs)
        self.root, self._lock = _locked_root(tmpfs)
        self.root.chmod(PASSABLE)
        weakref.finalize(self, _give_up, self.root, self._lock)  # at the end of the process, too

    def beside(self, directory: Path) -> Path:
        """Return the folder in memory of the run with this directory, whether it is there or not."""
        return self.root / directory.relative_to(self._runs).parts[0]

    @property
    def is_there(self) -> bool:
        """Return whether the folder was not deleted. What has its name may be somebody else's by now."""
        is_there = os.fstat(self._lock).st_nlink > 0
        if not (is_there or self._has_said):
            self._has_said = True
            self._say(f"{self.root} was deleted: checkpoints are written to disk until this worker is started again")
        return is_there

    def free(self) -> int:
        return RunMemory(self.root, self.limits).free()

    @property
    def place(self) -> str:
        return node_place(str(self.root.parent), self.free())

    @property
    def sentence(self) -> str:
        return f"checkpoints are kept in {self.place}"

    def place_for(self, directory: Path, size: int) -> Path:
        """Return the folder in which the agent places `size` bytes for a run: the one in memory if there is room, else its directory."""
        if not (self.is_there and lies_in_memory(size, held=0, free=self.free())):
            return directory
        folder = self.beside(directory)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:  # a tmpfs may have bytes, but no inodes left
            return directory
        return folder

    def move(self, directory: Path, place: Path) -> Path:
        """Let what is in memory for the run in `directory` follow it to `place`, and return the folder."""
        before, after = self.beside(directory), self.beside(place)
        after.mkdir(mode=0o700, exist_ok=True)
        if before != after and before.is_dir():
            for each in before.iterdir():
                each.rename(after / each.name)
            before.rmdir()
        return after

    def enter(self, directory: Path, place: Path, enclosure: Enclosure) -> RunMemory | None:
        """Let what runs in `enclosure`, which has taken `directory` to `place`, have its folder. Return None if that cannot be made."""
        try:
            if not self.is_there:
                return None
            enclosure.give(self.move(directory, place))
        except OSError:
            return None
        return RunMemory(self.beside(place), self.limits)

    def remove(self, directory: Path) -> None:
        remove_tree(self.beside(directory))


def memory_of_runs(tmpfs: Path, runs: Path, say: Callable[[str], None]) -> MemoryOfRuns | str:
    """Return the folders in memory of a worker's runs below `tmpfs`, or why there are none; `say` hears it if they are deleted."""
    if why_not := why_not_in_memory(tmpfs):
        return why_not
    try:
        return MemoryOfRuns(tmpfs, runs, say)
    except OSError as error:
        return f"{tmpfs} cannot be used: {error.strerror}"


def _locked_root(tmpfs: Path) -> tuple[Path, int]:
    """Make a folder of this worker below `tmpfs`, and return it with its lock, a descriptor."""
    while True:
        root = tmpfs / f"{PREFIX}{secrets.token_hex(8)}"
        root.mkdir(mode=0o700)
        # Until it is locked, another worker that starts may take it for a leftover.
        with suppress(FileNotFoundError, BlockingIOError):
            lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), root.stat()):
                    return root, lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


def _sweep(tmpfs: Path) -> None:
    for folder in tmpfs.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(folder)
            finally:
                os.close(handle)


def _give_up(root: Path, lock: int) -> None:
    remove_tree(root)
    os.close(lock)
