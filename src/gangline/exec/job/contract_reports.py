"""What a command's job reports as a trainer does: its steps in `progress.jsonl`, and checkpoints that hold its store
(gangline.core.runs.contract)."""

import hashlib
import json
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from threading import Lock
from typing import Any

from gangline.core.command.lineage import CHECKPOINTS, RUNS, CommittedCheckpoint
from gangline.core.command.progress import Pace, StepReport, step_in_output, step_in_report
from gangline.core.files import File
from gangline.core.runs import contract
from gangline.core.runs.contract import Failure, Manifest, Phase, Progress, checkpoint_name

STORE = "store"
WAITING_MAX = 2
"""The number of checkpoints that lie ready for the agent: one that it may be uploading, and the newest."""
REPORT_EVERY_S = 0.5
LOG = "log"
LAST_LINES = 100
LINE_BYTES = 2**20
"""A line of a command's own reports that is longer is none."""
RESERVE, RESERVE_BYTES = "reserve", 256 * 1024
"""A file that is deleted at the end, so that there is room to say why where the disk is full."""


STDOUT, STDERR = 1, 2


class StepReports:
    """Reports the steps of a command: from its own `progress.jsonl` if it writes one, else from what it prints and saves.

    What is said about a step is complete when the next one is mentioned: a bar of tqdm shows a new step with the loss of the one before at
    first. So a point has the means over the steps that are over.
    """

    def __init__(
        self, directory: Path, own: Callable[[], list[Path]], steps: int, hides: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.spoke_s = time.monotonic()
        """When the command printed or saved last."""
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.last_errors: deque[str] = deque(maxlen=LAST_LINES)
        """Those of `last_lines` that came on standard error: of two streams it is not known which line was printed first."""
        self.step = 0
        self._to = directory / contract.PROGRESS
        self._reserve = directory / RESERVE
        with suppress(OSError):
            self._reserve.write_bytes(bytes(RESERVE_BYTES))
        self._own = own
        self._hides = hides
        self._read_to: dict[Path, int] = {}
        self._wanted = self._steps = steps
        self._phase: Phase = "starting"
        self._pace, self._speed = Pace(), None
        self._reported_s = 0.0
        self._newest: StepReport | None = None
        self._over: list[StepReport] = []
        self._loss_before: float | None = None
        self._saved_step = 0
        self._has_news = False
        self._begun = {STDOUT: "", STDERR: ""}
        self._lock = Lock()

    def begin(self) -> None:
        self._phase = "training"
        self._write(self._progress())

    def printed(self, content: bytes, stream: int = STDOUT) -> None:
        """Take note of what the command prints."""
        with self._lock:
            self.spoke_s = time.monotonic()
            text = self._begun[stream] + content.decode(errors="replace")
            *lines, begun = text.replace("\r", "\n").split("\n")
            self._begun[stream] = begun[-4096:]
            said = [line for line in lines if line.strip()]
            self.last_lines.extend(said)
            self.last_errors.extend(said if stream == STDERR else ())
            if not self._read_to:
                for line in lines:
                    self._take(step_in_output(line))

    def look(self) -> None:
        """Read what the command added to a `progress.jsonl` of its own, and report what waits."""
        with self._lock:
            for path in self._own():
                for line in self._new_lines(path):
                    self._take(step_in_report(line))
            if self._has_news and time.monotonic() - self._reported_s >= REPORT_EVERY_S:
                self._report()

    def saved(self, step: int) -> None:
        """Take note of a checkpoint: the metrics up to it belong to it."""
        with self._lock:
            self.spoke_s = time.monotonic()
            if self._newest and self._newest.loss != self._loss_before:  # else its own loss may be still to come
                self._end_step()
            self._report()
            self.step = self._saved_step = max(self.step, step)
            self._write(self._progress(phase="saving"))
            self._write(self._progress())

    def finish(self) -> None:
        """Report all that was said, as no more will be."""
        with self._lock:
            self._end_step()
            self._report()

    def failed(self, failure: Failure) -> None:
        self._reserve.unlink(missing_ok=True)
        self._append({"failure": asdict(failure)})

    def _new_lines(self, path: Path) -> Iterator[bytes]:
        with suppress(OSError), open(path, "rb", opener=_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return
            file.seek(self._read_to.setdefault(path, 0))
            while line := file.readline(LINE_BYTES):
                if not line.endswith(b"\n") and len(line) < LINE_BYTES:
                    break
                self._read_to[path] += len(line)
                yield line

    def _take(self, report: StepReport | None) -> None:
        if report is None:
            return
        report = replace(
            report, metrics={name: value for name, value in report.metrics.items() if not self._hides(name)}
        )
        now_s, newest = time.monotonic(), self._newest
        self._speed = self._pace.saw(now_s, report.step) or self._speed
        self._steps = self._wanted or report.steps or self._steps
        if newest and report.step > newest.step:
            self._end_step()
        elif newest and report.step == newest.step and report.loss is None:
            report = replace(report, loss=newest.loss)
        self._newest, self._has_news = report, True
        if now_s - self._reported_s >= REPORT_EVERY_S:
            self._report()

    def _end_step(self) -> None:
        if self._newest and self._newest.step >= self.step:
            self._over.append(self._newest)
            self._loss_before = self._newest.loss
        self._newest = None

    def _report(self) -> None:
        """Report the means over the steps that are over, and how far the command is.

        What is said about a step after it was saved goes into the next mean: an attempt that resumes from there measures nothing twice.
        """
        self._has_news, self._reported_s = False, time.monotonic()
        over = self._over
        if over and over[-1].step > self._saved_step:
            self._over, self.step = [], over[-1].step
            speed = {"seconds_per_step": self._speed} if self._speed else {}
            self._write(self._progress(loss=over[-1].loss, metrics=means(over) | speed))
        if self._newest:
            self.step = max(self.step, self._newest.step)
            self._write(self._progress(loss=self._newest.loss))

    def _progress(self, **facts: Any) -> Progress:
        known: dict[str, Any] = {"phase": self._phase, "seconds_per_step": self._speed}
        return Progress(**known | facts, step=self.step, steps=self._steps)

    def _write(self, progress: Progress) -> None:
        self._append(asdict(progress))

    def _append(self, report: Mapping[str, Any]) -> None:
        """Write a line, or nothing where the disk is full: half a line would spoil the next one, too."""
        line = json.dumps(report).encode() + b"\n"
        with suppress(OSError), self._to.open("ab", buffering=0) as file:
            before = file.tell()
            if file.write(line) != len(line):
                file.truncate(before)


def _nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would block


def means(reports: Sequence[StepReport]) -> dict[str, float]:
    """Return the mean of each metric over the steps that have it."""
    found = [each.metrics | ({} if each.loss is None else {"loss": each.loss}) for each in reports]
    names = dict.fromkeys(name for each in found for name in each)
    means = dict[str, float]()
    for name in names:
        with suppress(OverflowError):  # no float can be their sum
            means[name] = fmean(each[name] for each in found if name in each)
    return means


class ContractCheckpoints:
    """Makes a checkpoint of the trainer contract of each that the command's store has: its files, and all results so far, as links.

    If the agent is slower than the command, only the newest one waits.
    """

    def __init__(self, directory: Path, spec_hash: str, saved: Callable[[int], None]) -> None:
        self._store = directory / STORE
        self._to = directory / contract.CHECKPOINTS
        self._spec_hash = spec_hash
        self._saved = saved
        self._step = 0
        self._waiting: CommittedCheckpoint | None = None
        self._known: dict[tuple[int, int, int], str] = {}
        self._lock = Lock()

    def resume(self, folder: Path) -> int:
        """Make the store that of a checkpoint, in the folder `resume` of the run. Return its step, 0 if there is none."""
        for place in sorted(folder.glob(f"*/{STORE}")):
            place.rename(self._store)
            self._step = int(place.parent.name)
        return self._step

    def take(self, committed: CommittedCheckpoint) -> None:
        """Take a checkpoint that is whole in the store. Nothing of it may be deleted until this returns."""
        with self._lock:
            self._waiting = committed
            self._make()

    def look(self, *, ended: bool = False) -> None:
        """Make the checkpoint that waits, if there is room for it, or if the command has ended."""
        with self._lock, suppress(OSError):  # the disk is full: the next look tries again
            self._make(ended=ended)

    def _make(self, *, ended: bool = False) -> None:
        committed = self._waiting
        if committed is None or (not ended and len(list(self._to.glob(f"*/{contract.MANIFEST}"))) >= WAITING_MAX):
            return
        step = max(committed.step or 0, self._step + 1)
        folder = self._to / checkpoint_name(step)
        files = [self._link(key, folder, sha256) for key, sha256 in sorted(self._keys(committed).items())]
        manifest = Manifest(step=step, spec_hash=self._spec_hash, fingerprint={}, exact=False, files=tuple(files))
        self._saved(step)
        partial = folder / f".{contract.MANIFEST}"
        partial.write_text(json.dumps(manifest.to_json()))
        partial.rename(folder / contract.MANIFEST)
        self._step, self._waiting = step, None

    def _keys(self, committed: CommittedCheckpoint) -> dict[str, str]:
        """Return the keys that a run needs which resumes from a checkpoint, with their SHA-256s as far as they are known."""
        own = {committed.key_of(file.path): file.sha256 for file in committed.manifest.files}
        record = f"{committed.ref.key}.json"
        found = [path.relative_to(self._store).as_posix() for path in self._store.rglob("*") if path.is_file()]
        beside = [key for key in found if not key.startswith(".") and not _is_of_checkpoint_or_log(key)]
        return dict.fromkeys(beside, "") | {record: ""} | own

    def _link(self, key: str, folder: Path, sha256: str) -> File:
        source, to = self._store / key, folder / STORE / key
        to.parent.mkdir(parents=True, exist_ok=True)
        to.unlink(missing_ok=True)
        os.link(source, to)
        stat = to.stat()
        mark = stat.st_ino, stat.st_size, stat.st_mtime_ns
        if mark not in self._known:
            with to.open("rb") as content:
                self._known[mark] = sha256 or hashlib.file_digest(content, "sha256").hexdigest()
        return File(path=f"{STORE}/{key}", bytes=stat.st_size, sha256=self._known[mark])


def _is_of_checkpoint_or_log(key: str) -> bool:
    parts = key.split("/")
    return parts[0] == RUNS and len(parts) > 2 and parts[2] in (CHECKPOINTS, LOG)
