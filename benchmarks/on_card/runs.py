"""Trainers: as processes in a directory that goes afterwards, or in this process, step by step."""

import gc
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.on_card.results import Figures
from benchmarks.on_card.scale import Made, Scale

from gangline.posix import die_with_parent

LORA = "gangline.train.lora"


@contextmanager
def lora_run(scale: Scale, **settings: Any) -> Iterator[Path]:
    """A directory in which a LoRA's trainer can be started, with five of the subject's photos."""
    from tests.inputs import SUBJECT, file_at

    from gangline.core.specs.lora import LoraSpec

    values: dict[str, Any] = {
        "photos": tuple(file_at(photo, SUBJECT) for photo in sorted(SUBJECT.glob("*.png"))[:5]),
        "prompt": "sks cat face, fluent emoji",
        "resolution": scale.side,
        "rank": 16,
        "alpha": 16,
        "steps": 100,
        "batch_size": 1,
        "learning_rate": 1e-4,
        "precision": scale.precision,
        "checkpoint_every_s": 3600.0,
        "sample_every_steps": None,
        "sample_result": False,
    }
    with laid_out(scale, LoraSpec, scale.sdxl, values | settings) as directory:
        (directory / "inputs" / "photos").symlink_to(SUBJECT)
        yield directory


@contextmanager
def scratch_run(scale: Scale, **settings: Any) -> Iterator[Path]:
    """A directory with the spec of a new U-Net. There is no data set, as nothing reads one."""
    from gangline.core.specs.phases import DataRef
    from gangline.core.specs.scratch import ScratchSpec

    values: dict[str, Any] = {
        "data": (DataRef(place="none", id="none", version=1),),
        "new": ("unet",),
        "learning_rate": 1e-4,
        "ema_decay": 0.9999,
        "text_embeddings": "required",
        "precision": scale.precision,
    }
    with laid_out(scale, ScratchSpec, scale.sd2, values | settings) as directory:
        yield directory


@contextmanager
def laid_out(scale: Scale, kind: Any, base: Made, settings: dict[str, Any]) -> Iterator[Path]:
    """It goes afterwards: results of whole models would fill the disk."""
    from gangline.core.parsing import to_json
    from gangline.core.specs.fields import FilesBase

    directory = scale.folder / "runs" / str(time.time_ns())
    (directory / "inputs").mkdir(parents=True)
    try:
        (directory / "inputs" / "base").symlink_to(base.folder)
        (directory / "spec.json").write_text(json.dumps(to_json(kind(base=FilesBase(files=base.files), **settings))))
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def start(module: str, directory: Path) -> "subprocess.Popen[bytes]":
    with (directory / "log.txt").open("ab") as log:
        command = [sys.executable, "-m", module, str(directory)]
        return subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)  # noqa: PLW1509 - one call into libc


def finish(module: str, directory: Path) -> None:
    """Run to the end. Raises what its log says last where it fails."""
    if code := start(module, directory).wait():
        print(log := (directory / "log.txt").read_text(errors="replace")[-3000:])
        raise RuntimeError(f"{module} ended with {code}: {(log.strip().splitlines() or [''])[-1]}")


class Stepped:
    """A LoRA in training as its trainer has it, whose steps are taken here one after another."""

    def __init__(self, run: Path) -> None:
        from tests.train.learners import learner_of, take_step

        from gangline.train.run.contract import RunDirectory

        self.lora, self._batches = learner_of(RunDirectory(run))
        self._take_step = take_step
        self._step = 0

    def seconds_a_step(self, count: int) -> float:
        return seconds_each(self._take, count)

    def _take(self) -> None:
        self._step += 1
        self._take_step(self.lora, self._batches, self._step)


@contextmanager
def stepped(scale: Scale, **settings: Any) -> Iterator[Stepped]:
    counted_from_nothing()
    with lora_run(scale, **settings) as directory:
        yield Stepped(directory)


def counted_from_nothing() -> None:
    """What was on the card before is not counted as memory of what comes."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def memory() -> Figures:
    """The most that was taken of the card's since it was last counted from nothing, also what graphs hold."""
    import torch

    return {"GB": torch.cuda.max_memory_reserved() / 1e9} if torch.cuda.is_available() else {}


def seconds_each(work: Callable[[], object], count: int) -> float:
    """On average, until the card has finished."""
    import torch

    started_s = time.perf_counter()
    for _ in range(count):
        work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - started_s) / count


def middle_seconds(work: Callable[[], object], times: int = 20) -> float:
    """The middle one of as many, by the card's own clock where there is one, after one that is not counted."""
    import torch

    work()
    if not torch.cuda.is_available():
        return statistics.median(seconds_each(work, 1) for _ in range(times))
    taken = []
    for _ in range(times):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        work()
        after.record()
        torch.cuda.synchronize()
        taken.append(before.elapsed_time(after) / 1000)
    return statistics.median(taken)
