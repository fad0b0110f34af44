"""Download the results of a command's runs into a folder: the newest intact version of each file."""

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.core.canonical import digest
from gangline.core.command.lineage import (
    CommittedCheckpoint,
    ResultFile,
    history,
    kin,
    newest_begun,
    newest_results,
    run_number,
)
from gangline.core.errors import BadInput, Damaged, NotFound, UserError
from gangline.core.files import File
from gangline.exec.outputs import attest, results_of
from gangline.exec.run_prefix import PrefixContent, RunPrefix
from gangline.worker.move import Move

KEPT, CHECKPOINT = ".gangline-fetch", "checkpoint"
AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a download. `runs` are the runs whose files belong together, newest first; `here` counts files that were there already;
    `damaged` are files of which the store has no intact version."""

    address: str
    folder: str
    runs: tuple[int, ...]
    files: int
    here: int
    bytes: int
    damaged: tuple[str, ...]
    checkpoint: str | None = None
    step: int | None = None


class Fetch:
    """Downloads into `folder`. Files that it did not write are never replaced: if one differs from the store, it refuses before it
    downloads anything."""

    def __init__(self, prefix: RunPrefix, folder: Path, say: Callable[[str], None]) -> None:
        self._prefix = prefix
        self._folder = folder
        self._say = say
        self._kept = folder / KEPT
        self._written: dict[str, list[int]] = {}
        self._bytes = 0

    def __call__(self, *, run: int | None, checkpoint: bool) -> Fetched:
        """Download the results, and the newest `checkpoint` if asked. Raises `UserError`, `Unreachable`."""
        self._prefix.check()
        found = self._prefix.find()
        last = self._last(found, run)
        of = kin(found.begun, last)
        newest = newest_results(of, results_of(self._prefix, found, of))
        if not newest and not checkpoint:
            raise NotFound(
                f"the runs in {self._prefix.address} left no files besides checkpoints",
                hint="--checkpoint downloads the newest checkpoint",
            )
        with suppress(OSError, ValueError):
            self._written = dict(json.loads((self._kept / "written.json").read_text()))
        try:
            here, damaged = self._fetch_results(newest)
            committed = self._fetch_checkpoint(found, last) if checkpoint else None
        finally:
            shutil.rmtree(self._kept / "coming", ignore_errors=True)
        return Fetched(
            address=self._prefix.address,
            folder=str(self._folder),
            runs=tuple(run_number(each) for each in of),
            files=len(newest) - len(damaged),
            here=here,
            bytes=self._bytes,
            damaged=tuple(damaged),
            checkpoint=committed.title if committed else None,
            step=committed.step if committed else None,
        )

    def _last(self, found: PrefixContent, run: int | None) -> str:
        known = newest_begun({each: found.begun[each] for each in found.begun if run in (None, run_number(each))})
        if known is None:
            address = self._prefix.address
            if run is not None:
                raise NotFound(f"{address} holds no run {run}", hint=f"`gangline exec ls {address}` lists the runs")
            hint = "pass the address that --to had, e.g. s3://BUCKET/PREFIX"
            raise NotFound(f"{address} holds no run of `gangline exec`", hint=hint)
        return known

    # Results

    def _fetch_results(self, newest: dict[str, list[ResultFile]]) -> tuple[int, list[str]]:
        """Return how many files were here already, and the paths of which the store has no intact version."""
        waiting = {path: list(versions) for path, versions in newest.items()}
        here = [path for path, versions in waiting.items() if self._is_here(versions[0])]
        for path in here:
            del waiting[path]
        if other := next((path for path in waiting if self._is_users(path)), None):
            raise BadInput(
                f"{self._folder / other} exists already and differs from the file in {self._prefix.address}",
                hint="name an empty folder, or move the file away",
            )
        damaged = list[str]()
        paths = sorted(waiting)
        for first in range(0, len(paths), AT_ONCE):
            batch = paths[first : first + AT_ONCE]
            if not self._try([waiting[path][0] for path in batch]):
                damaged += [path for path in batch if not any(self._try([version]) for version in waiting[path])]
        return len(here), damaged

    def _try(self, results: list[ResultFile]) -> bool:
        """Return whether all files arrived intact. If a single file does not, a message says why."""
        try:
            moves = {self._move(each): each for each in results}
            self._prefix.fetch(list(moves))
        except OSError as error:
            raise _unwritable(self._folder, error) from None
        except (Damaged, NotFound) as error:
            if len(results) == 1:
                self._say(
                    f"{results[0].path} of run {run_number(results[0].run)} is damaged in the store: {error.message}"
                )
            return False
        for move, each in moves.items():
            self._put(move.local, each.path)
            self._bytes += move.file.bytes
        self._note()
        return True

    def _move(self, result: ResultFile) -> Move:
        return Move(result.file or attest(self._prefix, result), self._kept / "coming" / digest(result.key), result.key)

    def _put(self, coming: Path, path: str) -> None:
        to = self._folder / path
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            coming.replace(to)
        except OSError as error:
            raise _unwritable(to, error) from None
        self._written[path] = _mark(to)

    def _note(self) -> None:
        coming = self._kept / "written.json.coming"
        coming.write_text(json.dumps(self._written))
        coming.replace(self._kept / "written.json")

    def _is_here(self, result: ResultFile) -> bool:
        return result.file is not None and _is(self._folder / result.path, result.file)

    def _is_users(self, path: str) -> bool:
        """Return whether the path holds something that this class did not write last."""
        to = self._folder / path
        return to.is_dir() or (to.exists() and self._written.get(path) != _mark(to))

    # The newest checkpoint

    def _fetch_checkpoint(self, found: PrefixContent, last: str) -> CommittedCheckpoint:
        """Download the checkpoint that a start of the command would resume from."""
        for ref in history(found.begun, found.refs, last=last):
            try:
                committed = self._prefix.read(ref)
                self._get(committed)
            except (Damaged, NotFound) as error:
                self._say(f"a checkpoint in the store is damaged, so it is skipped: {error.message}")
            else:
                return committed
        raise NotFound(
            f"there is no intact checkpoint in {self._prefix.address}",
            hint=f"`gangline exec ls {self._prefix.address} --checkpoints` lists what was uploaded",
        )

    def _get(self, committed: CommittedCheckpoint) -> None:
        """Download into a folder only for the checkpoint, so that it cannot collide with results; all of it or nothing."""
        to, coming = self._folder / CHECKPOINT, self._kept / "coming" / CHECKPOINT
        if all(_is(to / file.path, file) for file in committed.manifest.files):
            return
        if to.exists() and not self._is_ours(to):
            raise BadInput(
                f"{to} exists already and differs from the checkpoint in {self._prefix.address}",
                hint="name an empty folder, or move it away",
            )
        shutil.rmtree(coming, ignore_errors=True)
        try:
            self._prefix.get(committed, coming)
            shutil.rmtree(to, ignore_errors=True)
            to.parent.mkdir(parents=True, exist_ok=True)
            coming.rename(to)
        except OSError as error:
            raise _unwritable(to, error) from None
        self._written |= {f"./{file.path}": _mark(to / file.path) for file in committed.manifest.files}
        self._note()
        self._bytes += committed.bytes

    def _is_ours(self, to: Path) -> bool:
        """Return whether everything there was downloaded as a checkpoint and is unchanged."""
        paths = [path for path in to.rglob("*") if path.is_file()] if to.is_dir() else [to]
        return all(self._written.get(f"./{path.relative_to(to).as_posix()}") == _mark(path) for path in paths)


def _unwritable(to: Path, error: OSError) -> UserError:
    return UserError(f"{to} cannot be written: {error.strerror}", hint="name an empty folder on a disk with room")


def _mark(at: Path) -> list[int]:
    stat = at.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _is(at: Path, file: File) -> bool:
    with suppress(OSError):
        if at.is_file() and at.stat().st_size == file.bytes:
            with at.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
    return False
