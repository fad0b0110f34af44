"""Run a command as a job on a node: a run of `gangline exec` over a store in the run's own directory, which reports as a trainer does.

inputs/code, inputs/data/NAME   are moved to work/, where the command runs
resume/000120/store             becomes store/: what the attempt before had saved
store/                          the command's prefix (gangline.core.command.lineage): runs, checkpoints, results
checkpoints/000120/store        the newest checkpoint and all results so far, as links into store/
output/                         the results of all attempts
"""

import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.core.errors import BadInput, GanglineError, NotFound
from gangline.core.runs import contract
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, Failure
from gangline.core.specs.command import CommandSpec
from gangline.exec.fetch import KEPT, Fetch
from gangline.exec.job.contract_reports import ContractCheckpoints, StepReports
from gangline.exec.job.packing import pack_rest
from gangline.exec.job.previews import Previews
from gangline.exec.plan import Summary
from gangline.exec.run_prefix import RunPrefix
from gangline.ports.server import RESULTS_MAX

WORK = "work"
DISK_FULL_BYTES = 16 * 2**20
DISK_FULL = ("No space left on device", "Disk quota exceeded")
"""What programs print that find the disk full; by the time that they have ended, some of it may be free again."""
NO_NETWORK = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Connection refused",
    "Could not resolve host",
    "ConnectionError",
    "Failed to establish a new connection",
)
"""What programs print that do not reach the network."""


LAUNCHERS = re.compile(r"(?:subprocess\.CalledProcessError|torch\.distributed\.elastic\S*\.ChildFailedError)\b")
"""What accelerate and torchrun end with if what they launched has failed: the command line again, or a box."""
RAISED = re.compile(r"(?:\[rank\d+\]:\s*)?[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)(?::\s.*)?")


def reason_printed(lines: Iterable[str], errors: Iterable[str] = ()) -> str:
    """Return the last line that was printed; an exception that ends those on standard error; and the exception before a launcher's if it is
    a launcher that ended."""
    said, on_stderr = ([line.strip() for line in some] for some in (lines, errors))
    if on_stderr and RAISED.fullmatch(on_stderr[-1]):
        said = on_stderr
    launcher = next((place for place, line in enumerate(said) if LAUNCHERS.match(line)), 0)
    raised = [line for line in said[:launcher] if RAISED.fullmatch(line)]
    return (raised or said or ["nothing"])[-1]


def lay_out_work(directory: Path) -> None:
    """Move what was brought to where the command runs; where `inputs` is a link, other runs share it, so copy. Raises `BadInput`."""
    work, inputs = directory / WORK, directory / contract.INPUTS
    work.mkdir()
    place = _copy if inputs.is_symlink() else Path.rename
    for source in (inputs / "code", inputs / "data"):
        if source.is_dir():
            for entry in sorted(source.iterdir()):
                _merge(entry, work / entry.name, place)


def _copy(source: Path, to: Path) -> None:
    shutil.copytree(source, to) if source.is_dir() else shutil.copy2(source, to)


def _merge(source: Path, to: Path, place: Callable[[Path, Path], object]) -> None:
    if source.is_dir() and to.is_dir():
        for entry in sorted(source.iterdir()):
            _merge(entry, to / entry.name, place)
    elif to.exists():
        raise BadInput(f"the code and the data both have {to.name}", hint="give the data another name")
    else:
        place(source, to)


@dataclass
class Endings:
    """A notifier that remembers how a run ended."""

    last: str = ""

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        self.last = kind

    def close(self, seconds: float) -> int:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandJob:
    """`run` runs the command; downloads from `linking`, the same prefix as `prefix`, are links; `hung` says why it was stopped if it gave
    no sign of life, `was_full` whether the store met a full disk."""

    spec: CommandSpec
    directory: Path
    prefix: RunPrefix
    linking: RunPrefix
    reports: StepReports
    checkpoints: ContractCheckpoints
    previews: Previews
    endings: Endings
    hung: Callable[[], str]
    was_full: Callable[[], bool]
    say: Callable[[str], None]

    def __call__(self, run: Callable[[], Summary]) -> int:
        """Return the exit code of the trainer contract."""
        ended = run()
        self.reports.finish()
        self.checkpoints.look(ended=True)
        self.previews.look(self.reports.step, ended=True)
        if because := self.hung():
            return self._fail(Failure(kind="crashed", because=because))
        if self.endings.last in ("", "exec.stopped"):  # empty: it was stopped before the command was started
            return EXIT_STOPPED
        if ended.exit_code:
            return self._fail(self._why(ended))
        if self.was_full() and self.prefix.end_of(max(self.prefix.claims())).get("code") != 0:
            return self._fail(
                Failure(kind="disk full", because=f"{ended.because}, but there is no room for its results")
            )
        self._hand_over()
        return EXIT_DONE

    def _why(self, ended: Summary) -> Failure:
        said = reason_printed(self.reports.last_lines, self.reports.last_errors)
        because = f"{ended.because}; its last output: {said}"
        if shutil.disk_usage(self.directory).free < DISK_FULL_BYTES or prints_disk_full(self.reports.last_lines):
            return Failure(kind="disk full", because=because)
        if not self.spec.network and any(words in line for line in self.reports.last_lines for words in NO_NETWORK):
            because += "; it may have wanted the network, which it has only where it was submitted with --network"
        return Failure(kind="crashed", because=because)

    def _fail(self, failure: Failure) -> int:
        self.reports.failed(failure)
        self.say(failure.because)
        return EXIT_FAILED

    def _hand_over(self) -> None:
        """Put the results of all attempts into `output`; the newest checkpoint if there are none, or if that is the whole folder.

        They are links into the store, and what the command itself wrote is deleted: a result takes its size on the disk once.
        """
        shutil.rmtree(self.directory / WORK, ignore_errors=True)
        output = self.directory / contract.OUTPUT
        output.mkdir()
        fetch = Fetch(self.linking, output, self.say)
        try:
            fetch(run=None, checkpoint=self.spec.layout == "folder")
        except NotFound:
            try:
                fetch(run=None, checkpoint=True)
            except NotFound:
                (output / "finished.txt").write_text("The command ended with exit code 0 and left no files.\n")
        shutil.rmtree(output / KEPT, ignore_errors=True)
        packed, archive = pack_rest(output, RESULTS_MAX)
        if packed:
            self.say(f"{packed:,} of its results are in {archive}: a job may have {RESULTS_MAX:,} files")


def prints_disk_full(lines: Iterable[str]) -> bool:
    return any(words in line for line in lines for words in DISK_FULL)


def fail_around(reports: StepReports, error: GanglineError | OSError) -> int:
    """Report an error before or after the command: the disk is full, or something is wrong with the job itself. Return the exit code."""
    if prints_disk_full([str(error)]):
        reports.failed(Failure(kind="disk full", because=str(error)))
        return EXIT_FAILED
    if isinstance(error, OSError):
        raise error
    hint = f" ({error.hint})" if error.hint else ""
    reports.failed(Failure(kind="bad data", because=f"{error.message}{hint}"))
    return EXIT_BAD_INPUT


class Silence:
    """Says why a command that gives no sign of life is stopped."""

    def __init__(self, reports: StepReports, limit_s: float) -> None:
        self._reports = reports
        self._limit_s = limit_s
        self.because = ""

    def __call__(self) -> str:
        if not self.because and time.monotonic() - self._reports.spoke_s > self._limit_s:
            self.because = (
                f"the command has neither printed nor saved anything for {self._limit_s / 60:.0f} min: it hangs"
            )
        return self.because
