"""How fast a training recipe is on this machine: for each of its phases a short burst of the real trainer, in a directory that goes away.

A rate is the mean over all steps of a stretch of time: their images by the seconds that they took together.
"""

import json
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from gangline.adapters.cards import gpu_memory_gb
from gangline.adapters.host.trainer.process import MODULES
from gangline.adapters.host.trainer.run import ProcessRun
from gangline.adapters.host.trainer.start import start_program
from gangline.cli.jobs.plan.files import LocalFiles
from gangline.cli.jobs.scratch import ScratchPlan
from gangline.cli.output import duration, say
from gangline.cli.tools.rehearse import how, last_words
from gangline.compose.buckets import lend_keys_of_data
from gangline.compose.machine import shown_gpu
from gangline.core.errors import BadInput
from gangline.core.estimates.outline import phases_of
from gangline.core.gpus import kind_of_device
from gangline.core.parsing import to_json
from gangline.core.runs import contract
from gangline.core.specs.scratch import ScratchSpec, burst_of_phase

CPU = "CPU"
WARM_UP_STEPS = 2
WARM_UP_SHARE = 0.25
"""Of the seconds that are measured: so long at least before that."""
STEPS_MIN = 3
"""Fewer are no mean."""
LIMIT_S = 900
"""From its first step a phase has so long."""
LOOK_EVERY_S = 0.05
ON_GPU = "memory_gb"
"""What a trainer reports of a GPU alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPhase:
    """A phase on `gpus` of a kind, or as many processes of the CPU: `images_per_second` is the mean over `steps`, which took `seconds`
    together. `warm_up_steps` before that do not count."""

    phase: str
    gpu: str
    gpus: int
    batch_size: int
    images_per_second: float
    steps: int
    seconds: float
    warm_up_steps: int


@dataclass(slots=True)
class MeasuredSteps:
    """What a trainer reports of its steps, shared out: those of the warm-up first, then those that are measured. Where its steps go
    back, its ranks were started again with fewer samples at a time: what was measured before does not count."""

    wanted_s: float
    last_step: int = 0
    warm_up_steps: int = 0
    warm_up_s: float = 0.0
    steps: int = 0
    seconds: float = 0.0

    def add(self, step: int, seconds_per_step: float) -> None:
        if step <= self.last_step:
            self.last_step, self.warm_up_steps, self.warm_up_s, self.steps, self.seconds = 0, 0, 0.0, 0, 0.0
        steps, self.last_step = step - self.last_step, step
        if self.is_warm:
            self.steps += steps
            self.seconds += steps * seconds_per_step
        else:
            self.warm_up_steps += steps
            self.warm_up_s += steps * seconds_per_step

    @property
    def is_warm(self) -> bool:
        return self.warm_up_steps >= WARM_UP_STEPS and self.warm_up_s >= WARM_UP_SHARE * self.wanted_s

    @property
    def is_whole(self) -> bool:
        return self.steps >= STEPS_MIN and self.seconds >= self.wanted_s


def gpu_here() -> str:
    """Return the kind of this machine's GPUs, the driver's name if the kind is unknown, or `CPU`."""
    described = shown_gpu()
    name = described.get("gpu", "")
    kind = kind_of_device(name, gpu_memory_gb(described) or None)
    return kind.name if kind else name or CPU


def measure_phases(plan: ScratchPlan, gpu: str, seconds: float) -> Iterator[MeasuredPhase]:
    """Phase by phase. Raises `BadInput` with the trainer's own words where it ends before that."""
    spec, phases = plan.spec, phases_of(plan.spec)
    if not isinstance(plan.base, LocalFiles):
        raise BadInput("a measurement needs a base on this machine, not on the hub", hint="pass its folder with --base")
    if any(ref.is_remote for ref in spec.data):
        lend_keys_of_data()
    say(_announced(len(phases), f"{spec.needs.slots} × {gpu}", seconds))
    for number, phase in enumerate(phases):
        with TemporaryDirectory(prefix="gangline-measure-", ignore_cleanup_errors=True) as made:
            directory = Path(made)
            _lay_out(plan, plan.base, burst_of_phase(spec, number), directory)
            found = _measured(directory, phase["name"], gpu, seconds)
        rate = found.steps * phase["batch_size"] / found.seconds
        say(
            f"{phase['name']}: {rate:.4g} images/s on {spec.needs.slots} × {gpu}, the mean of {found.steps} steps in "
            f"{found.seconds:.1f} s"
        )
        yield MeasuredPhase(
            phase=phase["name"],
            gpu=gpu,
            gpus=spec.needs.slots,
            batch_size=phase["batch_size"],
            images_per_second=rate,
            steps=found.steps,
            seconds=found.seconds,
            warm_up_steps=found.warm_up_steps,
        )


