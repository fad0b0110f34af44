"""The trainer beside its peers: `python benchmarks/trainer.py --peer PATH/train_dreambooth_lora_sdxl.py`, `... kernels` or `... restart`.

--peer    a script of diffusers' kind, on the same base, photos, precision and settings, in turns; may be given again.
          It needs accelerate. Where torchvision is not installed, a stand-in made of PIL and torch is put on its path.
--steps, --rounds, --validated-steps      how much of it; see --help
kernels   how many kernels, casts and views a step of SDXL launches, beside PEFT, diffusers' script and the network alone; needs no card
restart   seconds from the death of a node to the next step on another one that is idle, a server and both as processes

What a card does besides is shown by card.py. The base has random weights. Without a card it is SDXL's architecture made so narrow that
a step takes about half a second on one core, and its VAE so that it takes the share of a step's FLOPs that SDXL's takes; with one it is
SDXL itself at 1024².
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import json
import os
import re
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import torch
from benchmarks.kernels import kernels
from benchmarks.random_bases import HERE, ON_CARD, RANK, SDXL, count_flops, files_of, make_base
from tests.inputs import BASE, SUBJECT, file_at

from gangline.adapters.host.trainer.process import MODULES
from gangline.cli.admin.box import Box
from gangline.cli.jobs.train import upload_inputs
from gangline.core.files import File
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import SampleSpec

PHOTOS = sorted(SUBJECT.glob("*.png"))[:5]
PROMPT = "sks cat face, fluent emoji"
IMAGES, IMAGES_EVERY = 4, 100
SAVE_EVERY_S = 30


# ------------------------------------------------------------------------------------------------------------------ a run


@dataclass(kw_only=True)
class Ran:
    """What was seen of a process from outside. `seen`: seconds since its start at which each step was first told as done.
    `elsewhere_cpu_s`: of the sample jobs that another node renders meanwhile."""

    seconds: float
    cpu_seconds: float
    memory_bytes: int
    seen: dict[int, float]
    saved_at: list[int] = field(default_factory=list)
    held_up_s: list[float] = field(default_factory=list)
    elsewhere_cpu_s: float = 0.0
    log: str = ""

    @property
    def to_first_step_s(self) -> float:
        return self.seen[min(self.seen)] - self.step_s * min(self.seen)

    @cached_property
    def step_s(self) -> float:
        """The middle one of the stretches between two reports, but for those with a save in them."""
        told = sorted(self.seen.items())
        stretches = [
            ((to_s - from_s) / (to - at))
            for (at, from_s), (to, to_s) in pairwise(told)
            if not any(at <= step <= to for step in self.saved_at)
        ]
        return statistics.median(stretches)

    def save_s(self) -> float:
        """How long one save held training up: as it says itself, or what the steps around it took more than others."""
        if self.held_up_s:
            return statistics.median(self.held_up_s)
        around = [
            self.seen[at + 1] - self.seen[at - 1] - 2 * self.step_s for at in self.saved_at if at + 1 in self.seen
        ]
        return max(0.0, statistics.median(around)) if around else float("nan")


class CardMemory:
    """The most that was in use on the card beyond what was before, looked at ten times a second."""

    def __enter__(self) -> "CardMemory":
        self.before = self._used()
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while ON_CARD and not self._over.wait(0.1):
            self.most = max(self.most, self._used() - self.before)

    def _used(self) -> int:
        if not ON_CARD:
            return 0
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]) * 2**20


def run(command: list[str], environment: dict[str, str], log: Path, look: Callable[[], int]) -> Ran:
    """`look` tells the newest step that is done. Raises what the process said last where it fails."""
    seen: dict[int, float] = {}
    started_s = time.monotonic()
    with log.open("wb") as output, CardMemory() as memory:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            step = look()
            if step and step not in seen:
                seen[step] = time.monotonic() - started_s
            if ended:
                break
            threading.Event().wait(0.003)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} ended with {process.returncode}: {log.read_text()[-1500:]}")
    return Ran(
        seconds=time.monotonic() - started_s,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        memory_bytes=memory.most or usage.ru_maxrss * 1024,
        seen=seen,
        log=log.read_text(errors="replace"),
    )


def environment() -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONUNBUFFERED": "1"}
    return os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")} | quiet


# --------------------------------------------------------------------------------------------------------------- the peer

STAND_IN = '''
"""In the place of torchvision.transforms: what the script uses of it, by PIL and torch."""
import random
from enum import Enum
import numpy as np
import torch
from PIL import Image, ImageOps

class InterpolationMode(Enum):
    NEAREST = Image.Resampling.NEAREST
    BILINEAR = Image.Resampling.BILINEAR
    BICUBIC = Image.Resampling.BICUBIC
    LANCZOS = Image.Resampling.LANCZOS

class Compose:
    def __init__(self, parts): self.parts = parts
    def __call__(self, image):
        for part in self.parts: image = part(image)
        return image

class Resize:
    def __init__(self, size, interpolation=InterpolationMode.BILINEAR): self.size, self.by = size, interpolation.value
    def __call__(self, image):
        scale = self.size / min(image.size)
        return image.resize(tuple(round(side * scale) for side in image.size), self.by)

class CenterCrop:
    def __init__(self, size): self.size = size
    def __call__(self, image):
        left, top = ((side - self.size) // 2 for side in image.size)
        return image.crop((left, top, left + self.size, top + self.size))

class RandomCrop(CenterCrop):
    def get_params(self, image, size):
        return random.randint(0, image.height - size[0]), random.randint(0, image.width - size[1]), *size

class RandomHorizontalFlip:
    def __init__(self, p=0.5): self.p = p
    def __call__(self, image): return ImageOps.mirror(image) if random.random() < self.p else image

class ToTensor:
    def __call__(self, image): return torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1)

class Normalize:
    def __init__(self, mean, std): self.mean, self.std = torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]
    def __call__(self, tensor): return (tensor - self.mean) / self.std
'''
CROP = "def crop(image, top, left, height, width): return image.crop((left, top, left + width, top + height))\n"
LAUNCH = """
import runpy
import sys

