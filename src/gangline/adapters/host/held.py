"""One thing in a script's folder that may be a checkpoint, held by hard links while the script writes it and when it deletes it.

A file that is written over in its place is the same file for a link; so what is one file, and what was sent once already, is copied when
it is taken.
"""

import fcntl
import json
import os
import shutil
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from errno import EACCES
from pathlib import Path
from typing import Any

from gangline.core.command.layout import INDEX, OF_LIGHTNING, STATES, Candidate, Seen
from gangline.core.command.whole import is_whole

LINKED, UNREADABLE, DELETED = "is a link to a folder, which is not followed", "cannot be read", "was deleted again"
Mark = tuple[int, int, int]
"""Which file, how long, when it was written last: another one is another file, or another content."""

SETTLES_S = 1.0
LOOK_AGAIN_S, LOOK_AGAIN_AT_KNOWN_S = 2.0, 10.0
"""How often what has been as it is for long is looked at, where nothing tells of news: before it is known and after."""
DELETED_WITHIN_S = 10.0
"""A folder of which a file went and that is still there so long after the last that did is not being deleted."""
TOLD_BYTES_MAX = 4 * 2**20
HEAD_BYTES = 65_536
CLONE = 0x40049409
"""FICLONE of ioctl_ficlone(2): a copy that shares its blocks, where the file system can."""


@dataclass(slots=True)
class _File:
    mark: Mark
    link: Path | None
    sound: bool = False
    told: Any = None
    odd: str = ""


class Held:
    """What lies at `at`; its links lie below `store`. `is_written` says whether anybody writes a file."""

    def __init__(self, at: Path, store: Path, is_written: Callable[[Path], bool], now_s: float) -> None:
        self.at = at
        self.folder = at.is_dir()
        self.gone = False
        self._inode = at.stat().st_ino if self.folder else 0
        self._store = store
        self._is_written = is_written
        self._files: dict[str, _File] = {}
        self._here: set[str] = set()
        self.marks: dict[str, Mark] = {}
        self._known: dict[str, Mark] | None = None
        self._is_known = False
        self._changed_s = self._looked_s = now_s
        self._lost = frozenset[str]()
        self._lost_s = now_s

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
        again_s = LOOK_AGAIN_S if self._known is None else LOOK_AGAIN_AT_KNOWN_S
        return now_s - self._looked_s >= min(again_s, self.unchanged_s / 10)

    def look(self, now_s: float) -> None:
        self._looked_s = now_s
        here = {path: (stat, odd) for path, stat, odd in entries_at(self.at)}
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

    def as_candidate(self, now_s: float, *, ended: bool) -> Candidate | None:
        """None for what is known, or is being deleted: of that, what is held counts when it is gone."""
        marks, known = self.marks, self._known
        is_going = bool(self._lost) and not self.gone
        if self._is_known or not (marks or self.folder) or (is_going and not (ended and known is None)):
            return None
        files = {path: self._files[path] for path in marks}
        return Candidate(
            name=self.at.name,
            folder=self.folder,
            files={
                path: Seen(bytes=file.mark[1], sound=file.sound, told=file.told, odd=file.odd)
                for path, file in files.items()
            }
            | {path: Seen(bytes=0, sound=False, odd=DELETED) for path in self._lost if is_going},
            settled=self.gone or ended or now_s - self._changed_s >= SETTLES_S,
            fresh=None if known is None else frozenset(path for path in marks if known.get(path) != marks[path]),
            written_ns=max((mark[2] for mark in marks.values()), default=0),
        )

    def take(self, store: Path) -> dict[str, tuple[Path, Mark]] | None:
        """Files by their paths, at places of their own below `store`. None where one changed since the last look. Raises OSError where
        they cannot be held."""
        again, taken = self._known is not None or not self.folder, dict[str, tuple[Path, Mark]]()
        for path, mark in self.marks.items():
            file = self._files[path]
            source, to = file.link or self.at / path, store / self.at.name / path
            try:
                _put(source, to, copied=again)
                if mark_of(source.stat())[1:] != mark[1:]:
                    return None
            except FileNotFoundError:
                return None
            taken[path] = to, mark_of(to.stat())
        self.know()
        return taken

    def know(self) -> None:
        """As it is now it is safe elsewhere: the script's disk is its own again."""
        self._known, self._is_known = self.marks, True
        self.forget()
        for file in self._files.values():
            file.link = None

    def forget(self) -> None:
        shutil.rmtree(self._store, ignore_errors=True)

    def _mark(self) -> None:
        self.marks = {path: file.mark for path, file in self._files.items() if self.gone or path in self._here}
        self._is_known = self.marks == self._known

    def _look_at(self, at: Path, path: str, stat: os.stat_result, now_s: float, odd: str = "") -> None:
        mark, file = mark_of(stat), self._files.get(path)
        if file is None or file.mark[0] != mark[0]:
            to = self._store / (path or at.name)
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
        elif _is_whole(readable, path or self.at.name, mark[1]):
            file.sound, file.told = True, _told(readable, path or self.at.name, mark[1])

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
            for path in lost:
                if to := self._files.pop(path).link:
                    to.unlink(missing_ok=True)
            lost = frozenset()
        self._lost = lost

    def _link_all(self) -> None:
        for path in self._here:
            file, to = self._files[path], self._store / (path or self.at.name)
            file.link = file.link or (to if link(self.at / path if path else self.at, to) else None)


