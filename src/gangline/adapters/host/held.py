"""One thing in a script's folder that may be a checkpoint, held by hard links while the script writes it and when it deletes it.

A file that is written over in its place is the same file for a link; so what is one file, and what was sent once already, is copied when
it is taken.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import thread_time
from typing import Any

from gangline.adapters.host.entries import Entries, Mark, entries_at, is_whole_at, link, mark_of, put, told_at
from gangline.core.command.candidate import ROOT, CheckpointCandidate, SeenFile
from gangline.core.command.version import adds_only, has_number, kinds_of, tells_nothing

DELETED = "was deleted again"
SETTLES_S = 1.0
"""After how long nothing more is expected of a folder of which nothing is known."""
PATIENCE_S = 30.0
"""After how long a file is not waited for that versions before had."""
LATER = 10
"""How many times as long as the time before a checkpoint settles that gets one file more after another."""
LOOK_AGAIN_S, LOOK_AGAIN_AT_KNOWN_S = 2.0, 10.0
"""How often what has been as it is for long is looked at, where nothing tells of news: before it is known and after."""
MANY, BUSY, IDLE = 500, 10.0, 200.0
"""So many files are looked at for at most 1/`BUSY` of a core where there is news of them, and 1/`IDLE` where there is none."""
DELETED_WITHIN_S = 10.0
"""A folder of which a file went and that is still there so long after the last that did is not being deleted."""


@dataclass(slots=True)
class Version:
    """The files of a version that was taken, or known to be safe, and the kinds of those that it wrote. `sha256s` comes later."""

    marks: dict[str, Mark]
    kinds: frozenset[str]
    sha256s: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _File:
    mark: Mark
    link: Path | None
    sound: bool = False
    told: Any = None
    odd: str = ""


class HeldCheckpoint:
    """What lies at `at`; its links lie below `store`. `is_written` says whether anybody writes a file."""

    def __init__(
        self,
        at: Path,
        store: Path,
        is_written: Callable[[Path], bool],
        now_s: float,
        *,
        before: Version | None = None,
        due: frozenset[str] | None = None,
    ) -> None:
        """`before`: the version that was taken last, by an earlier process too; `due`: the kinds of files that another of its kind had."""
        self.at = at
        self.name = at.name
        self.folder = at.is_dir()
        self.gone = False
        self._settles_s = self.settles_s = SETTLES_S
        self.due = before.kinds if before else due
        self._inode = at.stat().st_ino if self.folder else 0
        self._store = store
        self._is_written = is_written
        self._files: dict[str, _File] = {}
        self._here: set[str] = set()
        self.marks: dict[str, Mark] = {}
        self._known: dict[str, Mark] | None = None
        self._before = before.marks if before else None
        self._is_known = False
        self._changed_s = self._looked_s = now_s
        self._lost = frozenset[str]()
        self._lost_s = now_s
        self.heard = False
        self._read = 0
        """How many names were gone through, where that are more than it has files."""
        self._took_s = 0.0
        self._shown: tuple[bool, bool] | None = None

    @property
    def unchanged_s(self) -> float:
        """How long it has been as it is, at the last look."""
        return self._looked_s - self._changed_s

    def is_there(self) -> bool:
        """Whether it is still this one that lies there."""
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
        """It is gone. Whether it counts as it was: if all of it is held, and it was not sent like this."""
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
        """None for what is known, or is being deleted: of that, what is held counts when it is gone. Of `MANY` files None, too,
        where nobody has looked since the last time."""
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

    def take(self, store: Path) -> dict[str, tuple[Path, Mark]] | None:
        """Files by their paths, at places of their own below `store`. None where one changed since the last look. Raises OSError where
        they cannot be held."""
        taken = dict[str, tuple[Path, Mark]]()
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
        """While it waits to be sent. A link would become what is written then."""
        return not self.folder or (self._before is not None and path in self._before)

    def know(self) -> None:
        """As it is now it is safe elsewhere: the script's disk is its own again."""
        self._learn()
        self._known, self._is_known = self.marks, True
        self.forget()
        for file in self._files.values():
            file.link = None

    def _learn(self) -> None:
        """What a version has: the kinds of files that this one wrote. What only got a file more has all that it had, and this."""
        before, marks = self._before, self.marks
        fresh = frozenset(path for path, mark in marks.items() if before is None or before.get(path) != mark)
        if fresh and before is not None and adds_only(self.name, fresh, before, marks):
            self.settles_s *= LATER
            self.due = (self.due or frozenset()) | kinds_of(marks)
        elif fresh:
            self.settles_s = self._settles_s
            self.due = kinds_of(fresh)
        self._before = marks

    def forget(self) -> None:
        shutil.rmtree(self._store, ignore_errors=True)

    def _entries(self) -> Entries:
        return {path: (stat, odd) for path, stat, odd in entries_at(self.at)}

    def _notice_next(self, here: Entries) -> None:
        """Where a file that was whole is written again, what was there until now was a version, taken or not. The first one of a name that
        no other has may still be in the making: some scripts write a file twice."""
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
        elif is_whole_at(readable, path or self.name, mark[1]):
            file.sound, file.told = True, told_at(readable, path or self.name, mark[1])

    def _let_renamed_go(self, present: set[int]) -> None:
        """A file that got another name is held by that one; what could not be held has nothing to leave."""
        for path, file in list(self._files.items()):
            if path not in self._here and (file.odd or file.mark[0] in present):
                del self._files[path]

    def _notice_deletion(self, now_s: float) -> None:
        """As long as more and more files go, and nothing is written, the folder is going."""
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
