"""The trainer's side of the trainer contract: the run's directory, the reports that it writes, and the signals that it obeys."""

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.runs import contract
from gangline.core.runs.contract import Failure, Phase, Progress
from gangline.core.runs.in_memory import lies_in_memory
from gangline.core.runs.metrics import sound
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.spec import SampleSpec, Spec, parse_task
from gangline.data.place import says_full
from gangline.posix import RunMemory
from gangline.train.run.throughput import ThroughputMeter

LOG_EVERY_S = 5.0
PICTURES_BYTES = 64 * 2**20
"""The pictures of one step take no more, nearly always."""
ORDERED_BY = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(slots=True)
class Orders:
    """What the agent has ordered by signals: `stop` saves after this step and ends; `save` and `render` do so and continue."""

    stop: bool = False
    save: bool = False
    render: bool = False

    def obey_signals(self) -> None:
        """Set the signal handlers. Signals that came earlier count too, if the parent process blocked them
        (gangline.train.scratch.launch)."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stop", True))
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "save", True))
        signal.signal(signal.SIGUSR2, lambda *_: setattr(self, "render", True))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ORDERED_BY)


def steps_in_report(run: "RunDirectory", spec: TrainingSpec, best_step: int | None) -> dict[str, Any]:
    """Return what a report says of the steps: those that were taken, with those of a job that it continues; those of the spec if the run
    ended early; the best one, and whose weights the result has; and the step and job that it continues."""
    early = {} if run.step == spec.steps else {"steps_of_spec": spec.steps}
    before = {"continues": {"job": spec.continues.job, "step": spec.continues.step}} if spec.continues else {}
    said = {"steps": run.step, "best_step": best_step, "weights_of_step": step_of_result(run, spec, best_step)}
    return said | early | before


def step_of_result(run: "RunDirectory", spec: TrainingSpec, best_step: int | None) -> int:
    """Return the step whose weights the result has: the last one, unless the spec asks for the best one."""
    return run.step if best_step is None or not spec.stop_when_worse else best_step


def obey_no_more() -> None:
    """Ignore the signals in a process that ends: Python removes its handlers at shutdown, and a late signal would look like a crash."""
    for number in ORDERED_BY:
        signal.signal(number, signal.SIG_IGN)


@dataclass(slots=True)
class SpeedMeter:
    last_s: float = field(default_factory=time.monotonic)

    def seconds_per_step(self, steps: int) -> float:
        now = time.monotonic()
        seconds, self.last_s = now - self.last_s, now
        return seconds / steps


@dataclass(slots=True)
class RunDirectory:
    """The paths and reports of one run. Each report is one complete line, flushed, so that a reader never sees half of one. With `memory`
    checkpoints, pictures and the result lie there while it has room."""

    path: Path
    memory: RunMemory | None = None
    steps: int = 0
    images_per_step: int = 1
    phase: Phase = "starting"
    step: int = 0
    save_s: float | None = None
    throughput: ThroughputMeter | None = None
    _meter: SpeedMeter = field(default_factory=SpeedMeter)
    _logged_s: float = 0.0
    _output_in_memory: bool = False

    @property
    def inputs(self) -> Path:
        return self.path / contract.INPUTS

    @property
    def resume(self) -> Path:
        return self.path / contract.RESUME

    @property
    def resumable(self) -> tuple[Path, ...]:
        """Return the folders that may have a checkpoint to resume from."""
        places = (self.path, self.memory.folder) if self.memory else (self.path,)
        return tuple(place / name for place in places for name in (contract.RESUME, contract.CHECKPOINTS))

    @property
    def checkpoints(self) -> Path:
        return self.path / contract.CHECKPOINTS

    @property
    def samples(self) -> Path:
        return self._place(PICTURES_BYTES) / contract.SAMPLES

    @property
    def show_now(self) -> Path:
        return self.path / contract.SHOW_NOW

    @property
    def is_to_finish(self) -> bool:
        """Return whether to take no more steps: a stop that is ordered as well goes first, and the next attempt finishes."""
        return (self.path / contract.FINISH).exists()

    @property
    def output(self) -> Path:
        assert self.memory or not self._output_in_memory
        return (self.memory.folder if self.memory and self._output_in_memory else self.path) / contract.OUTPUT

    def place_output(self, size: int) -> None:
        """Choose where `output` is for a result of about `size` bytes."""
        self._output_in_memory = self._place(size) != self.path

    def write_output(self, size: int, write: Callable[[], None]) -> None:
        """Call `write`, which writes a result of about `size` bytes to `output`; once more on disk if memory does not take it after
        all."""
        self.place_output(size)
        try:
            write()
        except Exception as error:
            if not (self.memory and self._output_in_memory):
                raise
            if not (isinstance(error, OSError) or says_full(error) or self.memory.fault()):
                raise
            self.log(f"the result is written to disk: {self.memory.fault(error)} while it was written")
            if self.output.exists():
                shutil.rmtree(self.output)
            self._output_in_memory = False
            write()

    def _place(self, size: int) -> Path:
        """Return the folder in memory if it has room for this many bytes, else the one on disk."""
        memory = self.memory
        if memory and not memory.fault() and lies_in_memory(size, held=memory.held(), free=memory.free()):
            return memory.folder
        return self.path

    def read_task(self) -> Spec | SampleSpec:
        return parse_task(self._read_json())

    def read_training(self) -> TrainingSpec:
        spec = parse_task(self._read_json())
        assert isinstance(spec, TrainingSpec), "an agent starts a trainer for nothing else"
        return spec

    def _read_json(self) -> Any:
        try:
            return json.loads((self.path / contract.SPEC).read_text())
        except (OSError, ValueError) as error:
            raise BadInput(f"{self.path / contract.SPEC} cannot be read: {error}") from None

    def report_phase(self, phase: Phase) -> None:
        """Report the phase to the agent, and to the job's log unless training merely continues after something else."""
        if phase != self.phase and (phase != "training" or not self._logged_s):
            self.log(phase)
        self.phase = phase
        self._write(asdict(Progress(phase=phase, step=self.step, steps=self.steps, save_s=self.save_s)))

    def report_step(self, step: int, metrics: dict[str, float], *, steps_since: int) -> None:
        """Report `metrics`, means over the last `steps_since` steps, named as in gangline.core.runs.metrics. The speed is added here."""
        self.step = step
        pace = self._meter.seconds_per_step(steps_since)
        speed = {"seconds_per_step": pace, "images_per_second": self.images_per_step / pace}
        if self.throughput:
            speed |= self.throughput.rates(speed["images_per_second"])
        told = Progress(
            phase=self.phase,
            step=step,
            steps=self.steps,
            loss=metrics.get("loss"),
            seconds_per_step=pace,
            metrics=sound(metrics | speed),
        )
        self._write(asdict(told))
        if time.monotonic() - self._logged_s >= LOG_EVERY_S or step == self.steps:
            loss = f"  loss {metrics['loss']:.4f}" if "loss" in metrics else ""
            self.log(f"{loss}  {pace:.3g} s/step  {speed['images_per_second']:.3g} images/s")
            self._logged_s = time.monotonic()

    def log(self, words: str) -> None:
        """Write a line to standard error, which is the job's log: a follower sees a line of the run every few seconds."""
        far = f"step {self.step}/{self.steps}  " if self.steps else ""
        print(f"{far}{words.strip()}", file=sys.stderr, flush=True)  # noqa: T201

    def report_failure(self, failure: Failure) -> None:
        self._write({"failure": asdict(failure)})

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Exclude the time spent inside this context from the seconds per step."""
        started_s = time.monotonic()
        yield
        self._meter.last_s += time.monotonic() - started_s

    def restart_meter(self) -> None:
        """Measure speed from now on: the time before was not spent on a step."""
        self._meter = SpeedMeter()

    def _write(self, line: dict[str, Any]) -> None:
        with (self.path / contract.PROGRESS).open("a") as file:
            file.write(json.dumps(line) + "\n")
