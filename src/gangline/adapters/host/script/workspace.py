"""A script's checkpoint folder on this machine (gangline.adapters.host.script.held), and the state folder beside it.

The state folder is `.NAME.gangline` beside the checkpoint folder, or `.gangline` inside it if that is another disk. It contains links to
files (`held`), downloads (`incoming`), what the last start moved out of the script's sight (`set-aside`), and the command's `log.txt`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from time import monotonic, thread_time

from gangline.adapters.host.script.entries import date_files, entries_at, files_at, mark_of
from gangline.adapters.host.script.held import HeldCheckpoint
from gangline.adapters.host.script.held_root import HeldRoot
from gangline.adapters.host.script.state_folder import lock, make_folders
from gangline.adapters.host.script.versions import Versions
from gangline.adapters.host.script.writers import has_writer, tells_writers
from gangline.core.command.candidate import ROOT, CheckpointCandidate, path_below
from gangline.core.command.layout import Rules, is_candidate, is_in_root, is_of_its_own
from gangline.core.command.results import FileMark
from gangline.core.command.step import step_of
from gangline.core.command.version import is_late
from gangline.core.errors import Damaged, UserError
from gangline.core.files import File, digest_of_files, is_safe_path
from gangline.core.runs.contract import Manifest
from gangline.ports.workspace import Taken
from gangline.posix import FolderNews, is_written

ASIDE = "set-aside"
CHEAP_S, IDLE = 0.0005, 400.0
"""Each look scans the folder as long as a scan takes less than `CHEAP_S` seconds. A slower scan takes at most 1/`IDLE` of a core, however
many files there are: between two scans, a look checks only what it was notified of."""


class LocalWorkspace:
    """The checkpoint folder `root`; links out of `within` are not followed. Raises `UserError` if it cannot be used, or if another
    `gangline exec` uses it."""

    def __init__(self, root: Path, rules: Rules, within: Path | None = None) -> None:
        self.root = root
        self.rules = rules
        self._within = within
        self.state = make_folders(root)
        self._lock = lock(self.state / "lock", root)
        self._store = self.state / "held"
        shutil.rmtree(self._store, ignore_errors=True)
        self._store.mkdir()
        self._held: dict[str, HeldCheckpoint] = {}
        self._versions = Versions(self.state)
        self._has_own = bool(self._versions.names - {ROOT})
        self._taken: dict[Path, dict[str, FileMark]] = {}
        self._leases = tells_writers(self.state)
        self._news = FolderNews()
        self._news.watch(root)
        self._heard: set[str] = set()
        self._found: dict[str, None] = {}
        self._scan_s = 0.0
        self._aside: Path | None = None

    @property
    def log(self) -> Path:
        return self.state / "log.txt"

    # Looking

    def wait(self, seconds: float) -> None:
        until_s = monotonic() + seconds
        while not self._heard and (left_s := until_s - monotonic()) > 0:
            self._hear(left_s)

    def _hear(self, seconds: float) -> None:
        news = self._news.wait(seconds)
        if self.root in news:  # the queue of notifications overflowed
            self._scan_s = 0.0
        heard = {path.relative_to(self.root).parts[0] for path in news if path != self.root}
        self._heard |= {name for name in heard if self._may_be_one(name)}
        if any(self._may_be_in_root(name) for name in heard):
            self._heard.add(ROOT)

    def look(self, now_s: float, *, ended: bool = False, well: bool = False) -> list[CheckpointCandidate]:
        heard, self._heard = self._heard, set()
        names = self._names(heard, anew=ended)
        for name in names:
            if name not in self._held or not self._held[name].is_there():
                continue
            if name in heard:  # it may have been created again with the same inode, which the old watch does not cover
                self._news.watch(self.root / name)
                self._held[name].heard = True
            if ended or self._held[name].is_due(now_s):
                self._held[name].look(now_s)
        missed = self._missed()
        for name in names:
            if name not in self._held and (name == ROOT or os.path.lexists(self.root / name)):
                self._hold(name, now_s)
        present = [held for held in self._held.values() if not held.gone]
        found = [each for held in (*missed, *present) if (each := held.as_candidate(now_s, ended=ended, well=well))]
        self._has_own = self._has_own or any(is_of_its_own(self.rules, each) for each in found)
        if self._has_own and self.rules.layout == "auto":
            found = [each for each in found if each.name != ROOT]
        return sorted(found, key=lambda each: (each.written_ns, self.step_of(each) or 0, each.name))

    def step_of(self, candidate: CheckpointCandidate) -> int | None:
        return step_of(candidate, self.rules.step)

    def _may_be_in_root(self, name: str) -> bool:
        return self.rules.layout == "folder" or is_in_root(self.rules, name)

    def _may_be_one(self, name: str) -> bool:
        return any(is_candidate(self.rules, name, folder=folder) for folder in (True, False))

    def _names(self, heard: set[str], *, anew: bool) -> list[str]:
        """Return the names of possible checkpoints: those of the last scan, updated by the notifications since."""
        if anew or monotonic() >= self._scan_s:
            begun_s = thread_time()
            self._found = self._scan()
            took_s = thread_time() - begun_s
            self._scan_s = 0.0 if took_s < CHEAP_S else monotonic() + IDLE * took_s
        else:
            for name in heard - {ROOT}:
                at = self.root / name
                if os.path.lexists(at) and not at.is_symlink() and is_candidate(self.rules, name, folder=at.is_dir()):
                    self._found[name] = None
                else:
                    self._found.pop(name, None)
        return [ROOT, *self._found] if self._looks_at_root and self.root.is_dir() else list(self._found)

    def _scan(self) -> dict[str, None]:
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            return dict.fromkeys(
                entry.name
                for entry in entries
                if not entry.is_symlink() and is_candidate(self.rules, entry.name, folder=entry.is_dir())
            )
        return {}

    @property
    def _looks_at_root(self) -> bool:
        return not self.rules.complete_when and self.rules.layout in ("auto", "files", "folder")

    def _hold(self, name: str, now_s: float) -> None:
        at, store = self.root / name, self._store / token_hex(8)
        with suppress(FileNotFoundError):
            if name == ROOT:
                self._held[name] = self._root(store, now_s)
            else:
                before, due = self._versions.of(name, partial(_marks_at, at)), self._versions.due(name)
                self._held[name] = HeldCheckpoint(
                    at, store, self.is_written, now_s, before=before, due=due, within=self._within
                )
                self._news.watch(at)
            self._held[name].look(now_s)

    def _root(self, store: Path, now_s: float) -> HeldRoot:
        belongs = None if self.rules.layout == "folder" else partial(is_in_root, self.rules)
        before = self._versions.of(ROOT, partial(_marks_at, self.root))
        return HeldRoot(self.root, store, self.is_written, now_s, belongs=belongs, before=before, within=self._within)

    def _missed(self) -> list[HeldCheckpoint]:
        """Return the checkpoints that were deleted since the last look and still count; forget those that were deleted before it."""
        found = list[HeldCheckpoint]()
        for name, held in list(self._held.items()):
            if held.gone or not held.is_there():
                if not held.miss():
                    held.forget()
                    del self._held[name]
                else:
                    found.append(held)
        return found

    def is_written(self, path: Path) -> bool:
        found = is_written(path) if self._leases else None
        return has_writer(path) if found is None else found

    # Taking

    def take(self, candidate: CheckpointCandidate) -> Taken | None:
        held = self._held.get(candidate.name)
        if held is None or held.marks.keys() != candidate.files.keys():
            return None
        store, found = self._store / token_hex(8), None
        try:
            found = held.take(store)
        finally:
            if found is None:
                shutil.rmtree(store, ignore_errors=True)
        if found is None:
            return None
        self._taken[store] = held.marks
        self._remember(held)
        below = {path: path_below(candidate.name, path) for path in found}
        return Taken(
            name=candidate.name,
            step=self.step_of(candidate),
            files={below[path]: place for path, (place, _) in found.items()},
            marks={below[path]: mark for path, (_, mark) in found.items()},
            written_ns={below[path]: candidate.files[path].written_ns for path in found},
            adds=is_late(candidate),
        )

    def release(self, taken: Taken) -> None:
        for store in self._stores_of(taken):
            self._taken.pop(store, None)
            shutil.rmtree(store, ignore_errors=True)

    def describe(self, taken: Taken) -> tuple[File, ...]:
        found = {path: _describe(path, at, taken.marks[path]) for path, at in sorted(taken.files.items())}
        for store in self._stores_of(taken):
            marks = self._taken[store]
            sha256s = {path: found[path_below(taken.name, path)].sha256 for path in marks}
            self._versions.describe(taken.name, marks, sha256s)
        return tuple(found.values())

    def _stores_of(self, taken: Taken) -> set[Path]:
        return {self._store / path.relative_to(self._store).parts[0] for path in taken.files.values()}

    def know(self, name: str) -> None:
        if name not in self._held:
            self._hold(name, 0.0)
        self._held[name].know()
        self._has_own = self._has_own or name != ROOT
        self._remember(self._held[name])

    def _remember(self, held: HeldCheckpoint) -> None:
        self._versions.remember(
            held.name, held.marks, held.due or frozenset(), lambda name: (self.root / name).exists()
        )

    # Restoring

    def holds(self, name: str, manifest: Manifest) -> bool:
        with suppress(Damaged, OSError):
            here = {path_below(name, path) for path in self._paths_of(name)}
            return here == {file.path for file in manifest.files} and all(
                _describe(file.path, self.root / file.path) == file for file in manifest.files
            )
        return False

    def incoming(self, manifest: Manifest) -> Path:
        return self.state / "incoming" / digest_of_files(manifest.files)[:16]

    def install(self, name: str, manifest: Manifest, written_ns: Mapping[str, int]) -> Path:
        self.set_aside(name)
        come = self.incoming(manifest)
        paths = [file.path for file in manifest.files]
        if name != ROOT:
            date_files(come, paths, written_ns)
            (come / name).rename(self.root / name)
        else:
            for path in paths:
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                (come / path).replace(self.root / path)
            date_files(self.root, paths, written_ns)  # after the moves, since a move sets a file's change time
        self.discard()
        return self.root / name

    def discard(self) -> None:
        shutil.rmtree(self.state / "incoming", ignore_errors=True)

    def set_aside(self, name: str) -> None:
        if self._aside is None:
            shutil.rmtree(self.state / ASIDE, ignore_errors=True)
            self._aside = self.state / ASIDE
            self._aside.mkdir()
        for path in self._paths_of(name) if name == ROOT else [name] * (self.root / name).exists():
            try:
                (self._aside / path).parent.mkdir(parents=True, exist_ok=True)
                (self.root / path).rename(self._aside / path)
            except OSError as error:
                raise UserError(
                    f"{self.root / path} cannot be set aside: {error.strerror}",
                    hint="the script cannot resume from it: move it out of the folder",
                ) from None
        if held := self._held.pop(name, None):
            held.forget()

    def _paths_of(self, name: str) -> list[str]:
        """Return the paths of its present files, relative to the checkpoint."""
        if name != ROOT:
            return list(files_at(self.root / name))
        return sorted(self._root(self._store / token_hex(8), 0.0).paths)

    def room(self) -> int:
        return shutil.disk_usage(self.root).free

    def place(self, name: str) -> Path:
        """Return the path to pass to the script; for `ROOT` the checkpoint folder, or the file if it is a single one."""
        paths = self._paths_of(ROOT) if name == ROOT else []
        return self.root / (paths[0] if len(paths) == 1 else name)

    def remembered(self) -> dict[str, str]:
        try:
            found = json.loads((self.state / "run.json").read_text())
        except (OSError, ValueError):
            return {}
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}

    def remember(self, told: dict[str, str]) -> None:
        (self.state / ".run.json").write_text(json.dumps(told))
        (self.state / ".run.json").replace(self.state / "run.json")

    def close(self) -> None:
        shutil.rmtree(self._store, ignore_errors=True)
        self._news.close()
        os.close(self._lock)


def _marks_at(place: Path) -> dict[str, tuple[Path, FileMark]]:
    return {path: (place / path if path else place, mark_of(stat)) for path, stat, odd in entries_at(place) if not odd}


def _describe(path: str, at: Path, mark: tuple[int, int, int] | None = None) -> File:
    """Return the file with its hash. Raises `Damaged` if it changed while it was read, or since it had this mark."""
    if not is_safe_path(path):
        raise Damaged(f"{path!r} cannot be a name in the object store: let the script give the file another one")
    before = mark_of(at.stat())
    with at.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    after = mark_of(at.stat())
    if before != after or (mark is not None and mark[1:] != after[1:]):
        raise Damaged(f"{path} was overwritten while it waited to be uploaded")
    return File(path=path, bytes=after[1], sha256=sha256)
