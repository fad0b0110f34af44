"""A trainer that takes its time but computes nothing: steps, checkpoints, exit codes and lies."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from gangline.core import contract
from gangline.core.canonical import canonical_json
from gangline.core.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, Failure, Manifest, Progress
from gangline.core.files import File
from gangline.core.lora_metadata import DIFFUSERS_FILE
from gangline.core.metrics import Point, Reading
from gangline.core.spec import parse_spec, spec_hash, told_whole
from gangline.ports.trainer import Made, Pictures, Result, Run, Saved
from gangline.sim.scenario import JobModel, MachineModel
from gangline.sim.world import World

SAVE_S = 0.5
"""From the step that is saved until its checkpoint is complete. Training need not stand still for so long."""

FIRST_STEPS = 3
"""So many steps make a measured pace."""

OUTPUT_BYTES = 23_000_000

RENDER_S = 4.0
PICTURE_BYTES = 1_500_000


@cache
def content_sha256(lineage: str, step: int) -> str:
    """Of the state after `step` steps of what `lineage` began: equal for equal histories, and for those alone."""
    return hashlib.sha256(f"{lineage}:{step}".encode()).hexdigest()


def lineage_of(spec: dict[str, Any]) -> str:
    """Of an uninterrupted run."""
    return _lineage_of(canonical_json(spec))


@cache
def _lineage_of(spec: str) -> str:
    return spec_hash(parse_spec(json.loads(spec)))


class SimHost:
    """The disk of a node: which files lie there. The cache stays as long as the node; of runs there is one at a time."""

    def __init__(self) -> None:
        self.files: dict[Path, str] = {}
        self.specs: dict[Path, dict[str, Any]] = {}
        self.resume: dict[Path, Manifest] = {}
        self.saved: dict[Path, Saved] = {}

    def cached(self, sha256: str) -> Path:
        return Path(f"/cache/{sha256}")

    def lay_out(self, attempt: str, spec: dict[str, Any]) -> Path:
        directory = Path(f"/runs/{attempt}")
        self.specs[directory] = told_whole(spec)
        return directory

    def input_path(self, directory: Path, path: str) -> Path:
        return directory / contract.INPUTS / path

    def place_cached(self, directory: Path, path: str, file: File) -> bool:
        return self.cached(file.sha256) in self.files

    def make_room(self, room_bytes: int) -> None:
        """There is always enough."""

    def remember_base(self, base: str, files: tuple[File, ...]) -> None:
        """No simulated node starts a second time on its disk."""

    def bases(self) -> tuple[str, ...]:
        return ()

    def place_prepared(self, directory: Path, key: str, manifest: dict[str, Any]) -> None:
        raise AssertionError("simulated trainers prepare nothing")

    def leave_out(self, directory: Path, parts: tuple[str, ...]) -> None:
        assert not parts, "nothing is prepared, so nothing is left out"

    def place_checkpoint(self, directory: Path, step: int, manifest: dict[str, Any]) -> Path:
        self.resume[directory] = contract.parse_manifest(manifest)
        return directory / contract.RESUME / contract.checkpoint_name(step)

    def discard(self, path: Path) -> None:
        if self.saved.pop(path, None):
            return
        if path.parent.name == contract.RESUME:
            self.resume.pop(path.parent.parent, None)
        if path in self.specs:
            del self.specs[path]
            self.resume.pop(path, None)
            self.saved.clear()
            self.files = {file: sha256 for file, sha256 in self.files.items() if not file.is_relative_to(path)}

    def arrived(self, path: Path, file: File) -> None:
        self.files[path] = file.sha256


@dataclass(slots=True, kw_only=True)
class SimTrainer:
    """The `trainer` port of one node. `run` is the newest one."""

    world: World
    host: SimHost
    machine: MachineModel
    jobs: Callable[[int], JobModel]
    news: Callable[[], None]
    die: Callable[[], None]
    struck: Callable[[str], None]
    rng: Random
    run: Run | None = None

    def prepare(self) -> None:
        """A simulated start takes `start_s`, prepared or not."""

    def start(self, kind: str, directory: Path) -> Run:
        self.run = SimRendering(self, directory) if kind == "sample" else SimRun(self, directory)
        return self.run


class SimRun:
    """From `start_s` after its start it takes a step every `pace` seconds."""

    def __init__(self, at: SimTrainer, directory: Path) -> None:
        self.directory = directory
        self._at = at
        self._world = at.world
        self._spec = at.host.specs[directory]
        self._job = at.jobs(self._spec["seed"])
        self._lineage = self._spec_hash = lineage_of(self._spec)
        self._code: int | None = None
        self._failure: Failure | None = None
        self._readings: list[Reading] = []
        self._dead = False
        self._stopping = False
        self._leg = 0
        self._from_step = self._step = self._resumed()
        self._steps: int = self._spec["steps"]
        self._pace = at.machine.seconds_per_step * self._job.pace
        self._held_up_s = at.machine.save_s
        self._pictures: list[Pictures] = []
        self._training_ms = self._since_ms = self._world.now_ms + round(1000 * at.machine.start_s)
        every_s, every_steps = self._spec["checkpoint_every_s"], self._spec["checkpoint_every_steps"]
        by_time = max(1, int(every_s / self._pace))
        self._every = min(by_time, every_steps) if every_steps else by_time
        self._begin()

    def _resumed(self) -> int:
        """The step to go on from. Any state but the job's own makes its result another one."""
        manifest = self._at.host.resume.get(self.directory)
        if manifest is None:
            return 0
        if manifest.files[0].sha256 != content_sha256(self._lineage, manifest.step):
            self._lineage = f"broken {self._lineage}"
        return manifest.step

    def _begin(self) -> None:
        machine, job, at = self._at.machine, self._job, self._at
        doom = _doom(machine, job)
        if doom:
            kind, seconds = doom
            at.struck(kind)
            self._later(seconds, lambda: self._end_badly(kind))
            return
        if machine.trait == "false_progress":
            at.struck("false progress")
            return  # it reports steps for ever, and saves nothing
        if machine.trait == "fails_long":
            self._later(machine.trait_s, lambda: (at.struck("fails long"), self._end_badly("fails long")))
        if job.trait == "kills_hosts":
            self._later(machine.start_s + job.trait_s, lambda: (at.struck("kills hosts"), at.die()))
        starts_s = (self._since_ms - self._world.now_ms) / 1000
        self._later(starts_s + self._pace, self._at.news)
        self._later(starts_s, self._train_on)

    def _train_on(self) -> None:
        """From here to the next checkpoint, or the end."""
        if self._step < self._steps:
            self._save_at(min(self._step + self._every, self._steps))
        else:
            self._end(EXIT_DONE)

    def _save_at(self, step: int) -> None:
        """Not at the step that was meant before."""
        self._leg += 1
        leg, taken_ms = self._leg, self._since_ms + 1000 * (step - self._step) * self._pace

        def save() -> None:
            if leg == self._leg and not self._stopping:
                self._step, self._since_ms = step, self._world.now_ms + round(1000 * self._held_up_s)
                self._later(max(SAVE_S, self._held_up_s), lambda: self._complete(step))
                if step < self._steps:
                    self._train_on()

        self._later((taken_ms - self._world.now_ms) / 1000, save)

    def _complete(self, step: int) -> None:
        self._save(step)
        if step == self._steps:
            self._end(EXIT_DONE)

    def _save(self, step: int) -> None:
        sha256 = content_sha256(self._lineage, step)
        file = File(path="state.safetensors", bytes=self._job.checkpoint_bytes, sha256=sha256)
        manifest = Manifest(
            step=step, spec_hash=self._spec_hash, fingerprint={"gpu": self._at.machine.gpu}, exact=True, files=(file,)
        )
        folder = self.directory.joinpath(contract.CHECKPOINTS, contract.checkpoint_name(step))
        self._at.host.saved[folder] = Saved(folder, manifest)
        self._readings.append(Reading(point=Point(step=step, values={"loss": 1 / step}), saved=True))
        self._at.news()

    def _end_badly(self, kind: str) -> None:
        code = EXIT_BAD_INPUT if kind in ("lying 65", "bad input") else 1
        self._failure = {
            "memory": Failure(kind="out of memory", because="CUDA out of memory"),
            "lying 65": Failure(kind="bad data", because="an image cannot be read"),
            "bad input": Failure(kind="bad data", because="an image cannot be read"),
        }.get(kind)
        self._end(code)

    def _end(self, code: int) -> None:
        self._code = code
        self._at.news()

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        def happen() -> None:
            if not self._dead and self._code is None:
                act()

        self._world.after(seconds, "trainer", happen)

    def _now_step(self) -> int:
        passed = (self._world.now_ms - self._since_ms) / 1000
        bound = (
            self._steps if self._at.machine.trait == "false_progress" else min(self._steps, self._step + self._every)
        )
        return max(self._step, min(bound, self._step + int(passed / self._pace)))

    def exit_code(self) -> int | None:
        return self._code

    def progress(self) -> Progress:
        step = self._now_step()
        if self._world.now_ms < self._training_ms:
            return Progress(phase="preparing", step=self._from_step, steps=self._steps)
        measured = step - self._from_step >= FIRST_STEPS
        return Progress(
            phase="training",
            step=step,
            steps=self._steps,
            loss=0.1 if step > self._from_step else None,
            seconds_per_step=self._pace if measured else None,
            save_s=self._held_up_s,
        )

    def take_readings(self) -> list[Reading]:
        taken, self._readings = self._readings, []
        return taken

    def failure(self) -> Failure | None:
        return self._failure

    def checkpoints(self) -> list[Saved]:
        return list(self._at.host.saved.values())

    def pictures(self) -> list[Pictures]:
        return self._pictures

    def prepared(self) -> list[Made]:
        return []

    def printed(self, first_byte: int, most: int) -> bytes:
        return b"training\n"[first_byte : first_byte + most]

    def result(self) -> Result:
        sha256 = content_sha256(f"result of {self._lineage}", self._steps)
        samples = tuple(file for pictures in self._pictures for file in pictures.files)
        return Result(output=(File(path=DIFFUSERS_FILE, bytes=OUTPUT_BYTES, sha256=sha256),), samples=samples)

    def ask_to_save(self) -> None:
        step = self._now_step() + 1
        deaf = self._code is not None or self._stopping or self._at.machine.trait == "false_progress"
        if not deaf and step < self._steps:
            self._save_at(step)

    def ask_to_render(self) -> None:
        """They are there a moment later. That it holds training up is not simulated."""
        step = self._now_step()

        def rendered() -> None:
            name, sha256 = contract.pictures_name(step), content_sha256(f"pictures of {self._lineage}", step)
            if all(pictures.step != step for pictures in self._pictures):
                self._pictures.append(Pictures(step, (_picture(f"{name}/{contract.picture_name(0, 1)}", sha256),)))
                self._at.news()

        self._later(RENDER_S, rendered)

    def ask_to_stop(self) -> None:
        if self._code is not None or self._stopping:
            return
        self._stopping = True
        step = self._now_step()
        if self._at.machine.trait == "false_progress":
            return

        def stop() -> None:
            self._step = step
            if step > self._from_step:
                self._save(step)
            self._end(EXIT_STOPPED)

        self._later(SAVE_S, stop)

    def kill(self) -> None:
        self._dead = True


