"""The trainer's side of the trainer contract: the directory it was given, what it reports, and the signals it obeys."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.runs import contract
from gangline.core.runs.contract import Failure, Phase, Progress
from gangline.core.runs.metrics import sound
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.specs.scratch import ScratchSpec, parse_scratch
from gangline.core.specs.spec import SampleSpec, Spec, parse_task
from gangline.train.run.throughput import ThroughputMeter

LOG_EVERY_S = 5.0
ORDERED_BY = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(slots=True)
class Orders:
    """What the agent wants: `stop` after this step (saved), or `save`, or `render` pictures of it, and go on. Set by signals."""

    stop: bool = False
    save: bool = False
    render: bool = False

    def obey_signals(self) -> None:
        """Also those that came before, where whoever started this process had them wait (gangline.train.scratch.launch)."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stop", True))
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "save", True))
        signal.signal(signal.SIGUSR2, lambda *_: setattr(self, "render", True))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ORDERED_BY)


def obey_no_more() -> None:
    """For a process that ends: while Python is taken down its handlers are gone, and a signal would make a crash of the end."""
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
    """Paths and reports of one run. Every report is one whole line, flushed, so that a reader never sees half of one."""

    path: Path
    steps: int = 0
    images_per_step: int = 1
    phase: Phase = "starting"
    step: int = 0
    save_s: float | None = None
    throughput: ThroughputMeter | None = None
    _meter: SpeedMeter = field(default_factory=SpeedMeter)
    _logged_s: float = 0.0

    @property
    def inputs(self) -> Path:
        return self.path / contract.INPUTS

    @property
    def resume(self) -> Path:
        return self.path / contract.RESUME

    @property
    def checkpoints(self) -> Path:
        return self.path / contract.CHECKPOINTS

    @property
    def samples(self) -> Path:
        return self.path / contract.SAMPLES

    @property
    def output(self) -> Path:
        return self.path / contract.OUTPUT

    def read_lora(self) -> LoraSpec:
        return parse_lora(self._read_json())

    def read_task(self) -> Spec | SampleSpec:
        return parse_task(self._read_json())

    def read_scratch(self) -> ScratchSpec:
        return parse_scratch(self._read_json())

    def _read_json(self) -> Any:
        try:
            return json.loads((self.path / contract.SPEC).read_text())
        except (OSError, ValueError) as error:
            raise BadInput(f"{self.path / contract.SPEC} cannot be read: {error}") from None

    def report_phase(self, phase: Phase) -> None:
        """To the agent; and to the job's log, but for the training that goes on after something else."""
        if phase != self.phase and (phase != "training" or not self._logged_s):
            self._log(phase)
        self.phase = phase
        self._write(asdict(Progress(phase=phase, step=self.step, steps=self.steps, save_s=self.save_s)))

    def report_step(self, step: int, metrics: dict[str, float], *, steps_since: int) -> None:
        """`metrics` are means over the `steps_since` steps that ended just now, by the names of gangline.core.runs.metrics. How fast
        they were is added here."""
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
            self._log(f"{loss}  {pace:.3g} s/step  {speed['images_per_second']:.3g} images/s")
            self._logged_s = time.monotonic()

    def _log(self, words: str) -> None:
        """Standard error is the job's log: whoever follows that hears of the run every few seconds."""
        far = f"step {self.step}/{self.steps}  " if self.steps else ""
        print(f"{far}{words.strip()}", file=sys.stderr, flush=True)  # noqa: T201

    def report_failure(self, failure: Failure) -> None:
        self._write({"failure": asdict(failure)})

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done meanwhile is no part of a step."""
        started_s = time.monotonic()
        yield
        self._meter.last_s += time.monotonic() - started_s

    def restart_meter(self) -> None:
        """Count from now: what lies behind was not a step."""
        self._meter = SpeedMeter()

    def _write(self, line: dict[str, Any]) -> None:
        with (self.path / contract.PROGRESS).open("a") as file:
            file.write(json.dumps(line) + "\n")
