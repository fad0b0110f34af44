"""Hold files that lie directly in a script's checkpoint folder as one checkpoint."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gangline.adapters.host.script.entries import Entries, entry_of, leads_out
from gangline.adapters.host.script.held import HeldCheckpoint, Version
from gangline.core.command.candidate import ROOT
from gangline.core.command.root import newest_in_root, whole_folder
from gangline.core.command.version import has_number

ROOT_SETTLES_S = 3.0
"""A version of such files is settled after this long without a change, as long as it is not known which files a save writes."""


class HeldRoot(HeldCheckpoint):
    """The files of the newest checkpoint directly in the checkpoint folder. `belongs` returns whether a file of a name may be part of one;
    without it every file may, at any depth."""

    def __init__(
        self,
        at: Path,
        store: Path,
        is_written: Callable[[Path], bool],
        now_s: float,
        *,
        belongs: Callable[[str], bool] | None,
        before: Version | None = None,
        within: Path | None = None,
    ) -> None:
        super().__init__(at, store, is_written, now_s, before=before, within=within)
        self.name = ROOT
        self._settles_s = self.settles_s = ROOT_SETTLES_S
        self._belongs = belongs

    @property
    def paths(self) -> frozenset[str]:
        """Return the paths of its files at present."""
        return frozenset(self._entries())

    def _may_be_written_over(self, path: str) -> bool:
        return not has_number(path) or super()._may_be_written_over(path)

    def _entries(self) -> Entries:
        if self._belongs is None:
            found = super()._entries()
            chosen = whole_folder(found)
        else:
            found = self._beside(self._belongs)
            chosen = newest_in_root({path: stat.st_mtime_ns for path, (stat, _) in found.items()})
        here = {path: each for path, each in found.items() if path in chosen}
        if self._here - here.keys() and here.keys() - self._here and self._files:
            self._leave(here)
        return here

    def _beside(self, belongs: Callable[[str], bool]) -> Entries:
        found, self._read = Entries(), 0
        if leads_out(self.at, self._within):
            return found
        with suppress(FileNotFoundError), os.scandir(self.at) as entries:
            for entry in entries:
                self._read += 1
                if belongs(entry.name) and not entry.is_dir():
                    found |= {path: (stat, odd) for path, stat, odd in entry_of(entry, self.at.stat(), self._within)}
        return found

    def _leave(self, here: Entries) -> None:
        """Start the next version when files with another number appear: the files of the previous number were a version."""
        self._learn()
        self._let_go(self._files.keys() - here.keys())

    def _notice_deletion(self, now_s: float) -> None:
        """Drop deleted files at once: here no folder is being deleted, so there is nothing to wait for."""
        self._let_go(self._files.keys() - self._here)
