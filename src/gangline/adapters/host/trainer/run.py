"""A run of a trainer as a process: what it reports in its directory, read as what a stranger may have written."""

import hashlib
import json
import signal
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any

from gangline.adapters.host.trainer.beneath import append_beneath, files_beneath, mark_beneath, opened_beneath
from gangline.adapters.host.trainer.enclosures import Enclosure
from gangline.core.display import as_words
from gangline.core.errors import Damaged
from gangline.core.files import PART_BYTES, Beginning, File
from gangline.core.runs import contract
from gangline.core.runs.contract import (
    Failure,
    Manifest,
    Prepared,
    Progress,
    parse_manifest,
    parse_part,
    parse_pictures,
    parse_prepared,
    parse_report,
)
from gangline.core.runs.metrics import Point, Reading
from gangline.ports.server import Folder
from gangline.ports.trainer import Made, Pictures, RunResult, Saved, Unfinished

LOG = "log.txt"
READ_BYTES = 4 * 2**20
"""So much of the reports is read at a time; a line that is longer is none."""


class ProcessRun:
    """The run in `directory`, whose checkpoints, pictures and result may also lie in `memory`."""

    def __init__(
        self, process: "Popen[bytes]", directory: Path, enclosure: Enclosure, memory: Path | None = None
    ) -> None:
        self.directory = directory
        self._places = (memory, directory) if memory else (directory,)
        self._process = process
        self._enclosure = enclosure
        self._read_to = 0
        self._progress = Progress()
        self._failure: Failure | None = None
        self._garbled = ""
        self._readings: list[Reading] = []
        self._known: dict[Path, Manifest] = {}
        self._rendered: dict[Path, Pictures] = {}
        self._made: dict[str, Prepared] = {}
        self._hashing: Future[RunResult] | None = None

    def exit_code(self) -> int | None:
        code = self._process.poll()
        return None if code is None else self._enclosure.exit_code(code)

    def progress(self) -> Progress:
        self._read_reports()
        return self._progress

    def take_readings(self) -> list[Reading]:
        self._read_reports()
        taken, self._readings = self._readings, []
        return taken

    def failure(self) -> Failure | None:
        self._read_reports()
        if self._failure is None and self._garbled:
            return Failure(kind="crashed", because=as_words(self._garbled))
        return self._failure

    def checkpoints(self) -> list[Saved]:
        found = [
            Saved(folder / name, self._manifest(folder, name), in_memory=place != self.directory)
            for place in self._places
            for folder in (place / contract.CHECKPOINTS,)
            for name in _complete(folder, contract.MANIFEST)
        ]
        return sorted(found, key=lambda saved: saved.manifest.step)

    def unfinished(self) -> Unfinished | None:
        done = max((saved.manifest.step for saved in self.checkpoints()), default=-1)
        begun = [
            Unfinished(int(path.parent.name), path.parent)
            for place in self._places
            for path in (place / contract.CHECKPOINTS).glob(f"*/{contract.PARTS}")
            if path.parent.name.isdecimal() and int(path.parent.name) > done
        ]
        return max(begun, key=lambda each: each.step, default=None)

    def parts(self, folder: Path) -> tuple[Beginning, ...]:
        try:
            return parts_in(folder)
        except (OSError, ValueError, RecursionError, Damaged):
            return ()  # what is no list of parts announces none

    def pictures(self) -> list[Pictures]:
        for folder in (place / contract.SAMPLES for place in self._places):
            for name in _complete(folder, contract.PICTURES):
                if folder / name not in self._rendered:
                    with suppress(OSError, Damaged):  # what is no description shows nothing
                        self._rendered[folder / name] = _pictures_in(folder, name)
        return sorted(self._rendered.values(), key=lambda pictures: pictures.step)

    def place(self, folder: Folder, path: str) -> Path:
        return next(
            (at / folder / path for at in self._places[:-1] if (at / folder / path).is_file()),
            self.directory / folder / path,
        )

    def prepared(self) -> list[Made]:
        folder = self.directory / contract.PREPARED
        return [Made(folder / name, self._prepared(name)) for name in _complete(folder, contract.MANIFEST)]

    def printed(self, first_byte: int, most: int) -> bytes:
        with opened_beneath(self.directory, LOG) as log:
            log.seek(first_byte)
            return log.read(most)

    def note(self, line: str) -> None:
        append_beneath(self.directory, LOG, f"{line}\n".encode())

    def result(self) -> RunResult | None:
        if self._hashing is None:
            self._hashing = ThreadPoolExecutor(1, thread_name_prefix="result").submit(_result_in, self._places)
        return self._hashing.result() if self._hashing.done() else None

    def ask_to_save(self) -> None:
        self._signal(signal.SIGUSR1)

    def ask_to_render(self, *, now: bool = False) -> None:
        if now:
            mark_beneath(self.directory, contract.SHOW_NOW)
        self._signal(signal.SIGUSR2)

    def ask_to_finish(self) -> None:
        mark_beneath(self.directory, contract.FINISH)

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._enclosure.signal(self._process, number)

    def kill(self) -> None:
        self._enclosure.kill(self._process)

    def _manifest(self, folder: Path, name: str) -> Manifest:
        if folder / name not in self._known:
            self._known[folder / name] = parse_manifest(_json_in(folder, f"{name}/{contract.MANIFEST}"))
        return self._known[folder / name]

    def _prepared(self, name: str) -> Prepared:
        if name not in self._made:
            told = _json_in(self.directory / contract.PREPARED, f"{name}/{contract.MANIFEST}")
            self._made[name] = parse_prepared(told)
        return self._made[name]

    def _read_reports(self) -> None:
        """Read complete lines only: the trainer may be in the middle of one. A run that fails says what was no report."""
        with suppress(FileNotFoundError), opened_beneath(self.directory, contract.PROGRESS) as file:
            file.seek(self._read_to)
            lines = file.read(READ_BYTES)
            end = lines.rfind(b"\n") + 1 or len(lines) * (len(lines) == READ_BYTES)
            self._read_to += end
            for line in lines[:end].splitlines():
                try:
                    self._take(parse_report(json.loads(line)))
                except (ValueError, RecursionError, Damaged) as error:
                    self._garbled = self._garbled or f"{contract.PROGRESS}: {error}"

    def _take(self, report: Progress | Failure) -> None:
        if isinstance(report, Failure):
            self._failure = report
            return
        last = self._progress
        self._progress = replace(
            report,
            loss=report.loss if report.loss is not None else last.loss,
            seconds_per_step=report.seconds_per_step or last.seconds_per_step,
            save_s=report.save_s or last.save_s,
            metrics={},
        )
        if report.metrics or report.phase == "saving":
            point = Point(step=report.step, values=report.metrics)
            self._readings.append(Reading(point=point, saved=report.phase == "saving"))


