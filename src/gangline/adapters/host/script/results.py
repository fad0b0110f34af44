"""Scan the files beside the checkpoints in a script's folder and at extra paths, and remember which of them were uploaded."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from secrets import token_hex
from typing import Any

from gangline.adapters.host.script.entries import (
    OUTSIDE,
    UNREADABLE,
    copy,
    entries_at,
    leads_out,
    link,
    mark_of,
    told_at,
)
from gangline.core.command.candidate import CheckpointCandidate, SeenFile, path_below
from gangline.core.command.completeness import is_complete_file
from gangline.core.command.layout import Rules
from gangline.core.command.results import FileMark, Turn, keeps_its_own, turns
from gangline.core.errors import BadInput, Damaged
from gangline.core.files import FORBIDDEN, File, is_safe_path
from gangline.ports.results import ScannedFile, Sent

BESIDES = "results"
"""The folder in the store for extra paths whose name is taken."""
NOTES, HOLDING = "sent.jsonl", "sending"


class LocalResults:
    """The results in the folder `root` and at the paths `besides`; its own files are in `state`. `is_written` returns whether a process has
    a file open for writing. Links out of `within` are not followed."""

    def __init__(
        self,
        root: Path,
        state: Path,
        rules: Rules,
        besides: Sequence[Path],
        is_written: Callable[[Path], bool],
        within: Path | None = None,
    ) -> None:
        self._root = root
        self._state = state
        self._rules = rules
        self._besides = besides
        self._is_written = is_written
        self._within = within
        self._unreadable: list[str] = []
        self._has_own = False
        self._heads: dict[Path, tuple[FileMark, Any]] = {}
        self._sent = _read_notes(state / NOTES)
        (state / f".{NOTES}").unlink(missing_ok=True)
        self._write_notes(self._sent, state / f".{NOTES}")  # drops older notes of each file
        (state / f".{NOTES}").replace(state / NOTES)
        (state / HOLDING).mkdir(exist_ok=True)
        for left in (state / HOLDING).iterdir():
            left.unlink()

    def scan(self) -> dict[str, ScannedFile]:
        self._unreadable, found = [], dict[str, ScannedFile]()
        names = self._names()
        marks = {name: self._marks(self._root / name, name) for name in names}
        candidates = [self._candidate(name, marks[name]) for name in names]
        self._has_own = self._has_own or keeps_its_own(self._rules, candidates)
        for name, turn in turns(self._rules, candidates, has_own=self._has_own).items():
            found |= _looks(self._root / name, name, marks[name], turn)
        apart = next(name for name in chain((BESIDES,), map(f"{BESIDES}-{{}}".format, count(2))) if name not in names)
        for path in self._besides:
            at = path.resolve()
            if not self._is_seen(at, found):
                name = f"{apart}/{at.name}" if at.name in names else at.name
                beside = self._marks(at, name)
                found |= _looks(at, name, beside, dict.fromkeys(beside, "now"))
        return found

    def unreadable(self) -> list[str]:
        return self._unreadable

    def missing(self) -> list[Path]:
        return [path for path in self._besides if not path.exists()]

    def is_written(self, look: ScannedFile) -> bool:
        return self._is_written(look.at)

    @contextmanager
    def hold(self, path: str, look: ScannedFile, *, copied: bool) -> Iterator[tuple[File, Path]]:
        if not is_safe_path(path):
            raise BadInput("the object store cannot have a file of this name: let the script give it another one")
        held = self._state / HOLDING / token_hex(8)
        try:
            if copied:
                copy(look.at, held)
            at = held if copied or link(look.at, held) else look.at
            with at.open("rb") as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
                size = os.fstat(content.fileno()).st_size
            if not copied and mark_of(at.stat()) != look.mark:
                raise Damaged("it is still being written")
            yield File(path=path, bytes=size, sha256=sha256), at
        finally:
            held.unlink(missing_ok=True)

    def is_complete(self, path: str, at: Path) -> bool:
        with at.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return is_complete_file(path, size, lambda first, many: os.pread(file.fileno(), many, first))

    def sent(self) -> dict[str, Sent]:
        return self._sent

    def note(self, sent: Mapping[str, Sent]) -> None:
        self._sent |= sent
        with suppress(OSError):  # the disk is full: the files are safe, and the next process uploads them again
            self._write_notes(sent, self._state / NOTES)

    def _write_notes(self, sent: Mapping[str, Sent], to: Path) -> None:
        """Append the notes, each after a newline: the last line of the file may be half of one."""
        rows = [json.dumps([path, each.mark, each.run, each.address]) for path, each in sent.items()]
        with to.open("a") as notes:
            notes.write("".join(f"\n{row}" for row in rows))

    def _names(self) -> list[str]:
        if leads_out(self._root, self._within):
            self._unreadable.append(f"{self._root.name} {OUTSIDE}")
            return []
        with suppress(FileNotFoundError), os.scandir(self._root) as entries:
            return sorted(entry.name for entry in entries if not entry.is_symlink() and not entry.name.startswith("."))
        return []

    def _is_seen(self, at: Path, found: Mapping[str, ScannedFile]) -> bool:
        """Return whether it is in the folder and uploaded with that."""
        root = self._root.resolve()
        return root in at.parents and any(look.group == at.relative_to(root).parts[0] for look in found.values())

    def _marks(self, at: Path, name: str) -> dict[str, FileMark]:
        """Return the marks of the files at a path, by their paths below it."""
        found = dict[str, FileMark]()
        for path, stat, odd in entries_at(at, self._within):
            if odd in (UNREADABLE, OUTSIDE):
                self._unreadable.append(f"{path_below(name, path)} {odd}")
            elif not odd:
                found[path] = mark_of(stat)
        return found

    def _candidate(self, name: str, marks: Mapping[str, FileMark]) -> CheckpointCandidate:
        at = self._root / name
        return CheckpointCandidate(
            name=name,
            folder=at.is_dir(),
            files={
                path: SeenFile(bytes=mark[1], sound=True, told=self._told(at, mark)) for path, mark in marks.items()
            },
            written_ns=max((mark[2] for mark in marks.values()), default=0),
        )

    def _told(self, at: Path, mark: FileMark) -> Any:
        """Return what a single file says about its layout; each version is read once."""
        if not at.name.endswith(".ckpt") or not at.is_file():
            return None
        known = self._heads.get(at)
        if known is None or known[0] != mark:
            known = self._heads[at] = mark, told_at(at, at.name, mark[1])
        return known[1]


def _looks(at: Path, name: str, marks: Mapping[str, FileMark], turn: Mapping[str, Turn]) -> dict[str, ScannedFile]:
    return {
        _writable(path_below(name, path)): ScannedFile(
            at=at / path if path else at, mark=marks[path], turn=each, group=name
        )
        for path, each in turn.items()
    }


def _read_notes(place: Path) -> dict[str, Sent]:
    found = dict[str, Sent]()
    with suppress(OSError):
        for line in place.read_text().splitlines():
            with suppress(ValueError, TypeError):  # half a line, from a process that was killed
                path, (inode, size, written_ns), run, address = json.loads(line)
                found[str(path)] = Sent(mark=(inode, size, written_ns), run=str(run), address=str(address))
    return found


def _writable(path: str) -> str:
    """Return a name that every system can store: forbidden characters are written as %XX."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return FORBIDDEN.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)