def mark_of(stat: os.stat_result) -> Mark:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def files_at(place: Path) -> Iterator[str]:
    """Their paths below a folder; a file has the empty one. Raises PermissionError where a folder cannot be read."""
    for path, _, odd in entries_at(place):
        if odd == UNREADABLE:
            raise PermissionError(EACCES, os.strerror(EACCES), str(place / path))
        if not odd:
            yield path


def entries_at(place: Path) -> Iterator[tuple[str, os.stat_result, str]]:
    """Files with their paths below a folder; a file has the empty one. What goes away meanwhile is left out, and what is neither a file
    nor a folder. The last word says of what was not looked into why."""
    with suppress(FileNotFoundError, NotADirectoryError):
        stat = place.stat()
        if modes.S_ISREG(stat.st_mode):
            yield "", stat, ""
        if not modes.S_ISDIR(stat.st_mode):
            return
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except PermissionError:
            yield "", stat, UNREADABLE
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                for path, below, odd in entries_at(place / entry.name):
                    yield f"{entry.name}/{path}", below, odd
            else:
                yield from _entry(entry, stat)


def _entry(entry: os.DirEntry[str], folder: os.stat_result) -> Iterator[tuple[str, os.stat_result, str]]:
    try:
        stat = entry.stat()
    except PermissionError:
        yield entry.name, folder, UNREADABLE
    except OSError:  # it has gone, or is a link to nothing or itself
        return
    else:
        if modes.S_ISDIR(stat.st_mode):
            yield entry.name, stat, LINKED
        elif modes.S_ISREG(stat.st_mode):
            yield entry.name, stat, ""


def link(source: Path, to: Path) -> bool:
    """Whether it could be made, to the file itself; a link by this name to another one goes."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.unlink(missing_ok=True)
        os.link(source.resolve(), to)
    except OSError:
        return False
    return True


def copy(source: Path, to: Path) -> None:
    """Raises OSError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, to.open("wb") as write:
        try:
            fcntl.ioctl(write, CLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, write, 1 << 20)


def _put(source: Path, to: Path, *, copied: bool) -> None:
    """The file itself, or a copy of it where that is asked for or a link cannot be; a link again where the disk is too full for one.
    Raises OSError."""
    if copied or not link(source, to):
        try:
            copy(source, to)
        except OSError:
            if not (copied and link(source, to)):
                raise


def _is_whole(path: Path, name: str, size: int) -> bool:
    try:
        with path.open("rb") as file:
            return is_whole(name, size, lambda at, count: os.pread(file.fileno(), count, at))
    except OSError:
        return False


def _told(path: Path, name: str, size: int) -> Any:
    """What a small file of JSON says; of a file of Lightning's, that it is one."""
    try:
        if name.endswith(".ckpt"):
            with path.open("rb") as file:
                return OF_LIGHTNING if OF_LIGHTNING.encode() in file.read(HEAD_BYTES) else None
        if size <= TOLD_BYTES_MAX and (name.endswith(INDEX) or name in STATES):
            return json.loads(path.read_text())
    except (OSError, ValueError):
        pass
    return None
