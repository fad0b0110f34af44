"""Promise 3 with every feature of the trainer: interrupted in the midst of an epoch, a run ends with the same bits."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel
from PIL import Image

from gangline.core.errors import BadInput
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.train.run.contract import RunDirectory
from tests.conftest import SUBJECT, file_at
from tests.train.bases import save_tiny
from tests.train.conftest import finish, interrupt, lay_out, report_of, small_spec

SHAPES = {"wide": (64, 40), "high": (40, 64), "square": (64, 64)}
FEATURES: dict[str, dict[str, Any]] = {
    "accumulation": {"batch_size": 3, "microbatch": 2},
    "text encoders": {"train_text_encoder": True, "text_encoder_learning_rate": 5e-4},
    "prior preservation": {"class_prompt": "cat face, fluent emoji", "class_images": 3},
    "prior preservation in accumulation": {"class_prompt": "cat face", "class_images": 2, "microbatch": 1},
    "class images with a sampler of their own": {
        "class_prompt": "cat face",
        "class_images": 2,
        "class_sampler": "euler_a",
        "class_sample_steps": 3,
        "class_guidance_scale": 2.0,
    },
    "photos of the class": {
        "class_prompt": "cat, face, round",
        "class_photos": 3,
        "class_images": 5,
        "aspect_buckets": True,
        "flip": True,
        "caption_shuffles": 2,
        "batch_size": 3,
    },
    "EMA": {"ema_decay": 0.9},
    "buckets, crops and flips": {"aspect_buckets": True, "crop": "random", "crops": 2, "flip": True},
    "captions dropped and shuffled": {"prompt": "sks cat, emoji, round", "caption_drop": 0.4, "caption_shuffles": 3},
    "tags dropped, wildcards": {
        "prompt": "sks {cat|kitten}; emoji, round; yellow; happy",
        "caption_separator": ";",
        "caption_tag_dropout_rate": 0.4,
        "enable_wildcard": True,
        "caption_variants": 3,
        "caption_drop": 0.2,
        "sample_prompts": ("sks cat",),
    },
    "tags shuffled and dropped, wildcards, text encoders": {
        "prompt": "sks {cat|kitten}, emoji, round, yellow",
        "caption_shuffles": 3,
        "caption_tag_dropout_rate": 0.4,
        "enable_wildcard": True,
        "train_text_encoder": True,
        "class_prompt": "cat, face, round",
        "class_photos": 3,
        "class_images": 3,
    },
    "dropout": {"dropout": 0.3},
    "DoRA": {"dora": True},
    "LoRA+": {"lora_plus_ratio": 4.0, "train_text_encoder": True, "text_encoder_learning_rate": 5e-4, "ema_decay": 0.9},
    "LoRA+ with DoRA": {"lora_plus_ratio": 4.0, "dora": True, "optimizer": "schedule_free", "warmup_steps": 4},
    "LoRA+ with 8-bit AdamW": {"lora_plus_ratio": 4.0, "optimizer": "adamw8bit"},
    "blocks with ranks and rates of their own": {
        "target_modules": ("attn2.*", "ff.net.2"),
        "block_ranks": ("up_blocks.*=2:3", "mid_block.*=0"),
        "block_rates": ("down_blocks.*=0.5",),
        "train_text_encoder": True,
    },
    "convolutions": {"conv_rank": 2, "conv_alpha": 3.0},
    "convolutions in bfloat16": {"conv_rank": 2, "precision": "bf16"},
    "LoKr": {"algorithm": "lokr", "train_text_encoder": True, "block_rates": ("up_blocks.*=0.5",)},
    "LoKr of convolutions": {"algorithm": "lokr", "conv_rank": 2, "lokr_second_factor": "tucker", "lokr_factor": 4},
    "LoKr in full on a base in 4 bits": {
        "algorithm": "lokr",
        "lokr_second_factor": "full",
        "lokr_factor": 4,
        "base_precision": "4bit",
        "precision": "bf16",
    },
    "LoKr with gradient checkpointing": {"algorithm": "lokr", "gradient_checkpointing": True, "conv_rank": 2},
    "the objective": {"min_snr_gamma": 5.0, "noise_offset": 0.05},
    "Huber loss": {"loss_type": "huber", "huber_schedule": "exponential", "min_snr_gamma": 5.0, "mask": "alpha"},
    "a range of timesteps, some more often": {
        "min_timestep": 100,
        "max_timestep": 700,
        "timestep_bias_strategy": "range",
        "timestep_bias_multiplier": 5.0,
        "timestep_bias_begin": 150,
        "timestep_bias_end": 400,
        "class_prompt": "cat face",
        "class_images": 2,
    },
    "velocity": {"prediction_type": "v_prediction", "zero_terminal_snr": True, "guidance_rescale": 0.3},
    "schedule": {"schedule": "cosine", "warmup_steps": 3},
    "a schedule with restarts": {
        "schedule": "cosine_with_restarts",
        "schedule_cycles": 2,
        "schedule_floor": 0.1,
        "warmup_steps": 2,
    },
    "gradient checkpointing": {"gradient_checkpointing": True, "train_text_encoder": True},
    "transparency as a mask": {"mask": "alpha"},
    "8-bit AdamW": {"optimizer": "adamw8bit"},
    "Prodigy": {"optimizer": "prodigy", "learning_rate": 1.0},
    "schedule-free": {"optimizer": "schedule_free", "warmup_steps": 4},
    "bfloat16": {"precision": "bf16"},
    "float16, with its scale of the loss": {"precision": "fp16", "steps": 5},
    "a base in 4 bits": {"base_precision": "4bit"},
    "a base in 8 bits, with DoRA": {"base_precision": "8bit", "dora": True},
    "all at once": {
        "aspect_buckets": True,
        "flip": True,
        "class_prompt": "cat face",
        "class_images": 2,
        "batch_size": 3,
        "microbatch": 2,
        "train_text_encoder": True,
        "ema_decay": 0.95,
        "caption_drop": 0.2,
        "min_snr_gamma": 5.0,
        "schedule": "linear",
        "warmup_steps": 2,
    },
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of several shapes, so that there are buckets; five, so that no step ends an epoch of batches of two or three."""
    folder = tmp_path_factory.mktemp("photos")
    for number, path in enumerate(sorted(SUBJECT.glob("*.png"))[:5]):
        with Image.open(path) as image:
            name, size = list(SHAPES.items())[number % 3]
            image.convert("RGBA").resize(size).save(folder / f"{number}-{name}.png")
    return folder


