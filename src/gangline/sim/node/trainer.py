"""Simulate a trainer that takes time but computes nothing: steps, checkpoints, exit codes and false reports."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gangline.core.files import PART_BYTES, Beginning, File
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.runs import contract
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, Failure, Manifest, Progress
from gangline.core.runs.metrics import Point, Reading
from gangline.core.runs.proof import Proof
from gangline.core.specs.kinds import KINDS
from gangline.ports.server import Folder
from gangline.ports.trainer import Installing, Made, Pictures, Run, RunAccess, RunResult, Saved, Unfinished
from gangline.sim.node.doom import doom_of
from gangline.sim.node.host import SimHost
from gangline.sim.node.lineage import content_sha256, lineage_of
from gangline.sim.node.rendering import RENDER_S, SimRendering, picture
from gangline.sim.objects import simulated_parts
from gangline.sim.scenario import JobModel, MachineModel
from gangline.sim.world import World

SAVE_S = 0.5
"""Seconds from the step that is saved until its checkpoint is complete. Training may continue during them."""

FIRST_STEPS = 3
"""The least number of steps after which a pace is reported."""

SPILLED_PACE = 8.0
"""How many times as long a step takes if the memory of its job spilled."""

OUTPUT_BYTES = 23_000_000


@dataclass(slots=True, kw_only=True)
class SimTrainer:
    """The `trainer` port of one node. `run` is the newest run."""

    world: World
    host: SimHost
    machine: MachineModel
    jobs: Callable[[int], JobModel]
    news: Callable[[], None]
    die: Callable[[], None]
    struck: Callable[[str], None]
    rng: Random
    run: Run | None = None

    @property
    def has_spilled(self) -> bool:
        return isinstance(self.run, SimRun) and self.run.spilled

    def prove(self) -> Proof:
        if self.machine.trait != "no_libraries":
            return Proof()
        self.struck("no libraries")
        return Proof(kinds=(), problems=dict.fromkeys(KINDS, "torch is not installed: pip install 'gangline[train]'"))

    def prepare(self) -> None:
        """Do nothing: a simulated start takes `start_s`, whether prepared or not."""

    def install(self, directory: Path) -> Installing:
        raise NotImplementedError("simulations run no commands")

    def start(self, kind: str, directory: Path, slots: tuple[int, ...], access: RunAccess) -> Run:
        self.run = (
            SimRendering(self.world, self.host, self.machine, self.news, directory)
            if KINDS[kind].renders
            else SimRun(self, directory)
        )
        return self.run


def loss_at(step: int) -> float:
    """Return the loss of every simulated job: it falls fast, then slowly."""
    return 0.08 + 12 / (step + 60)


class SimRun:
    """A run that does a step every `_pace` seconds, beginning `start_s` after its start."""

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
        self._stopping = self._finishing = False
        self._leg = 0
        self._from_step = self._step = self._resumed()
        self._steps: int = self._spec["steps"]
        self.spilled = at.machine.spills and self._job.memory_gb > at.machine.gpu_memory_gb
        self._pace = at.machine.seconds_per_step * self._job.pace * (SPILLED_PACE if self.spilled else 1)
        self._held_up_s = at.machine.save_s
        self._pictures: list[Pictures] = []
        self._training_ms = self._since_ms = self._world.now_ms + round(1000 * at.machine.start_s)
        every_s, every_steps = self._spec["checkpoint_every_s"], self._spec["checkpoint_every_steps"]
        by_time = max(1, int(every_s / self._pace))
        self._every = min(by_time, every_steps) if every_steps else by_time
        self._begin()

    def _resumed(self) -> int:
        """Return the step to resume from. If the checkpoint is not one of this job's history, the result will differ, too."""
        manifest = self._at.host.resume.get(self.directory)
        if manifest is None:
            return 0
        continues = self._spec["continues"] or {"step": 0, "spec_hash": ""}
        lineage = continues["spec_hash"] if manifest.step == continues["step"] else self._lineage
        if manifest.files[0].sha256 != content_sha256(lineage, manifest.step):
            self._lineage = f"broken {self._lineage}"
        return manifest.step

    def _begin(self) -> None:
        machine, job, at = self._at.machine, self._job, self._at
        if machine.trait == "throttles":
            at.struck("throttled")
        if self.spilled:
            at.struck("spilled")
        doom = doom_of(machine, job)
        if doom:
            kind, seconds = doom
            at.struck(kind)
            self._later(seconds, lambda: self._end_badly(kind))
            return
        if self._spec["continues"] and not self._from_step:
            self._later(machine.start_s, lambda: self._end_badly("no beginning"))
            return
        if machine.trait == "false_progress":
            at.struck("false progress")
            return  # it reports steps for ever and saves nothing
        if machine.trait == "fails_long":
            self._later(machine.trait_s, lambda: (at.struck("fails long"), self._end_badly("fails long")))
        if job.trait == "kills_hosts":
            self._later(machine.start_s + job.trait_s, lambda: (at.struck("kills hosts"), at.die()))
        starts_s = (self._since_ms - self._world.now_ms) / 1000
        self._later(starts_s + self._pace, self._at.news)
        self._later(starts_s, self._train_on)

    def _train_on(self) -> None:
        """Continue to the next checkpoint, or end the run."""
        if self._finishing:
            return
        if self._step < self._steps:
            self._save_at(min(self._step + self._every, self._steps))
        else:
            self._end(EXIT_DONE)

    def _save_at(self, step: int) -> None:
        """Save at `step`, instead of the step that was scheduled before."""
        self._leg += 1
        leg, taken_ms = self._leg, self._since_ms + 1000 * (step - self._step) * self._pace

        def save() -> None:
            if leg == self._leg and not self._stopping:
                self._step, self._since_ms = step, self._world.now_ms + round(1000 * self._held_up_s)
                self._later(SAVE_S / 2, lambda: self._announce(step))
                self._later(max(SAVE_S, self._held_up_s), lambda: self._complete(step))
                if step < self._steps:
                    self._train_on()

        self._later((taken_ms - self._world.now_ms) / 1000, save)

    def _complete(self, step: int) -> None:
        self._save(step)
        if step == self._steps:
            self._end(EXIT_DONE)

    def _announce(self, step: int) -> None:
        """Announce all parts of a checkpoint that is half written, unless that is too small to have any."""
        file = self._file(step)
        if file.bytes > PART_BYTES:
            self._at.host.unfinished[self._folder(step)] = file
            self._at.news()

    def _folder(self, step: int) -> Path:
        return self.directory.joinpath(contract.CHECKPOINTS, contract.checkpoint_name(step))

    def _file(self, step: int) -> File:
        sha256 = content_sha256(self._lineage, step)
        return File(path="state.safetensors", bytes=self._job.checkpoint_bytes, sha256=sha256)

    def _save(self, step: int) -> None:
        file = self._file(step)
        manifest = Manifest(
            step=step, spec_hash=self._spec_hash, fingerprint={"gpu": self._at.machine.gpu}, exact=True, files=(file,)
        )
        folder = self._folder(step)
        self._at.host.unfinished.pop(folder, None)
        self._at.host.saved[folder] = Saved(folder, manifest)
        self._readings.append(Reading(point=Point(step=step, values={"loss": loss_at(step)}), saved=True))
        self._at.news()

    def _end_badly(self, kind: str) -> None:
        code = EXIT_BAD_INPUT if kind in ("lying 65", "bad input", "no beginning") else 1
        self._failure = {
            "memory": Failure(kind="out of memory", because="CUDA out of memory"),
            "lying 65": Failure(kind="bad data", because="an image cannot be read"),
            "bad input": Failure(kind="bad data", because="an image cannot be read"),
            "no beginning": Failure(kind="bad data", because="the checkpoint that it continues is not here"),
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
            loss=loss_at(step) if step > self._from_step else None,
            seconds_per_step=self._pace if measured else None,
            save_s=self._held_up_s,
            metrics={"memory_gb": self._job.memory_gb * 2**30 / 1e9} if measured and self._job.memory_gb else {},
        )

    def take_readings(self) -> list[Reading]:
        taken, self._readings = self._readings, []
        return taken

    def failure(self) -> Failure | None:
        return self._failure

    def checkpoints(self) -> list[Saved]:
        return [saved for folder, saved in self._at.host.saved.items() if folder.is_relative_to(self.directory)]

    def unfinished(self) -> Unfinished | None:
        """Return the checkpoint of which all parts were announced in the middle of its save."""
        found = [folder for folder in self._at.host.unfinished if folder.is_relative_to(self.directory)]
        return Unfinished(int(found[-1].name), found[-1]) if found else None

    def parts(self, folder: Path) -> tuple[Beginning, ...]:
        saved = self._at.host.saved.get(folder)
        file = saved.manifest.files[0] if saved else self._at.host.unfinished.get(folder)
        return (announced(file),) if file and file.bytes > PART_BYTES else ()

    def pictures(self) -> list[Pictures]:
        return self._pictures

    def place(self, folder: Folder, path: str) -> Path:
        return self.directory / folder / path

    def prepared(self) -> list[Made]:
        return []

    def printed(self, first_byte: int, most: int) -> bytes:
        return b"training\n"[first_byte : first_byte + most]

    def note(self, line: str) -> None:
        """Do nothing: what a simulated trainer prints is the same whatever happens."""

    def result(self) -> RunResult:
        sha256 = content_sha256(f"result of {self._lineage}", self._steps)
        samples = tuple(file for pictures in self._pictures for file in pictures.files)
        return RunResult(output=(File(path=DIFFUSERS_FILE, bytes=OUTPUT_BYTES, sha256=sha256),), samples=samples)

    def ask_to_save(self) -> None:
        step = self._now_step() + 1
        deaf = self._code is not None or self._stopping or self._at.machine.trait == "false_progress"
        if not deaf and step < self._steps:
            self._save_at(step)

    def ask_to_render(self, *, now: bool = False) -> None:
        """Render samples of the current step, which takes `RENDER_S`. The delay of training is not simulated."""
        step = self._now_step()

        def rendered() -> None:
            name, sha256 = contract.pictures_name(step), content_sha256(f"pictures of {self._lineage}", step)
            if all(pictures.step != step for pictures in self._pictures):
                self._pictures.append(Pictures(step, (picture(f"{name}/{contract.picture_name(0, 1)}", sha256),)))
                self._at.news()

        self._later(RENDER_S, rendered)

    def ask_to_finish(self) -> None:
        """Take no more steps than the ones that are done, but one at least, and end with what that gives."""
        step = self._now_step() or 1
        deaf = self._code is not None or self._stopping or self._at.machine.trait == "false_progress"
        if deaf or self._finishing or step >= self._steps:
            return
        self._finishing = True
        self._leg += 1  # the save that was scheduled does not come
        starts_s = max(0.0, (self._training_ms - self._world.now_ms) / 1000)

        def finish() -> None:
            if not self._stopping:
                self._step = self._steps = step
                if step > self._from_step:
                    self._save(step)
                self._end(EXIT_DONE)

        self._later(starts_s + self._pace * (step > self._now_step()) + SAVE_S, finish)

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


def announced(file: File) -> Beginning:
    """Return all parts of a simulated file."""
    parts = tuple(part.sha256 or "" for part in simulated_parts(file))
    return Beginning(path=file.path, bytes=file.bytes, parts=parts)
