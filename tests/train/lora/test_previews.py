"""Previews with settings of their own: each is drawn as its settings say, by whichever worker, and training learns nothing of them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import UNet2DConditionModel
from huggingface_hub import ModelCard
from PIL import Image

from gangline.core.errors import BadInput
from gangline.core.runs.contract import EXIT_DONE, PICTURES, PREPARED
from gangline.core.runs.prepared import SHOWN, embeddings_key
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import previews_of, texts_to_show
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.data.images.grid import GAP, LABEL, MARGIN, STRIP, TILE
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.model.base import LoadedBase, load_base
from gangline.train.model.sample import render
from gangline.train.model.text import embed_all, tokenize
from gangline.train.run import chance, numerics
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.sample_job import render_job
from tests.conftest import BASE
from tests.train.bases import pipeline_of
from tests.train.conftest import finish, lay_out, report_of, small_spec
from tests.train.lora.test_pictures_without_memory import failing
from tests.train.lora.test_samples import a_job, pictures

CPU = torch.device("cpu")
LONG = ", ".join(["blurry", "bad anatomy", "low quality"] * 30)
"""More than one piece of 75 tokens."""
WIDE = SamplePrompt(
    prompt="sks cat face at sea",
    negative_prompt="blurry, dark",
    width=96,
    height=64,
    seeds=(42,),
    steps=4,
    guidance_scale=7.5,
    sampler="euler",
)
HIGH = SamplePrompt(prompt="sks cat face", height=128, seeds=(7, 9), sampler="dpm++")
OTHER: dict[str, Any] = {
    "prompt": "sks dog",
    "negative_prompt": "",
    "width": 64,
    "height": 96,
    "steps": 2,
    "guidance_scale": 1.0,
    "sampler": "ddim",
}
PLAIN = "sks cat face, fluent emoji"
PROMPTS = (PLAIN, WIDE, HIGH)
NAMES = [f"prompt-{number:02d}-seed-{seed}.png" for number, seed in ((0, 1), (1, 42), (2, 7), (2, 9))]
SIZES = [(64, 64), (96, 64), (64, 128), (64, 128)]


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    return load_base(BASE, CPU, torch.float32)


def with_pictures(folder: Path, spec: LoraSpec) -> RunDirectory:
    """A run that saves and renders after its first step."""
    run = lay_out(folder, spec)
    assert run_lora_trainer(run, Orders(save=True, render=True)) == EXIT_DONE
    return run


def rendered_elsewhere(folder: Path, spec: LoraSpec, run: RunDirectory) -> RunDirectory:
    job = a_job(folder, spec, run.checkpoints / "000001", 1)
    assert render_job(job, Orders()) == EXIT_DONE
    return job


@pytest.mark.parametrize("negative", ["", "blurry, dark"])
@pytest.mark.parametrize("size", [(96, 64), (64, 128)], ids=str)
@pytest.mark.parametrize("sampler", ["ddim", "euler_a"])
def test_a_picture_is_that_of_the_librarys_own_pipeline(
    base: LoadedBase, sampler: Any, size: tuple[int, int], negative: str
) -> None:
    """Also what SDXL is told about its size, and the negative prompt that it leads away from."""
    width, height = size
    own = replace(WIDE, width=width, height=height, negative_prompt=negative, sampler=sampler)
    spec = small_spec(sample_prompts=(own,))
    texts = tokenize(base, texts_to_show(spec))
    ours = render(base, spec, texts, embed_all(base, texts), previews_of(spec)[0], 3)
    shape = (base.unet.config.in_channels, height // base.latent_factor, width // base.latent_factor)
    theirs = pipeline_of(base, sampler)(
        own.prompt,
        negative_prompt=negative or None,
        width=width,
        height=height,
        num_inference_steps=4,
        guidance_scale=7.5,
        latents=chance.normal(3, "sample", 0, range(1), shape),
        generator=chance.generator(3, "sample steps"),
    ).images[0]
    assert ours.size == theirs.size == size
    assert np.abs(np.asarray(ours, dtype=int) - np.asarray(theirs, dtype=int)).max() <= 1


@pytest.mark.parametrize("setting", OTHER)
def test_each_setting_of_a_prompt_changes_its_picture(base: LoadedBase, setting: str) -> None:
    spec = small_spec(sample_prompts=(WIDE, replace(WIDE, **{setting: OTHER[setting]})))
    texts = tokenize(base, texts_to_show(spec))
    spoken = embed_all(base, texts)
    one, other = (render(base, spec, texts, spoken, preview, 42) for preview in previews_of(spec))
    assert one.tobytes() != other.tobytes()


@pytest.fixture(scope="module")
def spec() -> LoraSpec:
    return small_spec(sample_prompts=PROMPTS, steps=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, spec: LoraSpec) -> RunDirectory:
    return with_pictures(tmp_path_factory.mktemp("previews") / "run", spec)


def test_the_list_and_the_pictures_say_how_each_was_made(run: RunDirectory) -> None:
    told = pictures(run.samples / "step-000001")
    assert [one["path"] for one in told] == NAMES
    assert [(one["width"], one["height"]) for one in told] == SIZES
    assert [one["negative_prompt"] for one in told] == ["", "blurry, dark", "", ""]
    wide = told[1]
    assert {name: wide[name] for name in ("prompt", "seed", "sampler", "sampler_steps", "guidance_scale")} == {
        "prompt": "sks cat face at sea",
        "seed": 42,
        "sampler": "euler",
        "sampler_steps": 4,
        "guidance_scale": 7.5,
    }
    for one in told:
        image = Image.open(run.samples / "step-000001" / one["path"])
        said = image.text  # type: ignore[attr-defined]
        assert image.size == (one["width"], one["height"])
        assert {name: str(one[name]) for name in said} == said
        assert ("negative_prompt" in said) == bool(one["negative_prompt"])


@pytest.mark.parametrize("long", [False, True], ids=["", "a long negative prompt"])
@pytest.mark.parametrize("trained", [False, True], ids=["frozen text encoders", "trained text encoders"])
def test_another_worker_makes_the_pictures_that_the_trainer_makes(tmp_path: Path, trained: bool, long: bool) -> None:
    wide = replace(WIDE, negative_prompt=LONG) if long else WIDE
    of = small_spec(sample_prompts=(PLAIN, wide, HIGH), steps=2, train_text_encoder=trained)
    run = with_pictures(tmp_path / "run", of)
    own, job = run.samples / "step-000001", rendered_elsewhere(tmp_path / "job", of, run)
    assert pictures(job.output) == pictures(own) and len(pictures(own)) == 4
    for name in NAMES:
        assert (job.output / name).read_bytes() == (own / name).read_bytes()


def test_so_it_does_where_captions_are_longer_than_what_is_drawn(tmp_path: Path) -> None:
    of = small_spec(prompt=LONG, sample_prompts=(PLAIN,), steps=2)
    run = with_pictures(tmp_path / "run", of)
    job = rendered_elsewhere(tmp_path / "job", of, run)
    assert pictures(job.output) == pictures(run.samples / "step-000001")


def test_training_learns_nothing_of_a_negative_prompt_however_long(tmp_path: Path, uninterrupted: RunDirectory) -> None:
    shown = small_spec(sample_prompts=(SamplePrompt(prompt=PLAIN, negative_prompt=LONG),))
    found = report_of(finish(lay_out(tmp_path / "run", shown)))
    assert found["weights_digest"] == report_of(uninterrupted)["weights_digest"]


def test_texts_of_previews_are_embedded_once_and_reused_by_other_runs(
    tmp_path: Path, run: RunDirectory, spec: LoraSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint = numerics.fingerprint(numerics.device(), torch.float32, spec)
    key = embeddings_key(spec, fingerprint, SHOWN)
    assert (run.path / PREPARED / key / "texts.safetensors").exists()
    other = lay_out(tmp_path / "run", spec)
    (other.inputs / PREPARED).symlink_to(run.path / PREPARED)
    encoders = property(lambda _: pytest.fail("a text encoder was loaded"))
    monkeypatch.setattr(LoadedBase, "text_encoders", encoders)
    assert run_lora_trainer(other, Orders(save=True, render=True)) == EXIT_DONE
    assert pictures(other.samples / "step-000001") == pictures(run.samples / "step-000001")


def test_plain_prompts_need_no_embeddings_of_their_own(tmp_path: Path) -> None:
    made = with_pictures(tmp_path / "run", small_spec(sample_prompts=(PLAIN,), steps=2))
    assert len([path for path in (made.path / PREPARED).iterdir() if path.name.startswith("embeddings-")]) == 1


def test_the_result_is_shown_beside_the_base_at_each_size(tmp_path: Path, run: RunDirectory, spec: LoraSpec) -> None:
    job = a_job(tmp_path / "job", spec, None, spec.steps)
    (job.inputs / "result").symlink_to(run.output)
    assert render_job(job, Orders()) == EXIT_DONE
    assert (job.steps, job.step) == (8, 8)
    shown = {path.name: Image.open(path).size for path in job.output.glob("prompt-*.png")}
    expected = {
        name.replace("-seed", f"-{side}-seed"): size
        for side in ("base", "lora")
        for name, size in zip(NAMES, SIZES, strict=True)
    }
    assert shown == expected
    grid = Image.open(job.output / "grid.png")
    assert grid.width == 2 * MARGIN + 4 * (TILE + GAP) - GAP, "two seeds at most, beside the base"
    assert grid.height == LABEL + STRIP + LABEL + 3 * (LABEL + TILE) + MARGIN
    empty = (MARGIN + (TILE + GAP) + TILE // 2, LABEL + STRIP + 2 * LABEL + TILE // 2)
    assert grid.convert("RGB").getpixel(empty) == (255, 255, 255), (
        "a prompt with one seed leaves its second column empty"
    )


def test_the_card_says_what_each_picture_was_led_away_from(run: RunDirectory) -> None:
    widget = ModelCard.load(run.output / "README.md").data.to_dict()["widget"]
    urls = [f"samples/{name.replace('-seed', '-lora-seed')}" for name in NAMES]
    assert [one["output"]["url"] for one in widget] == urls
    assert widget[1] == {
        "text": "sks cat face at sea",
        "parameters": {"negative_prompt": "blurry, dark"},
        "output": {"url": urls[1]},
    }
    assert [one for one in widget if "parameters" in one] == [widget[1]]


def test_a_size_that_a_base_cannot_have_is_refused_before_anything_is_prepared(tmp_path: Path) -> None:
    deeper = tmp_path / "base"
    shutil.copytree(BASE, deeper)
    config = json.loads((deeper / "unet" / "config.json").read_text())
    config["block_out_channels"] *= 2  # two more levels: sides are halved two more times
    (deeper / "unet" / "config.json").write_text(json.dumps(config))
    of = small_spec(sample_prompts=(PLAIN, replace(WIDE, width=104, height=72)))
    run = lay_out(tmp_path / "run", of, base=deeper)
    with pytest.raises(BadInput) as refused:
        run_lora_trainer(run, Orders())
    assert refused.value.message == (
        "sample_prompts.1: 104 × 72 pixels are not possible with this base, which needs multiples of 32"
    )
    assert refused.value.hint == "take 96 × 64"
    assert not (run.path / PREPARED).exists()


def test_without_memory_for_a_large_picture_smaller_ones_are_still_made(tmp_path: Path) -> None:
    spec = small_spec(sample_prompts=(WIDE, HIGH, PLAIN), steps=2)
    with failing(
        UNet2DConditionModel, lambda module, seen: not module.training and seen.shape[2] != seen.shape[3]
    ) as asked:
        run = with_pictures(tmp_path / "run", spec)
    told = json.loads((run.samples / "step-000001" / PICTURES).read_text())
    assert [one["path"] for one in told["pictures"]] == ["prompt-02-seed-1.png"]
    assert told["left_out"] == ["prompt-00-seed-42.png", "prompt-01-seed-7.png", "prompt-01-seed-9.png"]
    assert {tuple(shape[2:]) for shape in asked} == {(16, 16), (16, 24)}, "none that is larger is tried"
