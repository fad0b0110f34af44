"""A picture that does not fit into memory is drawn in less of it, or skipped: training never ends for it, and no bit changes."""

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import UNet2DConditionModel
from diffusers.models.autoencoders.vae import Decoder
from PIL import Image

from gangline.core.runs.contract import EXIT_DONE, PICTURES, Phase
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import previews_of
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.model.base import LoadedBase, load_base
from gangline.train.model.denoise import drawing_of, sample_latents
from gangline.train.model.sample import decode_latents
from gangline.train.model.text import embed_all, tokenize
from gangline.train.run.contract import Orders, RunDirectory
from tests.conftest import BASE, SUBJECT, file_at
from tests.train.conftest import finish, lay_out, report_of, small_spec

Refuses = Callable[[torch.nn.Module, torch.Tensor], bool]
NO_ROOM = torch.OutOfMemoryError("CUDA out of memory")


@contextmanager
def failing(kind: type[torch.nn.Module], refuses: Refuses, error: Exception = NO_ROOM) -> Iterator[list[torch.Size]]:
    """As on a card that has no memory for some passes of `kind`. The shapes that it was asked for."""
    asked: list[torch.Size] = []

    def fail(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, kind):
            asked.append(inputs[0].shape)
            if refuses(module, inputs[0]):
                raise error

    hook = torch.nn.modules.module.register_module_forward_pre_hook(fail)
    try:
        yield asked
    finally:
        hook.remove()


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    return load_base(BASE, torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def spec() -> LoraSpec:
    return small_spec(
        steps=3, sample_seeds=(1, 2), sample_steps=1, checkpoint_every_steps=None, target_modules=("to_k",)
    )


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory, spec: LoraSpec) -> RunDirectory:
    return finish(lay_out(tmp_path_factory.mktemp("alone") / "run", spec))


def rendered(folder: Path, spec: LoraSpec) -> RunDirectory:
    """A run that is told to render after its first step."""
    run = lay_out(folder, spec)
    assert run_lora_trainer(run, Orders(render=True)) == EXIT_DONE
    return run


def pixels(image: Image.Image) -> np.ndarray[Any, Any]:
    return np.asarray(image, dtype=float)


@pytest.mark.parametrize(("of", "side"), [(16, 8), (16, 4), (20, 12), (20, 8)])
def test_a_picture_that_does_not_fit_as_a_whole_is_decoded_in_tiles(base: LoadedBase, of: int, side: int) -> None:
    latents = torch.randn(1, 4, of, of, generator=torch.Generator().manual_seed(0))
    whole = decode_latents(base, latents)
    with failing(Decoder, lambda _, seen: max(seen.shape[2:]) > side) as asked:
        tiled = decode_latents(base, latents)
    assert max(asked[-1][2:]) <= side
    assert tiled.size == whole.size
    assert np.abs(pixels(tiled) - pixels(whole)).mean() < 0.5 * np.abs(pixels(whole) - pixels(whole).mean()).mean()
    assert pixels(decode_latents(base, latents)).tobytes() == pixels(whole).tobytes(), "what fits is decoded as before"


@pytest.mark.parametrize(
    ("kind", "refuses"),
    {
        "the VAE": (Decoder, lambda module, seen: True),
        "the U-Net": (UNet2DConditionModel, lambda module, seen: not module.training),
    }.values(),
    ids=["the VAE", "the U-Net"],
)
def test_without_memory_for_pictures_training_goes_on_to_the_same_bits_and_says_so(
    tmp_path: Path,
    spec: LoraSpec,
    left_alone: RunDirectory,
    capfd: pytest.CaptureFixture[str],
    kind: Any,
    refuses: Refuses,
) -> None:
    with failing(kind, refuses) as asked:
        run = rendered(tmp_path / "run", spec)
    assert asked
    assert report_of(run)["weights_digest"] == report_of(left_alone)["weights_digest"]
    assert "pictures of step 1 are skipped: memory ran out" in capfd.readouterr().err
    assert not list(run.samples.rglob("*.*")), "nobody is told of pictures that are not there"
    assert not [line for line in (run.path / "progress.jsonl").read_text().splitlines() if "failure" in line]


def test_pictures_that_were_made_before_memory_ran_out_are_kept_and_the_others_named(
    tmp_path: Path, spec: LoraSpec
) -> None:
    made: list[int] = []

    def second(module: torch.nn.Module, seen: torch.Tensor) -> bool:
        made.append(1)
        return len(made) > 1

    with failing(Decoder, second):
        run = rendered(tmp_path / "run", spec)
    folder = run.samples / "step-000001"
    told = json.loads((folder / PICTURES).read_text())
    assert [one["path"] for one in told["pictures"]] == ["prompt-00-seed-1.png"]
    assert told["left_out"] == ["prompt-00-seed-2.png"]
    assert sorted(path.name for path in folder.iterdir()) == ["prompt-00-seed-1.png", PICTURES]


def test_a_picture_that_fails_for_another_reason_ends_the_run(tmp_path: Path, spec: LoraSpec) -> None:
    broken = RuntimeError("CUDA error: an illegal memory access was encountered")
    with (
        failing(Decoder, lambda module, seen: True, broken),
        pytest.raises(RuntimeError, match="illegal memory access"),
    ):
        rendered(tmp_path / "run", spec)


@dataclass
class Counting(RunDirectory):
    """Counts the decoders that are in memory whenever training goes on."""

    decoders: list[int] = field(default_factory=list)

    def report_phase(self, phase: Phase) -> None:
        super().report_phase(phase)
        if phase == "training":
            gc.collect()
            self.decoders.append(sum(isinstance(one, Decoder) for one in gc.get_objects()))


def test_when_training_goes_on_after_pictures_the_vae_has_left_memory_again(tmp_path: Path, spec: LoraSpec) -> None:
    run = Counting(lay_out(tmp_path / "run", spec).path)
    assert run_lora_trainer(run, Orders(render=True)) == EXIT_DONE
    before, after = run.decoders
    assert after == before


def test_class_images_are_drawn_without_guidance_beside_them_where_both_do_not_fit(base: LoadedBase) -> None:
    spec = small_spec(sample_steps=2)
    texts = tokenize(base, [spec.prompt, ""])
    spoken = embed_all(base, texts)
    both = sample_latents(
        base, drawing_of(base, spec, previews_of(spec)[0]), spoken[[0]], spoken[[1]], 1, "class image"
    )
    with failing(UNet2DConditionModel, lambda _, seen: len(seen) > 1) as asked:
        apart = sample_latents(
            base, drawing_of(base, spec, previews_of(spec)[0]), spoken[[0]], spoken[[1]], 1, "class image"
        )
    assert torch.allclose(both, apart, atol=1e-4)
    assert [shape[0] for shape in asked] == [2, 1, 1, 1, 1], "it is not tried again with each step"


def test_held_out_photos_that_cannot_be_measured_do_not_cost_the_result(
    tmp_path: Path, spec: LoraSpec, left_alone: RunDirectory, capfd: pytest.CaptureFixture[str]
) -> None:
    held = replace(spec, held_out=(file_at(SUBJECT / "crying-cat.png", SUBJECT),))
    with failing(UNet2DConditionModel, lambda module, seen: not module.training):
        run = finish(lay_out(tmp_path / "run", held))
    assert report_of(run)["held_out"] == []
    assert report_of(run)["weights_digest"] == report_of(left_alone)["weights_digest"]
    assert "the loss of held-out photos is skipped: memory ran out" in capfd.readouterr().err
