"""A compiled run ends with the same bits wherever it was interrupted, in whichever order a process sees the shapes of its photos."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.resnet import ResnetBlock2D
from PIL import Image
from torch._dynamo.exc import FailOnRecompileLimitHit

from gangline.core.runs.contract import EXIT_DONE
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.model.compiled import compile_blocks, uncompiled
from gangline.train.run.contract import Orders, RunDirectory
from tests.conftest import SUBJECT, file_at
from tests.train.bases import save_smallest
from tests.train.conftest import finish, interrupt, lay_out, report_of, small_spec

SHAPES = {"high": (40, 64), "wide": (64, 40), "square": (64, 64)}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for path, (name, size) in zip(sorted(SUBJECT.glob("*.png")), SHAPES.items(), strict=False):
        with Image.open(path) as image:
            image.convert("RGB").resize(size).save(folder / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_smallest(tmp_path_factory.mktemp("base") / "sd15")


def spec_of(photos: Path, *names: str, **settings: Any) -> LoraSpec:
    files = tuple(file_at(photos / f"{name}.png", photos) for name in names or SHAPES)
    values = {"photos": files, "batch_size": 1, "target_modules": ("to_k",), "compile": True, "aspect_buckets": True}
    return small_spec(**(values | settings))


@pytest.fixture
def another_process() -> Callable[[], None]:
    """What it begins with: nothing that torch.compile remembers of this one, but what it keeps on the disk."""
    return torch._dynamo.reset


@pytest.mark.tenths
def test_a_compiled_run_that_sees_its_shapes_in_another_order_when_it_goes_on_ends_with_the_same_bits(
    tmp_path: Path, photos: Path, base: Path, another_process: Callable[[], None]
) -> None:
    """Of two photos each is seen once before any is seen again: after one step the other shape comes first."""
    spec = spec_of(photos, "high", "wide", steps=4)
    another_process()
    whole = finish(lay_out(tmp_path / "whole", spec, photos=photos, base=base))
    another_process()
    begun = interrupt(tmp_path / "resumed", spec, after=1, photos=photos, base=base)
    another_process()
    resumed = finish(begun)
    assert report_of(whole)["exact"] and report_of(resumed)["exact"]
    assert report_of(resumed)["weights_digest"] == report_of(whole)["weights_digest"]


def test_a_shape_too_many_is_an_error_and_never_left_uncompiled_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody gets to see: there is room for more than a run can have."""
    block = ResnetBlock2D(in_channels=32, temb_channels=None)
    compile_blocks(block, repeatable=True)
    assert torch._dynamo.config.recompile_limit >= 4096
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 1)
    torch._dynamo.reset()
    block(torch.zeros(1, 32, 4, 4), None)
    with pytest.raises(FailOnRecompileLimitHit):
        block(torch.zeros(1, 32, 4, 8), None)
    with uncompiled():
        block(torch.zeros(1, 32, 4, 12), None)


@pytest.mark.nightly
def test_pictures_class_images_and_measurements_between_compiled_steps_compile_nothing_and_change_no_bit(
    tmp_path: Path, photos: Path, base: Path, another_process: Callable[[], None]
) -> None:
    settings = {"steps": 7, "class_prompt": "cat face", "class_images": 2, "batch_size": 2, "microbatch": 1}
    held_out = (file_at(photos / "square.png", photos),)
    spec = spec_of(photos, "high", "wide", held_out=held_out, sample_steps=2, **settings)
    another_process()
    whole = finish(lay_out(tmp_path / "whole", spec, photos=photos, base=base))
    another_process()
    begun = interrupt(tmp_path / "resumed", spec, after=3, photos=photos, base=base)
    another_process()
    assert run_lora_trainer(RunDirectory(begun.path), Orders(render=True)) == EXIT_DONE
    assert report_of(begun)["exact"] and report_of(begun)["weights_digest"] == report_of(whole)["weights_digest"]
    assert report_of(begun)["held_out"] == report_of(whole)["held_out"]
