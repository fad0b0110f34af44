"""A run whose photos are decoded by processes trains on the same bits, and leaves no process behind."""

import os
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from PIL import Image

from gangline.core.runs import prepared as keys
from gangline.core.specs.lora import LoraSpec
from gangline.data.images import ahead
from gangline.posix import descendants
from gangline.train.lora.inputs import TrainingInputs, gather
from gangline.train.lora.trainer import base_of
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory
from tests.conftest import file_at
from tests.processes import words_of
from tests.train.conftest import lay_out, small_spec

MANY = keys.VIEWS_IN_SHARD + 8
CPU = torch.device("cpu")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Some on their side, some transparent."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(MANY):
        pixels = np.random.default_rng(number).integers(0, 255, (80 + number, 100, 3 + number % 2), dtype=np.uint8)
        exif = Image.Exif()
        exif[0x112] = 1 + number % 8
        Image.fromarray(pixels).save(folder / f"{number:03d}.png", exif=exif)
    return folder


def spec_of(photos: Path) -> LoraSpec:
    files = tuple(file_at(path, photos) for path in sorted(photos.iterdir()))
    return small_spec(photos=files, aspect_buckets=True, mask="alpha", flip=True)


def gathered(run: RunDirectory, spec: LoraSpec, orders: Orders) -> TrainingInputs | None:
    numerics.choose_kernels(repeatable=True)
    base = base_of(run, spec, CPU, torch.float32)
    return gather(run, base, spec, numerics.fingerprint(CPU, torch.float32, spec), orders)


def decoders() -> list[int]:
    return [pid for pid in descendants(os.getpid()) if words_of(pid).endswith("images.decoder\0")]


def test_latents_are_the_same_to_the_bit_whoever_decodes(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(photos)
    assert ahead.processes_for(MANY, 2) == 2
    by_processes = gathered(lay_out(tmp_path / "one", spec, photos=photos), spec, Orders())
    monkeypatch.setattr(ahead, "PROCESSES_MAX", 0)
    alone = gathered(lay_out(tmp_path / "two", spec, photos=photos), spec, Orders())
    assert by_processes and alone and by_processes.digest == alone.digest


class StopsAfterOneShard:
    """Orders to stop, once something was kept; it sees who is decoding then."""

    save = render = False

    def __init__(self, run: RunDirectory) -> None:
        self.kept = run.path / "prepared"
        self.decoding: list[int] = []

    @property
    def stop(self) -> bool:
        self.decoding = decoders()
        return self.kept.exists()


def test_a_run_that_is_stopped_while_it_prepares_ends_its_decoders(tmp_path: Path, photos: Path) -> None:
    spec = spec_of(photos)
    run = lay_out(tmp_path / "run", spec, photos=photos)
    orders = StopsAfterOneShard(run)
    assert gathered(run, spec, cast(Orders, orders)) is None
    assert orders.decoding and not decoders()


def test_a_run_whose_photos_are_prepared_starts_none(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(photos)
    run = lay_out(tmp_path / "run", spec, photos=photos)
    whole = gathered(run, spec, Orders())
    monkeypatch.setattr(ahead, "DECODER", ("/nonexistent",))
    again = gathered(run, spec, Orders())
    assert whole and again and whole.digest == again.digest