import torch
from transformers.utils.import_utils import is_torchvision_available

torch.set_autocast_dtype("cpu", torch.float32)
if not is_torchvision_available():  # that is remembered, so the libraries leave the stand-in alone
    import diffusers
    import transformers.image_utils

    sys.path.insert(0, sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
STEPS_TOLD = re.compile(rb"Steps:[^\r\n]*?\| *(\d+)/\d+ \[")


def launcher(folder: Path) -> list[str]:
    """What to start the script with. For want of torchvision, a stand-in below `folder` is on its path; and its pictures stay in
    float32 without a card: of itself the script renders them in bfloat16, which few CPUs compute in."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "launch.py").write_text(LAUNCH)
    started_with = [sys.executable, str(folder / "launch.py"), str(folder / "path")]
    if find_spec("torchvision"):
        return started_with
    transforms = folder / "path" / "torchvision" / "transforms"
    transforms.mkdir(parents=True, exist_ok=True)
    (transforms.parent / "__init__.py").write_text("")
    (transforms / "__init__.py").write_text(STAND_IN)
    (transforms / "functional.py").write_text(CROP)
    print("torchvision is not installed: the peers get a stand-in of PIL and torch for it")
    return started_with


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is asked of both. `images`: four pictures every hundred steps and at the end. `of_ours`: settings that the peer has not."""

    steps: int
    images: bool = False
    save_every: int | None = None
    batch_size: int = 1
    gradient_checkpointing: bool = False
    of_ours: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    script: Path
    base: Path
    launcher: list[str]

    @property
    def name(self) -> str:
        return f"peer: {self.script.stem.removeprefix('train_')}"

    def run(self, case: Case, folder: Path) -> Ran:
        photos = folder / "photos"
        photos.mkdir()
        for photo in PHOTOS:
            shutil.copyfile(photo, photos / photo.name)
        told = Told(folder / "log")
        command = [*self.launcher, str(self.script), *self._options(case, photos, folder / "output")]
        ran = run(command, environment(), folder / "log", told.newest)
        saved = range(case.save_every, case.steps + 1, case.save_every) if case.save_every else ()
        return replace(ran, saved_at=list(saved))

    def _options(self, case: Case, photos: Path, output: Path) -> list[str]:
        given: dict[str, Any] = {
            "pretrained_model_name_or_path": self.base,
            "instance_data_dir": photos,
            "instance_prompt": PROMPT,
            "output_dir": output,
            "resolution": HERE.side,
            "rank": RANK,
            "train_batch_size": case.batch_size,
            "max_train_steps": case.steps,
            "learning_rate": 1e-4,
            "lr_scheduler": "constant",
            "lr_warmup_steps": 0,
            "mixed_precision": "bf16" if ON_CARD else "no",
            "checkpointing_steps": case.save_every or 10**9,
            "seed": 0,
        }
        if case.images:
            given |= {"validation_prompt": PROMPT, "num_validation_images": IMAGES, "validation_epochs": 1}
            given["repeats"] = IMAGES_EVERY * case.batch_size // len(PHOTOS)
        flags = ["--center_crop"]
        flags += ["--gradient_checkpointing"] if case.gradient_checkpointing else []
        flags += ["--cache_latents"] if "--cache_latents" in self.script.read_text() else []
        return [f"--{name}={value}" for name, value in given.items()] + flags


class Told:
    """The newest step of a progress bar in a log that is being written."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read_to = 0
        self._step = 0

    def newest(self) -> int:
        if self._log.exists():
            with self._log.open("rb") as file:
                file.seek(max(0, self._read_to - 200))
                text = file.read()
                self._read_to = file.tell()
            for found in STEPS_TOLD.findall(text):
                self._step = max(self._step, int(found))
        return self._step


# ------------------------------------------------------------------------------------------------------------------- ours


@dataclass(frozen=True)
class Ours:
    base: Path
    files: tuple[File, ...]
    name: str = "gangline"

    def run(self, case: Case, folder: Path) -> Ran:
        directory = folder / "run"
        spec = self._spec(case)
        self._lay_out(directory, spec)
        reports = Reports(directory / "progress.jsonl")
        ran = run(
            [sys.executable, "-m", MODULES["lora"], str(directory)], environment(), folder / "log", reports.newest
        )
        shown = [*self._checkpoints(directory), None] if case.images else []
        elsewhere = [self._render(spec, checkpoint, directory, folder).cpu_seconds for checkpoint in shown]
        return replace(
            ran, saved_at=reports.saved_at, held_up_s=reports.held_up_s, elsewhere_cpu_s=sum(elsewhere, start=0.0)
        )

    def _checkpoints(self, directory: Path) -> list[Path]:
        saved = sorted(manifest.parent for manifest in (directory / "checkpoints").glob("*/manifest.json"))
        return [checkpoint for checkpoint in saved if int(checkpoint.name) % IMAGES_EVERY == 0]

    def _render(self, spec: LoraSpec, checkpoint: Path | None, trained: Path, folder: Path) -> Ran:
        """A sample job, as the server makes one of a committed checkpoint, or of the result, which it shows beside the base."""
        step = int(checkpoint.name) if checkpoint else spec.steps
        task = SampleSpec(of=spec, job="benchmark", checkpoint=checkpoint.name if checkpoint else None, step=step)
        directory = folder / f"samples-{step}"
        self._lay_out(directory, task)
        (directory / "inputs" / ("checkpoint" if checkpoint else "result")).symlink_to(checkpoint or trained / "output")
        command = [sys.executable, "-m", MODULES["sample"], str(directory)]
        return run(command, environment(), folder / f"log-{step}", lambda: 0)

    def _spec(self, case: Case) -> LoraSpec:
        settings: dict[str, Any] = {
            "base": FilesBase(files=self.files),
            "photos": tuple(file_at(photo, SUBJECT) for photo in PHOTOS),
            "prompt": PROMPT,
            "resolution": HERE.side,
            "rank": RANK,
            "alpha": RANK,
            "steps": case.steps,
            "batch_size": case.batch_size,
            "learning_rate": 1e-4,
            "weight_decay": 1e-4,
            "precision": "bf16" if ON_CARD else "fp32",
            "gradient_checkpointing": case.gradient_checkpointing,
            "checkpoint_every_s": 3600.0,
            "checkpoint_every_steps": case.save_every,
            "sample_every_steps": IMAGES_EVERY if case.images else 10_000_000,
            "sample_seeds": tuple(range(IMAGES)),
            "sample_sampler": "dpm++",
            "sample_steps": 50 if case.images else 1,
        }
        return LoraSpec(**(settings | case.of_ours))

    def _lay_out(self, directory: Path, spec: LoraSpec | SampleSpec) -> None:
        (directory / "inputs").mkdir(parents=True)
        (directory / "inputs" / "base").symlink_to(self.base)
        (directory / "inputs" / "photos").symlink_to(SUBJECT)
        (directory / "spec.json").write_text(json.dumps(asdict(spec)))


class Reports:
    """What progress.jsonl says so far."""

    def __init__(self, path: Path) -> None:
        self.saved_at: list[int] = []
        self.held_up_s: list[float] = []
        self._path = path
        self._read_to = 0
        self._step = 0
        self._phase = ""

    def newest(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                lines = file.read()
            whole = lines[: lines.rfind(b"\n") + 1]
            self._read_to += len(whole)
            for line in whole.splitlines():
                self._take(json.loads(line))
        return self._step

    def _take(self, report: dict[str, Any]) -> None:
        phase = report.get("phase", "")
        if (self._phase, phase) == ("saving", "training"):
            self.saved_at.append(report["step"])
            self.held_up_s.append(report["save_s"])
        if report.get("loss") is not None:
            self._step = report["step"]
        self._phase = phase


# ---------------------------------------------------------------------------------------------------------------- figures


def beside(peers: list[Path], *, steps: int, validated_steps: int, rounds: int) -> None:
    print(f"{machine()}, {rounds} rounds in turns, {steps} steps each")
    flops, sdxl = count_flops(HERE), count_flops(SDXL)
    print(f"the VAE's share of a step's FLOPs: {flops.share:.1%} here, {sdxl.share:.1%} in SDXL at 1024²")
    print(f"a step without it: {flops.unet / 1e9:.1f} GFLOP here, {sdxl.unet / 1e12:.2f} TFLOP in SDXL at 1024²\n")
    with TemporaryDirectory(prefix="gangline-benchmark-") as made:
        folder = Path(made)
        make_base(folder / "base")
        started_with = launcher(folder / "stand-in")
        sides: list[Peer | Ours] = [
            Ours(folder / "base", files_of(folder / "base")),
            *(Peer(peer.resolve(), folder / "base", started_with) for peer in peers),
        ]
        if rounds:
            show_steps(in_turns(sides, Case(steps=steps, save_every=max(2, steps // 4)), rounds, folder))
        if validated_steps:
            show_total(in_turns(sides, Case(steps=validated_steps, images=True), 1, folder), validated_steps)


def in_turns(sides: list[Peer | Ours], case: Case, rounds: int, folder: Path) -> dict[str, list[Ran]]:
    found: dict[str, list[Ran]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            found[side.name].append(alone(side, case, folder))
    return found


def alone(side: Peer | Ours, case: Case, folder: Path) -> Ran:
    """In a folder of its own, which goes."""
    with TemporaryDirectory(dir=folder) as place:
        return side.run(case, Path(place))


def show_steps(found: dict[str, list[Ran]]) -> None:
    print(f"{'':34} {'s/step':>8} {'slowest':>8} {'start s':>8} {'save s':>8} {'of 30 s':>8} {'memory':>9}")
    for name, runs in found.items():
        save_s = statistics.median(ran.save_s() for ran in runs)
        print(
            f"{name:34} {middle_step_s(runs):8.3f} {max(ran.step_s for ran in runs):8.3f} "
            f"{statistics.median(ran.to_first_step_s for ran in runs):8.1f} {save_s:8.3f} {save_s / SAVE_EVERY_S:8.2%} "
            f"{max(ran.memory_bytes for ran in runs) / 2**20:6.0f} MB"
        )
    ours, *others = found.items()
    for name, runs in others:
        rates = sorted(their.step_s / own.step_s for their, own in zip(runs, ours[1], strict=True))
        of_rounds = f"in rounds {rates[0]:.2f} to {rates[-1]:.2f}"
        print(f"step rate: {middle_step_s(runs) / middle_step_s(ours[1]):.2f} times that of {name}, {of_rounds}")
    print(flush=True)


def middle_step_s(runs: list[Ran]) -> float:
    return statistics.median(ran.step_s for ran in runs)


def show_total(found: dict[str, list[Ran]], steps: int) -> None:
    print(f"{steps} steps, {IMAGES} images every {IMAGES_EVERY} of them and at the end")
    print(f"{'':34} {'total s':>8} {'CPU s':>8} {'elsewhere':>10}   (CPU s of sample jobs on another node)")
    for name, (ran,) in found.items():
        print(f"{name:34} {ran.seconds:8.1f} {ran.cpu_seconds:8.1f} {ran.elsewhere_cpu_s:10.1f}")
    ours, *others = found.items()
    for name, (ran,) in others:
        print(f"total time: {ran.seconds / ours[1][0].seconds:.2f} times less than {name}")
    print(flush=True)


# ---------------------------------------------------------------------------------------------------------------- restart

LEASE_S = 10.0


def restart(rounds: int) -> None:
    """From the SIGKILL of the node at work to the next step on one that idles, and what the wait is made of."""
    print(f"{machine()}, a lease of {LEASE_S:g} s, {rounds} deaths; seconds since the death")
    print(f"{'claimed':>10} {'training':>10} {'first step':>10} {'beyond the lease':>18} {'standby':>10}")
    for _ in range(rounds):
        with TemporaryDirectory() as name, Box(Path(name), lease_s=LEASE_S, heartbeat_interval_s=0.5) as box:
            print(f"{death(box)}", flush=True)


def death(box: Box) -> str:
    for name in ("node-a", "node-b"):
        box.start_node(name)
    while len([node for node in box.client.nodes.list() if node.state == "ready"]) < 2:
        threading.Event().wait(0.1)
    threading.Event().wait(30)  # idle, as a node is that waits for work
    settings = {"prompt": PROMPT, "steps": 100_000, "resolution": 64, "rank": 4, "checkpoint_every_steps": 50}
    job = box.client.jobs.submit(upload_inputs(box.client, SUBJECT, str(BASE), [], settings)).summary.id
    while not (view := box.client.jobs.get(job)).summary.committed_step:
        assert view.summary.state != "failed", view.summary.because
        threading.Event().wait(0.1)
    at_work = str(view.summary.node_name)
    (idle,) = {"node-a", "node-b"} - {at_work}
    standby_bytes = resident_bytes(box.nodes[idle].process.pid)
    box.nodes[at_work].kill()
    killed_s = time.monotonic()
    runs = box.home / idle / "runs"
    waits = {
        "claimed": lambda: any(runs.iterdir()),
        "training": lambda: '"training"' in reports(runs),
        "first step": lambda: '"loss": ' in reports(runs).replace('"loss": null', ""),
    }
    found = {what: seconds_until(done, killed_s) for what, done in waits.items()}
    told = " ".join(f"{seconds:10.1f}" for seconds in found.values())
    return f"{told} {found['first step'] - LEASE_S:18.1f} {standby_bytes / 2**20:7.0f} MB"


def reports(runs: Path) -> str:
    return "".join(path.read_text() for path in runs.glob("*/progress.jsonl"))


def seconds_until(done: Callable[[], bool], since_s: float) -> float:
    while not done():
        threading.Event().wait(0.01)
    return time.monotonic() - since_s


def resident_bytes(agent: int) -> int:
    """Of the processes that an agent has started."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    kilobytes = [re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{child}/status").read_text()) for child in children]
    return sum(1024 * int(found[1]) for found in kilobytes if found)


def machine() -> str:
    if ON_CARD:
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    cpu = next(
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    )
    return f"{cpu}, {os.environ.get('OMP_NUM_THREADS', '1')} thread, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["beside", "restart", "kernels"], default="beside")
    parser.add_argument("--peer", type=Path, action="append", default=[], help="the script to run beside ours")
    parser.add_argument("--steps", type=int, default=60, help="of a run whose steps are timed")
    parser.add_argument("--validated-steps", type=int, default=200, help="of a run with images; 0: none")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the runs whose steps are timed, 0: none; those with images run once"
    )
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.part == "kernels":
        kernels()
        return
    if given.part == "restart":
        restart(given.rounds)
        return
    beside(given.peer, steps=given.steps, validated_steps=given.validated_steps, rounds=given.rounds)


if __name__ == "__main__":
    main()