class SimRendering:
    """Pictures of a checkpoint or a result, after `start_s` and a while. It reads the very weights that it shows, or it crashes."""

    def __init__(self, at: SimTrainer, directory: Path) -> None:
        self.directory = directory
        self._at = at
        self._spec = at.host.specs[directory]
        self._code: int | None = None
        self._dead = False
        lineage = lineage_of(self._spec["of"])
        shown = ("checkpoint", "state.safetensors") if self._spec["checkpoint"] else ("result", DIFFUSERS_FILE)
        self._sha256 = content_sha256(
            lineage if self._spec["checkpoint"] else f"result of {lineage}", self._spec["step"]
        )
        good = at.host.files.get(directory.joinpath(contract.INPUTS, *shown)) == self._sha256
        self._end_later(at.machine.start_s + RENDER_S * at.machine.slowness, EXIT_DONE if good else 1)

    def _end_later(self, seconds: float, code: int) -> None:
        def end() -> None:
            if not self._dead and self._code is None:
                self._code = code
                self._at.news()

        self._at.world.after(seconds, "rendering", end)

    def exit_code(self) -> int | None:
        return self._code

    def progress(self) -> Progress:
        return Progress(phase="rendering", steps=1)

    def take_readings(self) -> list[Reading]:
        return []

    def failure(self) -> Failure | None:
        return None

    def checkpoints(self) -> list[Saved]:
        return []

    def pictures(self) -> list[Pictures]:
        return []

    def prepared(self) -> list[Made]:
        return []

    def printed(self, first_byte: int, most: int) -> bytes:
        return b"rendering\n"[first_byte : first_byte + most]

    def result(self) -> Result:
        return Result(output=(_picture(contract.picture_name(0, 1), self._sha256),), samples=())

    def ask_to_save(self) -> None:
        raise AssertionError("only training is saved")

    def ask_to_render(self) -> None:
        raise AssertionError("only training is asked for pictures")

    def ask_to_stop(self) -> None:
        self._end_later(0, EXIT_STOPPED)

    def kill(self) -> None:
        self._dead = True


def _picture(path: str, sha256: str) -> File:
    return File(path=path, bytes=PICTURE_BYTES, sha256=sha256)


def _doom(machine: MachineModel, job: JobModel) -> tuple[str, float] | None:
    """How a run on this machine ends as soon as it starts, and after how many seconds."""
    if machine.trait == "fails_at_once":
        return "fails at once", machine.trait_s
    if machine.trait == "lies_65":
        return "lying 65", machine.trait_s
    if job.trait == "bad_input":
        return "bad input", machine.start_s
    if job.memory_gb > machine.gpu_memory_gb:
        return "memory", machine.start_s
    return None
