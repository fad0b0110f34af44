"""A script's folder of checkpoints on this machine (gangline.adapters.host.held), and what is kept beside it.

That lies in `.NAME.gangline` beside the folder, or in it where that is another disk: links to files (`held`), what comes in (`incoming`),
what was put out of the script's sight at the last start (`set-aside`), the command's `log.txt`.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from secrets import token_hex
from time import monotonic

from gangline.adapters.host.held import Held, files_at, mark_of
from gangline.core.command.layout import Candidate, Rules, is_candidate, is_result, step_of
from gangline.core.errors import Damaged, UserError
from gangline.core.files import FORBIDDEN, File, digest_of_files, is_safe_path
from gangline.core.runs.contract import Manifest
from gangline.ports.workspace import Taken
from gangline.posix import FolderNews, is_written

PROBE_BYTES = 65_536
BESIDES = "results"
"""Where the results from elsewhere lie whose name is taken."""


class LocalWorkspace:
    """Raises `UserError` where the folder cannot be used, or another one is at work in it."""

    def __init__(self, root: Path, rules: Rules) -> None:
        self.root = root
        self.rules = rules
        self.state = _make_folders(root)
        self._lock = _lock(self.state / "lock", root)
        self._store = self.state / "held"
        shutil.rmtree(self._store, ignore_errors=True)
        self._store.mkdir()
        self._held: dict[str, Held] = {}
        self._leases = _tells_writers(self.state)
        self._news = FolderNews()
        self._news.watch(root)
        self._heard: set[str] = set()
        self._aside: Path | None = None

    @property
    def log(self) -> Path:
        return self.state / "log.txt"

    # Looking

    def wait(self, seconds: float) -> None:
        until_s = monotonic() + seconds
        while not self._heard and (left_s := until_s - monotonic()) > 0:
            heard = {path.relative_to(self.root).parts[0] for path in self._news.wait(left_s) if path != self.root}
            self._heard = {name for name in heard if self._may_be_one(name)}

    def look(self, now_s: float, *, ended: bool = False) -> list[Candidate]:
        heard, self._heard = self._heard, set()
        for name in self._names():
            if name not in self._held or not self._held[name].is_there():
                continue
            if name in heard:  # it may be made anew, as the same inode
                self._news.watch(self.root / name)
            if ended or name in heard or self._held[name].is_due(now_s):
                self._held[name].look(now_s)
        missed = self._missed()
        for name in self._names():
            if name not in self._held:
                self._hold(name, now_s)
        present = [held for held in self._held.values() if not held.gone]
        found = [each for held in (*missed, *present) if (each := held.as_candidate(now_s, ended=ended))]
        return sorted(found, key=lambda each: (each.written_ns, step_of(each) or 0, each.name))

    def _may_be_one(self, name: str) -> bool:
        return any(is_candidate(self.rules, name, folder=folder) for folder in (True, False))

    def _names(self) -> list[str]:
        """Of what may be checkpoints."""
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            return [
                entry.name
                for entry in entries
                if not entry.is_symlink() and is_candidate(self.rules, entry.name, folder=entry.is_dir())
            ]
        return []

    def _hold(self, name: str, now_s: float) -> None:
        at = self.root / name
        with suppress(FileNotFoundError):
            held = self._held[name] = Held(at, self._store / token_hex(8), self._is_written, now_s)
            self._news.watch(at)
            held.look(now_s)

    def _missed(self) -> list[Held]:
        """Those that have gone since the last look, and count; those that had gone before are forgotten."""
        found = list[Held]()
        for name, held in list(self._held.items()):
            if held.gone or not held.is_there():
                if not held.miss():
                    held.forget()
                    del self._held[name]
                else:
                    found.append(held)
        return found

    def _is_written(self, path: Path) -> bool:
        found = is_written(path) if self._leases else None
        return _has_writer(path) if found is None else found

    # Taking

    def take(self, candidate: Candidate) -> Taken | None:
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
        files = {(f"{candidate.name}/{path}" if path else candidate.name): each for path, each in found.items()}
        places, marks = ({path: each[part] for path, each in files.items()} for part in (0, 1))
        return Taken(name=candidate.name, step=step_of(candidate), files=places, marks=marks)  # type: ignore[arg-type]

    def release(self, taken: Taken) -> None:
        for path in taken.files.values():
            shutil.rmtree(self._store / path.relative_to(self._store).parts[0], ignore_errors=True)

    def describe(self, taken: Taken) -> tuple[File, ...]:
        return tuple(_describe(path, at, taken.marks[path]) for path, at in sorted(taken.files.items()))

    def know(self, name: str) -> None:
        if name not in self._held:
            self._hold(name, 0.0)
        self._held[name].know()

    # Restoring

    def holds(self, name: str, manifest: Manifest) -> bool:
        at = self.root / name
        with suppress(Damaged, OSError):
            here = {f"{name}/{path}" if path else name for path in files_at(at)}
            return here == {file.path for file in manifest.files} and all(
                _describe(file.path, self.root / file.path) == file for file in manifest.files
            )
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
        if self._aside is None:
            shutil.rmtree(self.state / "set-aside", ignore_errors=True)
            self._aside = self.state / "set-aside"
            self._aside.mkdir()
        if (self.root / name).exists():
            try:
                (self.root / name).rename(self._aside / name)
            except OSError as error:
                raise UserError(
                    f"{self.root / name} cannot be set aside: {error.strerror}",
                    hint="it is no checkpoint to go on from: move it away",
                ) from None
        if held := self._held.pop(name, None):
            held.forget()

    def room(self) -> int:
        return shutil.disk_usage(self.root).free

    def place(self, name: str) -> Path:
        return self.root / name

    def results(self, besides: Sequence[Path]) -> dict[File, Path]:
        with os.scandir(self.root) as entries:
            names = sorted(entry.name for entry in entries if not entry.is_symlink())
        places = {name: self.root / name for name in names if self._is_result(name)}
        apart = next(name for name in chain((BESIDES,), map(f"{BESIDES}-{{}}".format, count(2))) if name not in places)
        for path in besides:
            name = path.resolve().name
            places[f"{apart}/{name}" if name in places else name] = path.resolve()
        found = dict[File, Path]()
        for name, at in places.items():
            for path in files_at(at):
                file = at / path if path else at
                found[_describe(_writable(f"{name}/{path}" if path else name), file)] = file
        return found

    def _is_result(self, name: str) -> bool:
        if name.startswith("."):
            return False
        if not is_candidate(self.rules, name, folder=(self.root / name).is_dir()):
            return True
        candidate = Held(self.root / name, self._store / token_hex(8), lambda path: False, 0.0)
        candidate.look(0.0)
        found = candidate.as_candidate(0.0, ended=True)
        candidate.forget()
        return found is None or is_result(self.rules, found)

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


def _describe(path: str, at: Path, mark: tuple[int, int, int] | None = None) -> File:
    """Raises `Damaged` where it is written to meanwhile, or was since it had this mark."""
    if not is_safe_path(path):
        raise Damaged(f"{path!r} cannot be a name in the object store: its script must give it another one")
    before = mark_of(at.stat())
    with at.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    after = mark_of(at.stat())
    if before != after or (mark is not None and mark[1:] != after[1:]):
        raise Damaged(f"{path} was written over while it waited to be sent")
    return File(path=path, bytes=after[1], sha256=sha256)


def _writable(path: str) -> str:
    """As a name that every system can keep: what none can is written as %XX."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return FORBIDDEN.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def _tells_writers(state: Path) -> bool:
    """Whether leases tell of writers here; not all file systems have them. Raises `UserError` where the disk is full."""
    probe = state / "probe"
    try:
        with probe.open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            written = is_written(probe)
        closed = is_written(probe)
    except OSError as error:
        raise UserError(
            f"nothing can be written in {state}: {error.strerror}",
            hint="make room, or name a folder on a larger disk in --checkpoints",
        ) from None
    finally:
        probe.unlink(missing_ok=True)
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