def _complete(folder: Path, last: str) -> list[str]:
    """Return the folders whose last file is there, sorted by name."""
    return sorted(path.parent.name for path in folder.glob(f"*/{last}"))


def _json_in(folder: Path, path: str) -> Any:
    """Raises `Damaged` for what is no JSON."""
    with opened_beneath(folder, path) as file:
        try:
            return json.load(file)
        except (ValueError, RecursionError) as error:
            raise Damaged(f"{path} is no JSON: {error}") from None


def parts_in(folder: Path) -> tuple[Beginning, ...]:
    """Read the lists of parts in the folder of a checkpoint, as far as their lines are complete. Raises as `parse_part`, and `OSError`."""
    found = dict[str, tuple[int, list[str]]]()
    for path in sorted(folder.glob(contract.PARTS)):
        with opened_beneath(folder, path.name) as file:
            lines = file.read(READ_BYTES)
        for line in lines[: lines.rfind(b"\n") + 1].splitlines():
            part = parse_part(json.loads(line))
            size, parts = found.setdefault(part.path, (part.bytes, []))
            if size != part.bytes:
                raise Damaged(f"{part.path} has two sizes")
            parts.append(part.sha256)
    return tuple(
        Beginning(path=path, bytes=size, parts=tuple(parts))
        for path, (size, parts) in found.items()
        if size > PART_BYTES
    )


def _pictures_in(folder: Path, name: str) -> Pictures:
    """Return the pictures with the hashes that the trainer wrote down. Raises `Damaged`."""
    step, files = parse_pictures(_json_in(folder, f"{name}/{contract.PICTURES}"))
    files = (*files, described_file(folder / name, contract.PICTURES))
    return Pictures(step, tuple(replace(file, path=f"{name}/{file.path}") for file in files))


def _result_in(places: tuple[Path, ...]) -> RunResult:
    output, samples = (
        _describe_all([place / name for place in places]) for name in (contract.OUTPUT, contract.SAMPLES)
    )
    return RunResult(output=output, samples=samples)


def _describe_all(folders: Sequence[Path]) -> tuple[File, ...]:
    """Return the files below these folders; of two with one path, the one of the first folder."""
    found = {path: folder for folder in reversed(folders) for path in files_beneath(folder)}
    return tuple(described_file(found[path], path) for path in sorted(found))


def described_file(folder: Path, path: str) -> File:
    """Return a file below a folder with its size and hash."""
    with opened_beneath(folder, path) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        return File(path=path, bytes=file.tell(), sha256=sha256)
