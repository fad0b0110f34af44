"""The folder in memory (tmpfs) where the checkpoints and results of a worker's runs lie, so that nothing of them is written to its disk."""

import fcntl
import os
import secrets
import weakref
from contextlib import suppress
from pathlib import Path

from gangline.adapters.host.trainer.enclosures import Enclosure
from gangline.core.runs.in_memory import lies_in_memory, node_place
from gangline.posix import RunMemory, memory_cgroups, memory_free, remove_tree, why_not_in_memory

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - below it, a folder of its own that others may only pass through
PREFIX = "gangline-runs-"
PASSABLE = 0o711


class MemoryOfRuns:
    """A folder for each run below one that is locked for as long as this worker lives, named as the run's directory below `runs` is.

    What a worker leaves that was killed is removed by the next one of the same user on this machine: its lock is free.
    """

    def __init__(self, tmpfs: Path, runs: Path) -> None:
        self._runs = runs
        self.limits = tuple(memory_cgroups())
        _sweep(tmpfs)
        while True:
            self.root = tmpfs / f"{PREFIX}{secrets.token_hex(8)}"
            self.root.mkdir(mode=0o700)
            self._lock = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(OSError):  # another worker that starts took it for a leftover
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(self._lock), self.root.stat()):
                    break
            os.close(self._lock)
        self.root.chmod(PASSABLE)
        weakref.finalize(self, _give_up, self.root, self._lock)  # at the end of the process, too

    def beside(self, directory: Path) -> Path:
        """Return the folder in memory of the run with this directory, whether it is there or not."""
        return self.root / directory.relative_to(self._runs).parts[0]

    def free(self) -> int:
        return memory_free(self.root, self.limits)

    @property
    def place(self) -> str:
        return node_place(str(self.root.parent), self.free())

    @property
    def sentence(self) -> str:
        return f"checkpoints are kept in {self.place}"

    def place_for(self, directory: Path, size: int) -> Path:
        """Return the folder in which the agent places `size` bytes for a run: the one in memory if there is room, else its directory."""
        if not lies_in_memory(size, held=0, free=self.free()):
            return directory
        folder = self.beside(directory)
        folder.mkdir(mode=0o700, exist_ok=True)
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

    def enter(self, directory: Path, place: Path, enclosure: Enclosure) -> RunMemory:
        """Let what runs in `enclosure`, which has taken `directory` to `place`, have its folder."""
        enclosure.give(self.move(directory, place))
        return RunMemory(self.beside(place), self.limits)

    def remove(self, directory: Path) -> None:
        remove_tree(self.beside(directory))


def memory_of_runs(tmpfs: Path, runs: Path) -> MemoryOfRuns | str:
    """Return the folders in memory of a worker's runs below `tmpfs`, or why there are none."""
    if why_not := why_not_in_memory(tmpfs):
        return why_not
    try:
        return MemoryOfRuns(tmpfs, runs)
    except OSError as error:
        return f"{tmpfs} cannot be used: {error.strerror}"


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
