"""Checkpoints of a script in a folder, held by hard links so that none is missed when the script deletes it soon after.

What this keeps lies beside the folder, in `.NAME.gangline`, or in it where that is another disk: the links (`held`), what comes in
(`incoming`), what was set aside, the command's `log.txt`. A file that is written over in its place is the same file for a link, so a
checkpoint that is one file is copied when it is complete.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

from gangline.core.contract import MANIFEST, Manifest
from gangline.core.errors import Damaged, UserError
from gangline.core.files import File, digest_of_files, is_safe_path
from gangline.core.layout import INDEX, STATES, Candidate, Rules, Seen, is_candidate, is_result, step_of
from gangline.core.whole import is_whole
from gangline.ports.workspace import Taken
from gangline.posix import is_written

SETTLES_S = 1.0
LOOK_AGAIN_S = 2.0
TOLD_BYTES_MAX = 4 * 2**20
CLONE = 0x40049409
"""FICLONE of ioctl_ficlone(2): a copy that shares its blocks, where the file system can."""


@dataclass(slots=True)
class _Held:
    """A file of a checkpoint as it was at the last look."""

    mark: tuple[int, int, int]
    link: Path | None
    sound: bool = False
    whole: bool = False
    told: Any = None


@dataclass(slots=True)
class _Entry:
    folder: bool
    store: Path
    files: dict[str, _Held] = field(default_factory=dict)
    here: set[str] = field(default_factory=set)
    changed_s: float = 0.0
    looked_s: float = 0.0
    gone: bool = False
    known: dict[str, tuple[int, int, int]] | None = None

    @property
    def marks(self) -> dict[str, tuple[int, int, int]]:
        return {path: held.mark for path, held in self.files.items() if self.gone or path in self.here}


class LocalWorkspace:
    """Raises `UserError` where the folder cannot be used, or another one is at work in it."""

    def __init__(self, root: Path, rules: Rules) -> None:
        self.root = root
        self.rules = rules
        self.state = _make_folders(root)
        self._lock = _lock(self.state / "lock", root)
        self._held = self.state / "held"
        shutil.rmtree(self._held, ignore_errors=True)
        self._held.mkdir()
        self._entries: dict[str, _Entry] = {}
        self._leases = _tells_writers(self.state)

    @property
    def log(self) -> Path:
        return self.state / "log.txt"

    # Looking

    def look(self, now_s: float, *, ended: bool = False) -> list[Candidate]:
        found = dict[str, bool]()
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                if not entry.is_symlink():
                    found[entry.name] = entry.is_dir()
        for name, folder in found.items():
            if is_candidate(self.rules, name, folder=folder):
                self._look_at(name, folder, now_s, ended=ended)
        for name in [name for name in self._entries if name not in found]:
            self._miss(name)
        return [
            self._as_candidate(name, entry, now_s, ended=ended)
            for name, entry in self._entries.items()
            if entry.marks and entry.marks != entry.known
        ]

    def _look_at(self, name: str, folder: bool, now_s: float, *, ended: bool) -> None:
        entry = self._entries.get(name)
        if entry is None or entry.gone or entry.folder != folder:
            self._forget(name)
            entry = self._entries[name] = _Entry(folder, self._held / token_hex(8), changed_s=now_s)
        elif now_s - entry.looked_s < min(LOOK_AGAIN_S, (entry.looked_s - entry.changed_s) / 10) and not ended:
            return
        entry.looked_s = now_s
        here = dict(_files_in(self.root / name) if folder else _file_at(self.root / name))
        for path, stat in here.items():
            self._look_at_file(entry, self.root / name / path, path, stat, now_s)
        entry.here = set(here)
        self._drop_renamed(entry, here)
        if entry.known is not None and entry.marks != entry.known:
            entry.known = None
            for path, held in entry.files.items():
                link = entry.store / (path or name)
                held.link = held.link or (link if _link(self.root / name / path, link) else None)

    def _look_at_file(self, entry: _Entry, at: Path, path: str, stat: os.stat_result, now_s: float) -> None:
        mark = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        held = entry.files.get(path)
        if held is None or held.mark[0] != mark[0]:
            link = entry.store / (path or at.name)
            held = entry.files[path] = _Held(mark, link if _link(at, link) else None)
            entry.changed_s = now_s
        elif held.mark != mark:
            held.mark, held.sound, held.whole, held.told = mark, False, False, None
            entry.changed_s = now_s
        if held.sound:
            return
        readable = held.link or at
        if self._is_written(readable):
            held.sound, entry.changed_s = False, now_s
        elif not held.sound:
            held.whole = held.whole or _is_whole(readable, path or at.name, mark[1])
            held.sound = held.whole
            held.told = _told(readable, path, mark[1]) if held.whole else None

    def _is_written(self, path: Path) -> bool:
        found = is_written(path) if self._leases else None
        return _has_writer(path) if found is None else found

    def _drop_renamed(self, entry: _Entry, here: dict[str, os.stat_result]) -> None:
        """A file that got another name is held by that one."""
        present = {stat.st_ino for stat in here.values()}
        for path in [path for path, held in entry.files.items() if path not in here and held.mark[0] in present]:
            del entry.files[path]

    def _miss(self, name: str) -> None:
        """It is gone: what is held of it counts, if it was not taken as it was."""
        entry = self._entries[name]
        if entry.gone or entry.marks == entry.known or not all(held.link for held in entry.files.values()):
            self._forget(name)
            return
        entry.gone = True
        for path, held in entry.files.items():
            assert held.link
            stat = held.link.stat()
            self._look_at_file(entry, held.link, path, stat, entry.looked_s)

    def _as_candidate(self, name: str, entry: _Entry, now_s: float, *, ended: bool) -> Candidate:
        counted = entry.files if entry.gone else {path: entry.files[path] for path in entry.here & entry.files.keys()}
        return Candidate(
            name=name,
            folder=entry.folder,
            files={path: Seen(bytes=held.mark[1], sound=held.sound, told=held.told) for path, held in counted.items()},
            settled=entry.gone or ended or now_s - entry.changed_s >= SETTLES_S,
        )

    # Taking

    def take(self, candidate: Candidate) -> Taken | None:
        entry = self._entries.get(candidate.name)
        if entry is None or entry.marks.keys() != candidate.files.keys():
            return None
        marks, files = entry.marks, dict[str, Path]()
        store = self._held / token_hex(8)
        for path in candidate.files:
            held = entry.files[path]
            source = held.link or self.root / candidate.name / path
            at = store / candidate.name / path
            if not (_copy(source, at) if not entry.folder or held.link is None else _link(source, at)):
                shutil.rmtree(store, ignore_errors=True)
                return None
            stat = source.stat()
            if (stat.st_size, stat.st_mtime_ns) != held.mark[1:]:
                shutil.rmtree(store, ignore_errors=True)
                return None
            files[f"{candidate.name}/{path}" if path else candidate.name] = at
        if entry.gone:
            self._forget(candidate.name)
        else:
            entry.known = marks
            self._let_go(entry)
        return Taken(name=candidate.name, step=step_of(candidate), files=files)

    def release(self, taken: Taken) -> None:
        for path in taken.files.values():
            shutil.rmtree(self._held / path.relative_to(self._held).parts[0], ignore_errors=True)

    def describe(self, taken: Taken) -> tuple[File, ...]:
        return tuple(_describe(path, at) for path, at in sorted(taken.files.items()))

    def know(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is None:
            self._look_at(name, (self.root / name).is_dir(), 0.0, ended=True)
            entry = self._entries[name]
        entry.known = entry.marks
        self._let_go(entry)

    def _let_go(self, entry: _Entry) -> None:
        """The links of what is safe elsewhere: the script's disk is its own."""
        shutil.rmtree(entry.store, ignore_errors=True)
        for held in entry.files.values():
            held.link = None

    def _forget(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            shutil.rmtree(entry.store, ignore_errors=True)

    # Restoring

    def holds(self, name: str, manifest: Manifest) -> bool:
        at = self.root / name
        here = {f"{name}/{path}" if path else name for path in _paths_at(at)}
        if here != {file.path for file in manifest.files}:
            return False
        with suppress(Damaged, OSError):
            return all(_describe(file.path, self.root / file.path) == file for file in manifest.files)
        return False

    def incoming(self, manifest: Manifest) -> Path:
        return self.state / "incoming" / digest_of_files(manifest.files)[:16]

    def install(self, name: str, manifest: Manifest) -> Path:
        self.set_aside(name)
        (self.incoming(manifest) / name).rename(self.root / name)
        self.discard()
        return self.root / name

    def discard(self) -> None:
        shutil.rmtree(self.state / "incoming", ignore_errors=True)

    def set_aside(self, name: str) -> None:
        aside = self.state / "set-aside" / name
        if (self.root / name).exists():
            _remove(aside)
            aside.parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).rename(aside)
        self._forget(name)

    def room(self) -> int:
        return shutil.disk_usage(self.root).free

    def place(self, name: str) -> Path:
        return self.root / name

    def results(self, besides: Sequence[Path]) -> dict[File, Path]:
        with os.scandir(self.root) as entries:
            names = sorted(entry.name for entry in entries if not entry.is_symlink())
        places = [self.root / name for name in names if self._is_result(name)] + [
            path for path in besides if path.exists()
        ]
        found = ((f"{at.name}/{path}" if path else at.name, at / path) for at in places for path in _paths_at(at))
        return {_describe(path, at): at for path, at in found}

    def _is_result(self, name: str) -> bool:
        entry = self._entries.get(name)
        if name.startswith("."):
            return False
        return entry is None or is_result(self.rules, self._as_candidate(name, entry, 0.0, ended=True))

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
        shutil.rmtree(self._held, ignore_errors=True)
        os.close(self._lock)