def spec_of(photos: Path, settings: dict[str, Any]) -> LoraSpec:
    """`class_photos` is how many of the photos are photos of the class."""
    files = tuple(file_at(path, photos) for path in sorted(photos.iterdir()))
    of_class = files[: settings.get("class_photos", 0)]
    common = {"photos": files, "steps": 7, "target_modules": ("to_k", "to_v")}
    return small_spec(**(common | settings | {"class_photos": of_class}))


@pytest.mark.parametrize("feature", FEATURES)
def test_interrupted_in_mid_epoch_a_run_ends_with_the_same_bits(tmp_path: Path, photos: Path, feature: str) -> None:
    spec = spec_of(photos, FEATURES[feature])
    whole = finish(lay_out(tmp_path / "whole", spec, photos=photos))
    resumed = finish(interrupt(tmp_path / "resumed", spec, after=4, photos=photos))
    assert report_of(whole)["exact"] and report_of(resumed)["exact"]
    assert report_of(resumed)["weights_digest"] == report_of(whole)["weights_digest"]
    assert first_steps(resumed) == [1, 5]


def test_so_does_one_that_skips_a_layer_of_a_text_encoder_in_training(tmp_path: Path, photos: Path) -> None:
    base = save_tiny(tmp_path / "base", "sd15")
    files = tuple(file_at(path, base) for path in sorted(base.rglob("*")) if path.is_file())
    settings: dict[str, Any] = {"base": FilesBase(files=files), "clip_skip": 2, "train_text_encoder": True, "steps": 3}
    spec = spec_of(photos, settings)
    whole = finish(lay_out(tmp_path / "whole", spec, photos=photos, base=base))
    resumed = finish(interrupt(tmp_path / "resumed", spec, after=2, photos=photos, base=base))
    other = finish(lay_out(tmp_path / "other", replace(spec, clip_skip=1), photos=photos, base=base))
    digests = [report_of(run)["weights_digest"] for run in (whole, resumed, other)]
    assert digests[0] == digests[1] != digests[2]


