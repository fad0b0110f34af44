"""Hold one checkpoint of a script by hard links, from the moment it appears until it is uploaded, even if the script deletes it.

    appeared ──> changing <──────────────── look: a file is new or changed ───────────────┐
                    │                                                                     │
                    │ unchanged for `settles_s`              take, know                   │
                    └──────────────────────────> settled ───────────────> known ──────────┘ (its next version)
                                                    │                (uploaded: no links)
    changing, settled ── look: a file is missing ──> going ── no more files vanish for DELETED_WITHIN_S ──> changing
    changing, settled, going ── miss: the folder is gone ──> gone: the links are all that is left. It counts if none is missing.

A link protects a file from deletion, not from being overwritten in place: the link then shows the new content. So a single file, and a
file that was uploaded before under this name, is copied when it is taken. A link costs nothing, a copy of a checkpoint doubles the disk.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import thread_time
from typing import Any

from gangline.adapters.host.script.entries import Entries, entries_at, is_complete_at, link, mark_of, put, told_at
from gangline.core.command.candidate import ROOT, CheckpointCandidate, SeenFile
from gangline.core.command.results import FileMark
from gangline.core.command.version import adds_only, has_number, path_patterns, tells_nothing

DELETED = "was deleted again"
SETTLES_S = 1.0
"""A folder whose files are unknown is settled after this long without a change: scripts write a checkpoint in one go."""
PATIENCE_S = 30.0
"""A file that earlier versions had is waited for this long: a script may write its optimizer last, and slowly."""
LATER = 10
"""A checkpoint that gets one file after another settles this many times later: each file would be a version of its own."""
LOOK_AGAIN_S, LOOK_AGAIN_AT_KNOWN_S = 2.0, 10.0
"""Without a notification, a folder that rests is scanned this often: before it is uploaded, and after."""
MANY, BUSY, IDLE = 500, 10.0, 200.0
"""Scanning a folder of `MANY` files takes at most 1/`BUSY` of a core after a notification, and 1/`IDLE` without one."""
DELETED_WITHIN_S = 10.0
"""A folder that still exists this long after its last file vanished is not being deleted: the script removed some files only."""


@dataclass(slots=True)
class Version:
    """The files of a version that was taken or is uploaded, and the kinds of the files that it wrote. `sha256s` is filled in later."""

    marks: dict[str, FileMark]
    kinds: frozenset[str]
    sha256s: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _File:
    mark: FileMark
    link: Path | None
    sound: bool = False
    told: Any = None
    odd: str = ""


class HeldCheckpoint:
    """The checkpoint at `at`, its links below `store`. `is_written` returns whether a process has a file open for writing."""

    def __init__(
        self,
        at: Path,
        store: Path,
        is_written: Callable[[Path], bool],
        now_s: float,
        *,
        before: Version | None = None,
        due: frozenset[str] | None = None,
        within: Path | None = None,
    ) -> None:
        """`before` is the version that was taken last, maybe by an earlier process; `due` are the kinds of files that its siblings had.
        Links out of `within` are not followed."""
        self.at = at
        self.name = at.name
        self.folder = at.is_dir()
        self.gone = False
        self._settles_s = self.settles_s = SETTLES_S
        self.due = before.kinds if before else due
        self._inode = at.stat().st_ino if self.folder else 0
        self._store = store
        self._is_written = is_written
        self._within = within
        self._files: dict[str, _File] = {}
        self._here: set[str] = set()
        self.marks: dict[str, FileMark] = {}
        self._known: dict[str, FileMark] | None = None
        self._before = before.marks if before else None
        self._is_known = False
        self._changed_s = self._looked_s = now_s
        self._lost = frozenset[str]()
        self._lost_s = now_s
        self.heard = False
        self._read = 0
        """How many directory entries the last scan read; more than `_here` where some are no files of it."""
        self._took_s = 0.0
        self._shown: tuple[bool, bool] | None = None

    @property
    def unchanged_s(self) -> float:
        """Seconds between its last change and the last scan."""
        return self._looked_s - self._changed_s

    def is_there(self) -> bool:
        """Return whether the path still is the same file or folder: a script may delete it and write another one under its name."""
        try:
            stat = self.at.stat()
        except OSError:
            return False
        return self.at.is_dir() == self.folder and (not self.folder or stat.st_ino == self._inode)

    def is_due(self, now_s: float) -> bool:
        since_s, again_s = now_s - self._looked_s, LOOK_AGAIN_S if self._known is None else LOOK_AGAIN_AT_KNOWN_S
        if self.heard:
            return since_s >= BUSY * self._took_s
        return since_s >= max(min(again_s, self.unchanged_s / 10), IDLE * self._took_s)

    def look(self, now_s: float) -> None:
        begun_s = thread_time()
        self._look(now_s)
        took_s = thread_time() - begun_s
        self._took_s = took_s if max(self._read, len(self._here)) >= MANY else 0.0
        self.heard, self._shown = False, None

    def _look(self, now_s: float) -> None:
        self._looked_s = now_s
        here = self._entries()
        self._notice_next(here)
        self._here = set(here)
        for path, (stat, odd) in here.items():
            self._look_at(self.at / path if path else self.at, path, stat, now_s, odd)
        self._let_renamed_go({stat.st_ino for stat, _ in here.values()})
        self._notice_deletion(now_s)
        self._mark()
        if self._known is not None and not self._is_known:
            self._link_all()

    def miss(self) -> bool:
        """Handle a folder that has disappeared. Return True if every file is still held by a link and this version was not uploaded yet."""
        if self.gone or self._is_known or not all(file.link for file in self._files.values()):
            return False
        if self._known is not None and not self._known.keys() <= self._here:
            return False
        self.gone = True
        for path, file in self._files.items():
            if file.link:
                self._look_at(file.link, path, file.link.stat(), self._looked_s)
        self._mark()
        return True

    def as_candidate(self, now_s: float, *, ended: bool, well: bool = False) -> CheckpointCandidate | None:
        """Return it as the rules see it; None if this version is uploaded, or if the folder is being deleted (`miss` decides then).

        Return None too for a folder of `MANY` files that was not scanned since the last call: the answer would be the same.
        """
        marks, known, before = self.marks, self._known, self._before
        quiet_s = now_s - self._changed_s
        is_going = bool(self._lost) and not self.gone
        if (
            self._is_known
            or not (marks or (self.folder and self.name != ROOT))
            or (is_going and not (ended and known is None))
        ):
            return None
        settled = self.gone or ended or quiet_s >= self.settles_s
        patient = self.gone or well or quiet_s >= PATIENCE_S
        if self._took_s and self._shown == (settled, patient):
            return None
        self._shown = settled, patient
        files = {path: self._files[path] for path in marks}
        return CheckpointCandidate(
            name=self.name,
            folder=self.folder,
            files={
                path: SeenFile(
                    bytes=file.mark[1], sound=file.sound, told=file.told, odd=file.odd, written_ns=file.mark[2]
                )
                for path, file in files.items()
            }
            | {path: SeenFile(bytes=0, sound=False, odd=DELETED) for path in self._lost if is_going},
            settled=settled,
            patient=patient,
            before=None if before is None else {path: mark[2] for path, mark in before.items()},
            fresh=None if before is None else frozenset(path for path in marks if before.get(path) != marks[path]),
            due=self.due,
            written_ns=max((mark[2] for mark in marks.values()), default=0),
        )

    def take(self, store: Path) -> dict[str, tuple[Path, FileMark]] | None:
        """Link or copy the files below `store` and return them by path; None if one changed since the last scan.

        Raises OSError where the disk is full or the links cannot be made.
        """
        taken = dict[str, tuple[Path, FileMark]]()
        for path, mark in self.marks.items():
            file = self._files[path]
            source, to = file.link or self.at / path, store / self.name / path
            try:
                put(source, to, copied=self._may_be_written_over(path))
                if mark_of(source.stat())[1:] != mark[1:]:
                    return None
            except FileNotFoundError:
                return None
            taken[path] = to, mark_of(to.stat())
        self.know()
        return taken

    def _may_be_written_over(self, path: str) -> bool:
        """Return whether the script may overwrite the file in place while it waits for its upload: a link would change with it."""
        return not self.folder or (self._before is not None and path in self._before)

    def know(self) -> None:
        """Drop the links: this version is uploaded, so the disk space belongs to the script again."""
        self._learn()
        self._known, self._is_known = self.marks, True
        self.forget()
        for file in self._files.values():
            file.link = None

    def _learn(self) -> None:
        """Learn which kinds of files a version consists of: those that this one wrote; if it merely gained a file, the old ones, too."""
        before, marks = self._before, self.marks
        fresh = frozenset(path for path, mark in marks.items() if before is None or before.get(path) != mark)
        if fresh and before is not None and adds_only(self.name, fresh, before, marks):
            self.settles_s *= LATER
            self.due = (self.due or frozenset()) | path_patterns(marks)
        elif fresh:
            self.settles_s = self._settles_s
            self.due = path_patterns(fresh)
        self._before = marks

    def forget(self) -> None:
        shutil.rmtree(self._store, ignore_errors=True)

    def _entries(self) -> Entries:
        return {path: (stat, odd) for path, stat, odd in entries_at(self.at, self._within)}

    def _notice_next(self, here: Entries) -> None:
        """Start the next version when a complete file is written again: what was there until now was a version, taken or not.

        The first version under a new name is the exception, as some scripts write a file twice while they save.
        """
        if self._before is None and self.name != ROOT and has_number(self.name):
            return
        for path, (stat, _) in here.items():
            file, before = self._files.get(path), self._before or {}
            again = file is not None and file.sound and file.mark != mark_of(stat)
            there = path in self.marks  # a file that was deleted in between leaves no version behind
            if again and there and not tells_nothing(path or self.name) and before.get(path) != self.marks[path]:
                self._learn()
                return

    def _mark(self) -> None:
        self.marks = {path: file.mark for path, file in self._files.items() if self.gone or path in self._here}
        self._is_known = self.marks == self._known

    def _look_at(self, at: Path, path: str, stat: os.stat_result, now_s: float, odd: str = "") -> None:
        mark, file = mark_of(stat), self._files.get(path)
        if file is None or file.mark[0] != mark[0]:
            to = self._store / (path or self.name)
            file = self._files[path] = _File(mark, to if not odd and link(at, to) else None, odd=odd)
            self._changed_s = now_s
        elif file.mark != mark:
            file.mark, file.sound, file.told = mark, False, None
            self._changed_s = now_s
        if file.sound or odd:
            return
        readable = file.link or at
        if self._is_written(readable):
            self._changed_s = now_s
        elif is_complete_at(readable, path or self.name, mark[1]):
            file.sound, file.told = True, told_at(readable, path or self.name, mark[1])

    def _let_renamed_go(self, present: set[int]) -> None:
        """Forget files that were renamed, as the new name holds them, and files that could not be linked in the first place."""
        for path, file in list(self._files.items()):
            if path not in self._here and (file.odd or file.mark[0] in present):
                del self._files[path]

    def _notice_deletion(self, now_s: float) -> None:
        """Treat the folder as being deleted while more and more of its files vanish and nothing is written."""
        lost = frozenset(self._files.keys() - self._here)
        if lost - self._lost and self._changed_s < now_s:
            self._lost_s = self._changed_s = now_s
        elif self._changed_s > self._lost_s or now_s - self._lost_s >= DELETED_WITHIN_S:
            self._let_go(lost)
            lost = frozenset()
        self._lost = lost

    def _let_go(self, paths: Iterable[str]) -> None:
        for path in paths:
            if to := self._files.pop(path).link:
                to.unlink(missing_ok=True)

    def _link_all(self) -> None:
        for path in self._here:
            file, to = self._files[path], self._store / (path or self.name)
            file.link = file.link or (to if link(self.at / path if path else self.at, to) else None)
