"""The files that lie in a script's folder of checkpoints themselves, held as one checkpoint."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gangline.adapters.host.entries import Entries, entry_of
from gangline.adapters.host.held import HeldCheckpoint, Version
from gangline.core.command.candidate import ROOT
from gangline.core.command.root import newest_in_root, whole_folder
from gangline.core.command.version import has_number

ROOT_SETTLES_S = 3.0
"""After how long nothing more is expected of files in no folder of which nothing is known."""


class HeldRoot(HeldCheckpoint):
    """Files that lie in the folder of all: those that belong to the newest checkpoint there. `belongs` says of a name whether it may be
    one of a checkpoint's; without it all do, wherever they lie."""

    def __init__(
        self,
        at: Path,
        store: Path,
        is_written: Callable[[Path], bool],
        now_s: float,
        *,
        belongs: Callable[[str], bool] | None,
        before: Version | None = None,
    ) -> None:
        super().__init__(at, store, is_written, now_s, before=before)
        self.name = ROOT
        self._settles_s = self.settles_s = ROOT_SETTLES_S
        self._belongs = belongs

    @property
    def paths(self) -> frozenset[str]:
        """Of the files that it consists of now."""
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
        with suppress(FileNotFoundError), os.scandir(self.at) as entries:
            for entry in entries:
                self._read += 1
                if belongs(entry.name) and not entry.is_dir():
                    found |= {path: (stat, odd) for path, stat, odd in entry_of(entry, self.at.stat())}
        return found

    def _leave(self, here: Entries) -> None:
        """Another number has begun: what there was of the one before was a version."""
        self._learn()
        self._let_go(self._files.keys() - here.keys())

    def _notice_deletion(self, now_s: float) -> None:
        """What goes here is of no use any more: there is always another, and nothing to wait for."""
        self._let_go(self._files.keys() - self._here)