def _announced(phases: int, where: str, seconds: float) -> str:
    what, starts = ("a phase", "a start") if phases == 1 else (f"{phases} phases", f"{phases} starts")
    return (
        f"measuring {what} on {where} takes about {duration(phases * (1 + WARM_UP_SHARE) * seconds)} and {starts} of the "
        f"trainer; longer if {WARM_UP_STEPS + STEPS_MIN} steps need longer, at most {phases * LIMIT_S // 60} min"
    )


def _lay_out(plan: ScratchPlan, base: LocalFiles, spec: ScratchSpec, directory: Path) -> None:
    """Data sets and base stay where they lie."""
    inputs = directory / contract.INPUTS
    for place, files in {"base": base, **plan.sets}.items():
        (inputs / place).parent.mkdir(parents=True, exist_ok=True)
        (inputs / place).symlink_to(files.below.resolve(), target_is_directory=True)
    (directory / contract.SPEC).write_text(json.dumps(to_json(spec)))


def _measured(directory: Path, name: str, gpu: str, seconds: float) -> MeasuredSteps:
    measured, said, limit = MeasuredSteps(seconds), set[str](), 0.0

    def tell(what: str) -> None:
        if what not in said:
            said.add(what)
            say(f"{name}: {what}")

    tell("starting the trainer")
    with _started(directory) as run:
        while not measured.is_whole:
            if run.exit_code() is not None:
                raise _failed(run)
            if run.progress().phase == "training":
                tell("warming up")
                limit = limit or time.monotonic() + LIMIT_S
            for reading in run.take_readings():
                if gpu != CPU and ON_GPU not in reading.point.values:
                    raise BadInput(
                        f"the trainer found no GPU, but this machine has a {gpu}",
                        hint="install a build of torch for CUDA: `gangline docs install` says which",
                    )
                measured.add(reading.point.step, reading.point.values["seconds_per_step"])
            if measured.is_warm:
                tell("measuring")
            if limit and time.monotonic() > limit:
                raise BadInput(
                    f"{name}: {WARM_UP_STEPS + STEPS_MIN} steps took longer than {LIMIT_S // 60} min",
                    hint="measure on more GPUs, or set a smaller batch_size with --set phases=…",
                )
            Event().wait(LOOK_EVERY_S)
    return measured


@contextmanager
def _started(directory: Path) -> Iterator[ProcessRun]:
    """Gone at the end, whatever happens."""
    command = [sys.executable, "-m", MODULES["scratch"], str(directory)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "lance is not fork-safe")  # the fork does nothing but start a program
        run = start_program(command, directory, below=directory)
    try:
        yield run
    finally:
        run.kill()


def _failed(run: ProcessRun) -> BadInput:
    failure = run.failure()
    if failure is None:
        return BadInput(f"the trainer ended with {how(run)}", hint=last_words(run))
    printed = run.printed(0, -1).decode(errors="replace").splitlines()
    hints = [line.removeprefix("hint: ") for line in printed if line.startswith("hint: ")]
    return BadInput(failure.because, hint=hints[-1] if hints else "")