def _make_folders(root: Path) -> Path:
    """Of what this keeps: beside the folder, where a hard link reaches."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{root} cannot be made: {error.strerror}", hint="--checkpoints is a folder that the script writes to"
        ) from None
    for state in (root.absolute().parent / f".{root.absolute().name}.gangline", root / ".gangline"):
        with suppress(OSError):
            state.mkdir(exist_ok=True)
            if state.stat().st_dev == root.stat().st_dev and os.access(state, os.W_OK):
                return state
    raise UserError(
        f"nothing can be written in {root}", hint="may this user write there? is the disk mounted to be read only?"
    )


def _lock(path: Path, root: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(
            f"another gangline exec is at work in {root}",
            hint="one folder has one command at a time: wait, or end that one",
        ) from None
    return handle


def _files_in(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """With their paths below it. What goes away meanwhile is left out."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    for path, stat in _files_in(folder / entry.name):
                        yield f"{entry.name}/{path}", stat
                elif entry.is_file():
                    yield entry.name, entry.stat()


def _file_at(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    with suppress(FileNotFoundError):
        yield "", path.stat()


def _paths_at(place: Path) -> Iterator[str]:
    """Those of the files below a folder; the empty one of a file."""
    for path, _ in _files_in(place) if place.is_dir() else _file_at(place):
        yield path


def _link(source: Path, to: Path) -> bool:
    """Whether it could be made; a link by this name to another file goes."""
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        to.unlink(missing_ok=True)
        os.link(source, to, follow_symlinks=True)
    except OSError:
        return False
    return True


def _copy(source: Path, to: Path) -> bool:
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        with source.open("rb") as read, to.open("wb") as write:
            try:
                fcntl.ioctl(write, CLONE, read.fileno())
            except OSError:
                shutil.copyfileobj(read, write, 1 << 20)
    except OSError:
        to.unlink(missing_ok=True)
        return False
    return True


def _is_whole(path: Path, name: str, size: int) -> bool:
    try:
        with path.open("rb") as file:
            return is_whole(name, size, lambda at, count: os.pread(file.fileno(), count, at))
    except OSError:
        return False


def _told(path: Path, name: str, size: int) -> Any:
    if size > TOLD_BYTES_MAX or not (name.endswith(INDEX) or name in (*STATES, MANIFEST)):
        return None
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _describe(path: str, at: Path) -> File:
    if not is_safe_path(path):
        raise Damaged(f"{path} has a name that not every system can keep")
    before = at.stat()
    with at.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    after = at.stat()
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise Damaged(f"{path} was written to while it was read")
    return File(path=path, bytes=after.st_size, sha256=sha256)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _tells_writers(state: Path) -> bool:
    """Whether leases tell of writers here; not all file systems have them."""
    probe = state / "probe"
    with probe.open("wb"):
        written = is_written(probe)
    closed = is_written(probe)
    probe.unlink()
    return (written, closed) == (True, False)


def _has_writer(path: Path) -> bool:
    """By looking through all processes that this user may look at."""
    stat = path.stat()
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            found = handle.stat()
            if (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino) and _for_writing(handle):
                return True
    return False


def _for_writing(handle: Path) -> bool:
    flags = (handle.parents[1] / "fdinfo" / handle.name).read_text().split("flags:")[1].split()[0]
    return bool(int(flags, 8) & (os.O_WRONLY | os.O_RDWR))
