"""Small data sets of drawn pictures, and runs over them."""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw

from gangline.core.parsing import to_json
from gangline.core.runs.contract import EXIT_DONE, MANIFEST, REPORT, checkpoint_name
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.phases import DataRef, TrainingPhase
from gangline.core.specs.scratch import ScratchSpec
from gangline.data.dataset import DataSet
from gangline.data.making.conversion import Conversion
from gangline.data.making.convert import convert
from gangline.data.making.engine import Processes
from gangline.data.making.fetch import Fetching
from gangline.data.place import DataPlace
from gangline.data.sources import Hints, find_source
from gangline.train.encoding.encode import encode_data_set
from gangline.train.encoding.encoder import Encoding
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.scratch.launch import free_port
from gangline.train.scratch.trainer import run_scratch_trainer
from tests.conftest import file_at

COLOURS = ("red", "green", "blue", "orange", "purple", "black")
SHAPES = ("disc", "box")
HELD_OUT = "sha256 < '4'"


def draw_pictures(folder: Path, count: int, *, side: int = 40) -> Path:
    """Discs and boxes of some colours and places, each with a caption that says so."""
    folder.mkdir(parents=True)
    for number in range(count):
        colour, shape = COLOURS[number % len(COLOURS)], SHAPES[number // len(COLOURS) % len(SHAPES)]
        image = Image.new("RGB", (side + number % 5, side), "white")
        left, top = 4 + number % 7, 3 + number % 11
        pen = ImageDraw.Draw(image)
        (pen.ellipse if shape == "disc" else pen.rectangle)((left, top, left + 22, top + 20), fill=colour)
        image.save(folder / f"{number:03d}.png")
        (folder / f"{number:03d}.txt").write_text(f"a {colour} {shape}")
    return folder


def data_set(folder: Path, *, count: int = 48, name: str = "shapes", target: DataPlace | None = None) -> DataSet:
    source, entries = find_source(DataPlace(str(draw_pictures(folder / f"{name}-drawn", count))), Hints())
    target = target or DataPlace(str(folder / f"{name}.lance"))
    return convert(Conversion(source=source, target=target), entries, Processes(1), Fetching())[0]


def with_latents(data: DataSet, base: Path, *resolutions: int, dtype: str = "float32") -> DataSet:
    encoding = Encoding(
        target=data.place, version=data.version, base=base, vae=None, resolutions=resolutions, dtype=dtype
    )
    return encode_data_set(data, encoding, Processes(1))


def with_texts(data: DataSet, base: Path) -> DataSet:
    encoding = Encoding(target=data.place, version=data.version, base=base, vae=None, resolutions=(), texts=True)
    return encode_data_set(data, encoding, Processes(1))


def reference(data: DataSet, **settings: Any) -> DataRef:
    return DataRef(place=data.place.uri, id=data.info.id, version=data.version, **settings)


def scratch_spec(base: Path, data: DataSet, **settings: Any) -> ScratchSpec:
    """Ten steps of four samples, 32 pixels."""
    files = tuple(file_at(path, base) for path in sorted(base.rglob("*")) if path.is_file())
    values: dict[str, Any] = {
        "base": FilesBase(files=files),
        "data": (reference(data),),
        "phases": (TrainingPhase(steps=10, resolution=32, batch_size=4),),
        "new": ("unet",),
        "learning_rate": 1e-3,
        "ema_decay": 0.9,
        "caption_drop": 0.1,
        "held_out": HELD_OUT,
        "checkpoint_every_steps": 3,
    }
    return ScratchSpec(**(values | settings))


def lay_out(folder: Path, spec: ScratchSpec, base: Path) -> RunDirectory:
    (folder / "inputs").mkdir(parents=True)
    (folder / "inputs" / "base").symlink_to(base)
    (folder / "spec.json").write_text(json.dumps(to_json(spec)))
    return RunDirectory(folder)


def finish(run: RunDirectory) -> RunDirectory:
    assert run_scratch_trainer(RunDirectory(run.path), Orders()) == EXIT_DONE
    return run


def report_of(run: RunDirectory) -> dict[str, Any]:
    return json.loads((run.output / REPORT).read_text())


def lines(run: RunDirectory) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]


CARDS = torch.cuda.device_count()
STARTS = multiprocessing.get_context("spawn" if CARDS else "forkserver")  # CUDA does not outlive a fork
STARTS.set_forkserver_preload(
    ["gangline.train.scratch.initial_weights", "torch.distributed.fsdp"]
)  # all that takes long, but for Lance


def needs_a_card_each(ranks: int) -> None:
    """Skips a test on a machine that has cards, but fewer than that; without any, ranks share its processor."""
    if 0 < CARDS < ranks:
        pytest.skip(f"needs {ranks} cards, or none")


@dataclass(frozen=True)
class Ranks:
    """Processes that share a run, as torchrun or gangline.train.scratch.launch would start them, by one that has the libraries loaded."""

    run: RunDirectory
    processes: list[Any]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert all(process.is_alive() for process in self.processes), self.log
            Event().wait(0.005)

    def ended(self) -> list[int | None]:
        for process in self.processes:
            process.join(240)
        return [process.exitcode for process in self.processes]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        assert set(self.ended()) == {-signal.SIGKILL}

    @property
    def log(self) -> str:
        return (self.run.path / "log.txt").read_text()[-3000:]


def start(run: RunDirectory, *, ranks: int = 1) -> Ranks:
    needs_a_card_each(ranks)
    who = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    environments = [{name: str(value) for name, value in who.items()} | {"RANK": str(rank)} for rank in range(ranks)]
    processes = [STARTS.Process(target=_rank, args=(str(run.path), environment)) for environment in environments]
    for process in processes:
        process.start()
    return Ranks(run, processes)


def _rank(directory: str, environment: dict[str, str]) -> None:
    log = os.open(f"{directory}/log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(environment)
    sys.argv = ["trainer", directory]
    from gangline.train.scratch.__main__ import main

    sys.addaudithook(_refuse_pickles)
    main()


def _refuse_pickles(event: str, arguments: tuple[object, ...]) -> None:
    if event == "pickle.find_class":
        raise AssertionError(f"it unpickles {arguments}")


def run_at(run: RunDirectory, *, ranks: int) -> RunDirectory:
    started = start(run, ranks=ranks)
    assert set(started.ended()) == {EXIT_DONE}, started.log
    return run


def kill_after_save(run: RunDirectory, step: int, *, ranks: int = 1) -> None:
    """SIGKILL to every process of it, once the checkpoint of `step` is whole."""
    started = start(run, ranks=ranks)
    started.wait_for((run.checkpoints / checkpoint_name(step) / MANIFEST).exists)
    started.kill()
    assert not run.output.exists(), "it was too late"