def first_steps(run: RunDirectory) -> list[int]:
    """The first step that each process took: what was done is not done again."""
    lines = [json.loads(line) for line in (run.path / "progress.jsonl").read_text().splitlines()]
    resumed_at = {line["step"] for line in lines if line["phase"] == "preparing"}
    assert resumed_at == {0}
    began = [line["step"] + 1 for line in lines if line["phase"] == "training" and line["loss"] is None]
    return sorted({began[0], began[-1]})


NO_ROOM = torch.OutOfMemoryError("no room")
NO_ROOM_FOR_CUBLAS = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
BROKEN = RuntimeError("CUDA error: an illegal memory access was encountered")


@contextmanager
def room_for(samples: int, error: Exception = NO_ROOM) -> Iterator[list[int]]:
    """As on a card that has memory for the activations of so many: the U-Net fails for more. What it was asked for."""
    asked: list[int] = []

    def fail(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, UNet2DConditionModel) and module.training:
            asked.append(len(inputs[0]))
            if len(inputs[0]) > samples:
                raise error

    hook = torch.nn.modules.module.register_module_forward_pre_hook(fail)
    try:
        yield asked
    finally:
        hook.remove()


def test_where_memory_runs_out_a_run_finds_how_many_samples_fit_and_resumes_with_as_many(
    tmp_path: Path, photos: Path
) -> None:
    spec = spec_of(photos, {"batch_size": 5})
    given = finish(lay_out(tmp_path / "given", replace(spec, microbatch=2), photos=photos))
    with room_for(3) as asked:
        whole = finish(lay_out(tmp_path / "whole", spec, photos=photos))
        assert asked[:4] == [5, 2, 2, 1]
        assert max(asked[1:]) == 2
        resumed = finish(interrupt(tmp_path / "resumed", spec, after=4, photos=photos))
        assert asked.count(5) == 2, "the second process began with what the first had found"
    digests = {report_of(run)["weights_digest"] for run in (given, whole, resumed)}
    assert len(digests) == 1
    assert report_of(resumed)["exact"] is True
    assert report_of(resumed)["fingerprint"]["microbatch"] == "2"


def test_memory_that_a_library_below_pytorch_misses_ran_out_too(tmp_path: Path, photos: Path) -> None:
    with room_for(1, NO_ROOM_FOR_CUBLAS):
        run = finish(lay_out(tmp_path / "run", spec_of(photos, {"steps": 2}), photos=photos))
    assert report_of(run)["fingerprint"]["microbatch"] == "1"


def test_after_any_other_error_fewer_samples_at_a_time_are_not_tried(tmp_path: Path, photos: Path) -> None:
    with room_for(1, BROKEN) as asked, pytest.raises(RuntimeError, match="illegal memory access"):
        finish(lay_out(tmp_path / "run", spec_of(photos, {"steps": 2}), photos=photos))
    assert asked == [2]


def test_with_memory_for_not_even_one_sample_a_run_says_so(tmp_path: Path, photos: Path) -> None:
    sentence = "one sample of 64 pixels .* does not fit .* set gradient_checkpointing, or base_precision to 8bit"
    with room_for(0), pytest.raises(MemoryError, match=sentence):
        finish(lay_out(tmp_path / "run", spec_of(photos, {}), photos=photos))


def test_zero_terminal_snr_needs_velocity(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(BadInput, match="needs v-prediction"):
        finish(
            lay_out(
                tmp_path / "run",
                spec_of(photos, {"zero_terminal_snr": True, "prediction_type": "epsilon"}),
                photos=photos,
            )
        )


def test_the_loss_of_held_out_photos_is_the_squared_error_whatever_a_job_minimises(
    tmp_path: Path, photos: Path
) -> None:
    held_out = (file_at(photos / "0-wide.png", photos),)
    spec = spec_of(photos, {"steps": 1, "photos": spec_of(photos, {}).photos[1:], "held_out": held_out})
    huber = replace(spec, loss_type="huber", huber_c=0.01)
    squared, robust = (
        report_of(finish(lay_out(tmp_path / each.loss_type, each, photos=photos))) for each in (spec, huber)
    )
    assert squared["held_out"][0]["loss_before"] == robust["held_out"][0]["loss_before"] > 0.1
    assert squared["weights_digest"] != robust["weights_digest"]
