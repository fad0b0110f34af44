"""Pictures of the class, which is to be kept: the base's own, drawn with settings of their own, and photos that a user has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gangline.core.runs import prepared as keys
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.material import Material, gather
from gangline.train.lora.trainer import base_of
from gangline.train.model.denoise import class_drawing_of
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory
from tests.train.conftest import lay_out, small_spec

CPU = torch.device("cpu")


def gathered(run: RunDirectory, spec: LoraSpec) -> Material:
    numerics.choose_kernels(repeatable=True)
    base = base_of(run, spec, CPU, torch.float32)
    found = gather(run, base, spec, numerics.fingerprint(CPU, torch.float32, spec), Orders())
    assert found is not None
    return found


def drawn(folder: Path, **settings: Any) -> torch.Tensor:
    spec = small_spec(**({"class_prompt": "cat face", "class_images": 2, "class_sample_steps": 30} | settings))
    (bucket,) = gathered(lay_out(folder, spec), spec).class_images
    return bucket.latents.mean


def test_class_images_do_not_depend_on_how_pictures_to_look_at_are_made(tmp_path: Path) -> None:
    as_they_are = drawn(tmp_path / "one", class_sample_steps=3)
    quick = {"sample_steps": 1, "sample_sampler": "euler", "guidance_scale": 1.0, "guidance_rescale": 1.0}
    assert torch.equal(drawn(tmp_path / "two", class_sample_steps=3, **quick), as_they_are)
    for number, changed in enumerate(
        ({"class_sample_steps": 4}, {"class_sampler": "euler"}, {"class_guidance_scale": 2.0})
    ):
        other = drawn(tmp_path / f"{number}", **({"class_sample_steps": 3} | changed))
        assert not torch.equal(other, as_they_are), changed


def test_they_are_drawn_in_thirty_steps_though_pictures_are_made_in_two(tmp_path: Path) -> None:
    assert torch.equal(drawn(tmp_path / "one", sample_steps=2), drawn(tmp_path / "two", class_sample_steps=30))


def test_what_was_drawn_before_they_had_settings_of_their_own_is_found_still() -> None:
    """Jobs whose pictures are made as by default; those of others were drawn as the pictures, and lie under other keys."""
    spec = small_spec(class_prompt="cat face", sample_steps=30, class_sample_steps=30)
    quick = replace(spec, sample_steps=2, sample_sampler="euler", guidance_scale=1.0)
    as_quick = replace(spec, class_sample_steps=2, class_sampler="euler", class_guidance_scale=1.0)
    key = keys.class_images_key
    assert key(quick) == key(spec) != key(as_quick)


@pytest.mark.parametrize("zero", [False, True])
def test_class_images_of_a_base_with_zero_terminal_snr_are_not_overexposed(tmp_path: Path, zero: bool) -> None:
    spec = small_spec(class_prompt="cat face", zero_terminal_snr=zero, prediction_type="v_prediction")
    assert (keys.class_images_key(replace(spec, zero_terminal_snr=False)) != keys.class_images_key(spec)) == zero
    run = lay_out(tmp_path / "run", spec)
    assert class_drawing_of(base_of(run, spec, CPU, torch.float32), spec).guidance_rescale == (0.7 if zero else 0)
