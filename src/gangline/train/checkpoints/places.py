"""Where each checkpoint of a run goes: into memory while there is room, else to disk."""

import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from gangline.core.runs.contract import CHECKPOINTS
from gangline.core.runs.in_memory import ON_DISK, lies_in_memory, place_sentence
from gangline.posix import RunMemory
from gangline.train.checkpoints.manifest import newest_first
from gangline.train.run.ranks import Ranks


class CheckpointPlaces:
    """The folders for checkpoints of one run: `folder` on disk and, if the node has one, `memory`. All ranks choose the same one."""

    def __init__(self, folder: Path, memory: RunMemory | None, ranks: Ranks) -> None:
        self._folder = folder
        self._memory = memory
        self._ranks = ranks
        self._told: bool | None = None
        self._has_failed = False

    def clear_after(self, step: int) -> None:
        """Delete the checkpoints of later steps. Only the first rank does."""
        if self._ranks.is_first:
            for path in newest_first(self._folders):
                if int(path.name) > step:
                    shutil.rmtree(path)

    def choose(self, name: str, part_bytes: int) -> Path:
        """Return the folder for a checkpoint of which this rank writes `part_bytes`. All ranks call it together."""
        if self._memory is None:
            return self._folder / name
        size = self._ranks.most(part_bytes)[0] * self._ranks.count
        held, free, fault = self._memory.held(), self._memory.free(), self._memory.fault()
        fits_here = not (fault or self._has_failed) and lies_in_memory(size, held=held, free=free)
        fits = self._ranks.all(fits_here)
        if fits_here and not fits:
            fault = "one of the ranks found no room in memory"
        self._tell(fits, f"{ON_DISK}: {fault}" if fault else place_sentence(size, held=held, free=free, fits=fits))
        return (self._in_memory if fits else self._folder) / name

    def write(self, target: Path, write: Callable[[Path], None], own: str) -> None:
        """Write this rank's part to `target`, or to the disk if memory does not take it after all. `own` is a pattern of its files."""
        try:
            write(target)
        except OSError as error:
            self._leave_memory(target, error)
            for path in target.glob(own):
                path.unlink(missing_ok=True)
            write(self._folder / target.name)

    def complete(self, target: Path, notes: Iterable[str], complete: Callable[[Path], None]) -> None:
        """Let `complete` write the manifest in the folder that has the parts of all ranks, which go to disk if memory does not take it.
        Only the first rank does."""
        folder = self.gathered(target, notes)
        try:
            complete(folder)
        except OSError as error:
            self._leave_memory(folder, error)
            complete(self._moved(folder))

    def gathered(self, target: Path, notes: Iterable[str]) -> Path:
        """Return the folder that has the parts of all ranks: `target`, unless one of them had to go to disk; then the others follow it."""
        if all((target / note).exists() for note in notes):
            return target
        return self._moved(target)

    def _moved(self, target: Path) -> Path:
        """Move what is in a checkpoint's folder in memory beside what is on disk, and return that folder."""
        aside = self._folder / target.name
        aside.mkdir(parents=True, exist_ok=True)
        if target.is_dir():  # memory may not even have had room for that
            for path in target.iterdir():
                if not (aside / path.name).exists():
                    shutil.copyfile(path, aside / path.name)
            shutil.rmtree(target)
        return aside

    def _leave_memory(self, target: Path, error: OSError) -> None:
        """Use the disk from now on, as writing to `target` failed: memory has less room than it seems. Raise the error if that is on disk
        already."""
        if self._memory is None or target.parent == self._folder:
            raise error
        self._has_failed = True
        self._tell(False, f"{ON_DISK}: {self._memory.fault(error)} while one was written")

    @property
    def _in_memory(self) -> Path:
        assert self._memory
        return self._memory.folder / CHECKPOINTS

    @property
    def _folders(self) -> tuple[Path, ...]:
        return (self._in_memory, self._folder) if self._memory else (self._folder,)

    def _tell(self, fits: bool, sentence: str) -> None:
        """Say in the job's log where checkpoints lie, once, and again when that changes."""
        if fits != self._told and self._ranks.is_first:
            print(sentence, file=sys.stderr, flush=True)  # noqa: T201 - the job's log
        self._told = fits
