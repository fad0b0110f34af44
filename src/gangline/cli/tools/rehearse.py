"""A run in peace and runs that are interrupted, of any trainer that keeps the contract, for their results to be compared.

An interrupted run resumes as on another node: in a new directory that has the spec, the inputs, and of the first run only
its newest complete checkpoint.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from gangline.adapters.host.trainer.run import ProcessRun, described_file
from gangline.core.errors import BadInput, Damaged, GanglineError
from gangline.core.runs import contract
from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED
from gangline.core.runs.interruption import Interruption, ResumeCheck
from gangline.ports.trainer import Saved

LOOK_EVERY_S = 0.02
LAST_WORDS_BYTES = 2000


class Broken(GanglineError):
    """The trainer does not keep the contract, or cannot be interrupted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What runs, on what, and the folder that all its runs get a directory in. `lay_out` fills a directory with spec and inputs."""

    start: Callable[[Path], ProcessRun]
    lay_out: Callable[[Path], None]
    folder: Path


@dataclass(frozen=True, slots=True)
class Peaceful:
    directory: Path
    steps: int


def run_in_peace(rehearsal: Rehearsal) -> Peaceful:
    """Run without an interruption. Raises `BadInput` if that run fails, as there would be nothing to compare with."""
    directory = _lay_out(rehearsal, "uninterrupted")
    with _started(rehearsal, directory) as run:
        try:
            _finish(run)
            steps = _step(run)
        except Broken as error:
            raise BadInput(f"the uninterrupted run failed: {error.message}", hint=error.hint) from None
    if not steps:
        raise BadInput("the uninterrupted run reported no step in progress.jsonl, so it cannot be interrupted at one")
    if not any((directory / contract.OUTPUT).rglob("*")):
        raise BadInput("the uninterrupted run left nothing in output/")
    return Peaceful(directory, steps)


def run_interrupted(rehearsal: Rehearsal, interruption: Interruption) -> tuple[ResumeCheck, Path | None]:
    """Return the result so far, before outputs are compared, and the directory of the run that finished, if one did."""
    name = f"{interruption.way}-{interruption.after}"
    at = resumed_from = 0
    try:
        with _started(rehearsal, _lay_out(rehearsal, name)) as run:
            saved = _interrupt(run, interruption)
            at = _step(run)
        resumed_from = saved.manifest.step
        directory = _lay_out(rehearsal, f"{name}-resumed")
        _hand_over(saved, directory)
        shutil.rmtree(run.directory)
        with _started(rehearsal, directory) as run:
            _finish(run)
        _check_it_went_on(directory, resumed_from)
    except (Broken, Damaged) as error:
        broken = f"{error.message}: {error.hint}" if error.hint else error.message
        return ResumeCheck(
            interruption=interruption, interrupted_at=at, resumed_from=resumed_from, because=broken
        ), None
    return ResumeCheck(interruption=interruption, interrupted_at=at, resumed_from=resumed_from), directory


def _interrupt(run: ProcessRun, interruption: Interruption) -> Saved:
    """Interrupt the run and return its newest complete checkpoint."""
    _wait(run, lambda: _step(run) >= interruption.after, f"step {interruption.after}")
    if interruption.way == "SIGTERM":
        run.ask_to_stop()
        _wait_for_end(run)
        if run.exit_code() != EXIT_STOPPED:
            raise Broken(
                f"it ended with {how(run)} after SIGTERM, not with exit code {EXIT_STOPPED}", hint=last_words(run)
            )
    else:
        run.ask_to_save()
        _wait(run, lambda: _newest_step(run) >= interruption.after, "a checkpoint after SIGUSR1")
        safe = _newest_step(run)
        _wait(run, lambda: _step(run) > safe, "a step after its checkpoint")
        run.kill()
    saved = run.checkpoints()
    if not saved:
        raise Broken("it left no complete checkpoint")
    return saved[-1]


def _hand_over(saved: Saved, directory: Path) -> None:
    """Copy the checkpoint as an agent does: the files that the manifest lists, if they match it, and the manifest."""
    target = directory / contract.RESUME / saved.folder.name
    target.mkdir(parents=True)
    for file in saved.manifest.files:
        place = target / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not (saved.folder / file.path).is_file():
            raise Broken(f"its checkpoint of step {saved.manifest.step} lacks {file.path}")
        shutil.copyfile(saved.folder / file.path, place)
        if described_file(target, file.path) != file:
            raise Broken(f"{file.path} in its checkpoint of step {saved.manifest.step} differs from the manifest")
    shutil.copyfile(saved.folder / contract.MANIFEST, target / contract.MANIFEST)


def _check_it_went_on(directory: Path, resumed_from: int) -> None:
    reports = [json.loads(line) for line in (directory / contract.PROGRESS).read_bytes().splitlines()]
    first = next((report["step"] for report in reports if report.get("phase") == "training"), None)
    if first is not None and first < resumed_from:
        raise Broken(f"it started at step {first} and ignored the checkpoint of step {resumed_from}")


@contextmanager
def _started(rehearsal: Rehearsal, directory: Path) -> Iterator[ProcessRun]:
    """Gone at the end, whatever happens."""
    run = rehearsal.start(directory)
    try:
        yield run
    finally:
        run.kill()


def _lay_out(rehearsal: Rehearsal, name: str) -> Path:
    directory = rehearsal.folder / name
    directory.mkdir()
    rehearsal.lay_out(directory)
    return directory


def _finish(run: ProcessRun) -> None:
    _wait_for_end(run)
    if run.exit_code() != EXIT_DONE:
        raise Broken(f"it ended with {how(run)}", hint=last_words(run))


def _wait(run: ProcessRun, condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds. Raises `Broken` if the run ends before."""
    while not condition():
        if run.exit_code() is not None and not condition():
            raise Broken(f"it ended with {how(run)} before {what}", hint=last_words(run))
        Event().wait(LOOK_EVERY_S)


def _wait_for_end(run: ProcessRun) -> None:
    while run.exit_code() is None:
        Event().wait(LOOK_EVERY_S)


def _step(run: ProcessRun) -> int:
    try:
        return run.progress().step
    except (KeyError, TypeError, ValueError) as error:
        raise Broken(f"it wrote an invalid line to progress.jsonl: {type(error).__name__} {error}") from None


def _newest_step(run: ProcessRun) -> int:
    """Return the step of the newest checkpoint, and remove those before it, as an agent does that has uploaded it."""
    saved = run.checkpoints()
    for old in saved[:-1]:
        shutil.rmtree(old.folder)
    return saved[-1].manifest.step if saved else 0


def how(run: ProcessRun) -> str:
    """Return how a run ended: its exit code or signal."""
    code = run.exit_code()
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def last_words(run: ProcessRun) -> str:
    """Return what a run reported about its end, or else printed last."""
    failure = run.failure()
    if failure:
        return failure.because
    lines = (run.directory / "log.txt").read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
