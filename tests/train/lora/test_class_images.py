"""Pictures of the class, which is to be kept: the base's own, drawn with settings of their own, and photos that a user has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from gangline.core.models.families import SDXL
from gangline.core.models.lora_metadata import Facts, kohya_metadata
from gangline.core.runs import prepared as keys
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.inputs import TrainingInputs, gather
from gangline.train.lora.trainer import base_of
from gangline.train.model.denoise import class_drawing_of
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory
from tests.conftest import SUBJECT, file_at
from tests.train.conftest import lay_out, small_spec

CPU = torch.device("cpu")


def gathered(run: RunDirectory, spec: LoraSpec) -> TrainingInputs:
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


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """One of them has a caption, and one counts twice."""
    folder = tmp_path / "photos"
    (folder / "2_a round face").mkdir(parents=True)
    for path, name in zip(sorted(SUBJECT.glob("*.png")), ("a.png", "b.png", "2_a round face/c.png"), strict=False):
        with Image.open(path) as image:
            image.convert("RGB").save(folder / name)
    (folder / "a.txt").write_text("a sad face")
    return folder


def spec_of(photos: Path, **settings: Any) -> LoraSpec:
    of_class = tuple(file_at(path, photos) for path in sorted(photos.rglob("*.png")))
    captions = (file_at(photos / "a.txt", photos),)
    values = {"class_prompt": "cat face", "class_photos": of_class, "class_captions": captions, "photos": of_class[:1]}
    return small_spec(**(values | settings))


def test_photos_of_the_class_are_learned_with_their_own_captions_and_the_base_draws_the_rest(
    tmp_path: Path, photos: Path
) -> None:
    spec = spec_of(photos, class_images=5)
    by_base, own = gathered(lay_out(tmp_path / "run", spec, photos=photos), spec).class_images
    assert (len(by_base.latents), len(own.latents)) == (2, 3)
    assert own.texts == (("a round face",), ("a sad face",), ("cat face",)) and own.examples == (0, 0, 1, 2)
    assert set(by_base.texts) == {("cat face",)}
    assert own.latents.mean.isfinite().all() and not own.latents.deviation.eq(0).all()
    facts = Facts(name="x", family=SDXL, prediction_type="epsilon", precision="fp32", microbatch=1)
    assert kohya_metadata(spec, facts, conv=False)["ss_num_reg_images"] == "5"


def test_where_there_are_enough_photos_of_the_class_the_base_draws_none(tmp_path: Path, photos: Path) -> None:
    spec = spec_of(photos, class_images=3)
    run = lay_out(tmp_path / "run", spec, photos=photos)
    (own,) = gathered(run, spec).class_images
    assert len(own.latents) == 3
    assert {keys.prepared_kind(path.name) for path in (run.path / "prepared").iterdir()} == {"latents", "embeddings"}
    assert {keys.prepared_kind(subject) for subject in keys.subjects(spec)} == {"latents", "embeddings"}


def test_they_are_cut_as_the_photos_are(tmp_path: Path, photos: Path) -> None:
    spec = spec_of(photos, class_images=3, crop="random", crops=3, flip=True)
    (own,) = gathered(lay_out(tmp_path / "run", spec, photos=photos), spec).class_images
    assert (own.views, len(own.latents)) == (6, 18)


def test_what_the_base_draws_beside_photos_is_what_it_draws_alone(photos: Path) -> None:
    spec = spec_of(photos, class_images=13)
    alone = replace(spec, class_photos=(), class_captions=(), class_images=10)
    assert keys.class_images_key(spec) == keys.class_images_key(alone)
    for key in (keys.latents_key, keys.embeddings_key):
        assert key(spec, {}) != key(alone, {})
