"""What a job will take, by counting or by what it took before: the promises of `gangline.core.estimates.forecast`."""

import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.bundled.recipes import read_presets
from gangline.core.estimates.forecast import Forecast, MeasuredPace, forecast, remembered
from gangline.core.estimates.memory import lora_memory, scratch_memory
from gangline.core.files import File
from gangline.core.gpus import KINDS, GpuKind, find_kind
from gangline.core.models.families import FAMILIES, SD2, SD15, SDXL, Family
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.specs.phases import DataRef
from gangline.core.specs.scratch import ScratchSpec, parse_scratch

SDXL_WEIGHTS = 2_567_463_684
UNET_ONLY = Path(__file__).parent / "published" / "mosaic_unet_only.csv"
FILE = File(path="x.png", bytes=0, sha256="0" * 64)
H100, A100, RTX_4090, T4 = (find_kind(name) for name in ("H100 SXM", "A100 40GB", "RTX 4090", "T4"))


def lora(**settings: Any) -> LoraSpec:
    return parse_lora({"base": FilesBase(files=(FILE,)), "photos": (FILE,), "prompt": "a photo of sks dog"} | settings)


def scratch(**settings: Any) -> ScratchSpec:
    given = {
        "base": FilesBase(files=(FILE,)),
        "data": [DataRef(place="s3://x/x", id="x", version=1)],
        "new": ["unet"],
        "phases": [{"steps": 100, "resolution": 512, "batch_size": 2048}],
    }
    return parse_scratch(given | settings)


def step_s(spec: LoraSpec | ScratchSpec, family: Family = SDXL, kind: GpuKind = H100, **more: Any) -> float:
    found = forecast(spec, family, kind, **more).seconds_per_step
    assert found
    assert found.low <= found.middle <= found.high
    return found.middle


# Figures that were measured or published: docs/performance.md, and the tables in `published`


@pytest.mark.parametrize(
    ("settings", "seconds", "memory_gb"),
    [
        ({"batch_size": 1}, 0.110, 13.7),
        ({"batch_size": 1, "gradient_checkpointing": True}, 0.145, 7.2),
        ({"batch_size": 4}, 0.268, 36.4),
        ({"batch_size": 4, "gradient_checkpointing": True}, 0.352, 10.3),
        ({"batch_size": 8}, 0.505, 67.1),
        ({"batch_size": 1, "gradient_checkpointing": True, "base_precision": "4bit"}, None, 4.3),
    ],
)
def test_what_was_measured_on_an_h100_lies_in_the_bands(
    settings: dict[str, Any], seconds: float | None, memory_gb: float
) -> None:
    found = forecast(lora(**settings, microbatch=settings["batch_size"]), SDXL, H100)
    # Under autocast, as every step was when this was measured; those with dropout still are.
    then = forecast(lora(**settings, microbatch=settings["batch_size"], dropout=0.1), SDXL, H100).memory
    assert then.low_gb <= memory_gb <= then.high_gb
    assert found.memory.low_gb <= then.low_gb
    if seconds:
        assert found.seconds_per_step
        assert found.seconds_per_step.low <= seconds <= found.seconds_per_step.high


@pytest.mark.parametrize("resolution", [256, 512])
@pytest.mark.parametrize("row", range(5), ids=[8, 16, 32, 64, 128])
def test_what_was_published_of_a_training_from_nothing_lies_in_the_band(resolution: int, row: int) -> None:
    lines = [line for line in UNET_ONLY.read_text().splitlines() if not line.startswith("#")]
    published = list(csv.DictReader(lines))[row]
    phase = {"steps": 1, "resolution": resolution, "batch_size": 2048, "microbatch": 16}
    spec = scratch(phases=[phase], text_embeddings="required")
    rate = forecast(spec, SD2, A100, gpus=int(published["gpus"])).phases[0].images_per_second
    assert rate.low <= float(published[f"images_per_second_{resolution}"]) <= rate.high


def test_a_card_unlike_those_that_were_measured_has_a_wider_band_and_says_so() -> None:
    like, unlike = (forecast(lora(resolution=512), SDXL, kind) for kind in (RTX_4090, find_kind("RTX 3060 12GB")))
    assert width(unlike) > 1.3 * width(like)
    assert any("its band is wider" in sentence for sentence in unlike.because)
    assert not any("wider" in sentence for sentence in like.because)


# Work


def test_more_work_takes_longer() -> None:
    plain = step_s(lora())
    assert step_s(lora(batch_size=4)) > 2 * plain
    assert step_s(lora(batch_size=4, class_prompt="a dog")) == pytest.approx(step_s(lora(batch_size=8)), rel=0.05)
    assert plain < step_s(lora(gradient_checkpointing=True)) < 2 * plain
    assert step_s(lora(resolution=512)) < plain
    assert plain < step_s(lora(rank=256))
    assert plain < step_s(lora(train_text_encoder=True))
    assert step_s(lora(resolution=512), SD15) < step_s(lora(resolution=512))


def test_small_pieces_take_longer_than_the_whole_at_once() -> None:
    assert step_s(lora(batch_size=8, microbatch=1)) > 1.2 * step_s(lora(batch_size=8, microbatch=8))


def test_latents_and_embeddings_that_a_step_makes_itself_are_counted() -> None:
    phase = {"steps": 1, "resolution": 512, "batch_size": 64, "microbatch": 16}
    kept, made = (
        scratch(phases=[phase | {"latents": latents}], text_embeddings=texts)
        for latents, texts in (("required", "required"), ("off", "off"))
    )
    assert step_s(made, SD2) > 1.3 * step_s(kept, SD2)


def test_more_gpus_make_a_step_shorter_and_no_gpu_more_than_its_part() -> None:
    spec = scratch()
    steps = {gpus: step_s(spec, SD2, gpus=gpus) for gpus in (1, 2, 8, 16, 64)}
    for fewer, more in pairwise(steps):
        assert steps[more] < steps[fewer] <= 1.01 * steps[more] * more / fewer


def test_beyond_a_node_gpus_lose_time_to_each_other() -> None:
    phase = {"steps": 1, "resolution": 512, "batch_size": 2048, "microbatch": 4}
    spec = scratch(phases=[phase])
    eight, more = (forecast(spec, SD2, A100, gpus=gpus).seconds_per_step for gpus in (8, 64))
    assert eight and more
    assert 1.05 * eight.middle < 8 * more.middle < 1.3 * eight.middle
    assert 8 * more.low == pytest.approx(eight.low, rel=0.02)


def test_an_optimiser_that_moves_more_takes_longer() -> None:
    phase = {"steps": 1, "resolution": 64, "batch_size": 1}
    averaged, plain, of_lora = (
        step_s(spec) for spec in (scratch(phases=[phase], ema_decay=0.99), scratch(phases=[phase]), lora(resolution=64))
    )
    assert averaged - plain == pytest.approx(2 * 4 * SDXL_WEIGHTS / 3350e9)
    assert plain > of_lora
    small, large = (step_s(lora(resolution=64, rank=rank)) for rank in (1, 1024))
    assert large - small > 2 * 16 * 1e9 / 3350e9


def test_the_vae_and_text_encoders_can_be_what_learns() -> None:
    phase = {"steps": 1, "resolution": 256, "batch_size": 64, "microbatch": 8}
    assert step_s(scratch(phases=[phase], part="vae", new=["vae"]), SD2) > 0
    assert step_s(scratch(phases=[phase], train_text_encoders=True), SD2) > step_s(scratch(phases=[phase]), SD2)


# Memory


def test_memory_grows_with_what_is_kept_and_shrinks_with_what_is_saved() -> None:
    def low(microbatch: int = 1, **settings: Any) -> float:
        return lora_memory(lora(batch_size=8, **settings), SDXL, microbatch=microbatch).low_gb

    assert low(microbatch=4) > low() > low(gradient_checkpointing=True)
    assert low(base_precision="full") > low(base_precision="8bit") > low(base_precision="4bit")
    assert low(rank=128) > low() and low(train_text_encoder=True) > low() and low(resolution=512) < low()


def test_fsdp_leaves_each_gpu_a_part_and_ddp_all() -> None:
    def low(parallel: str, gpus: int) -> float:
        spec = scratch(parallel=parallel)
        return scratch_memory(spec, spec.phases[0], SDXL, microbatch=1, gpus=gpus).low_gb

    assert low("fsdp", 8) < low("fsdp", 2) < low("ddp", 2)
    assert low("ddp", 8) == low("ddp", 2)
    assert low("ddp", 1) > 16 * SDXL_WEIGHTS / 1e9


def test_an_average_and_full_moments_take_more() -> None:
    def low(**settings: Any) -> float:
        spec = scratch(**settings)
        return scratch_memory(spec, spec.phases[0], SD2, microbatch=1, gpus=1).low_gb

    assert low(ema_decay=0.99) > low() > low(optimizer="adamw8bit")


def test_as_many_samples_are_taken_at_a_time_as_fit_into_the_card() -> None:
    spec = lora(batch_size=16)
    assert forecast(spec, SDXL, RTX_4090).microbatch == 2
    assert forecast(spec, SDXL, H100).microbatch == 8
    assert forecast(spec, SDXL, None).microbatch == 16
    assert forecast(replace(spec, microbatch=4), SDXL, RTX_4090).microbatch == 4


def test_a_card_that_is_too_small_is_named_with_what_it_lacks() -> None:
    found = forecast(lora(), SDXL, find_kind("RTX 3080 10GB"))
    assert found.least_memory.fits(10) == "no"
    assert any("does not fit into RTX 3080 10GB, which has 10 GB" in sentence for sentence in found.because)
    assert not any("fit" in sentence for sentence in forecast(lora(), SDXL, H100).because)


# What is not known is not told


def test_of_a_card_that_is_not_known_there_is_memory_and_no_time() -> None:
    found = forecast(lora(), SDXL, None)
    assert (found.how, found.seconds_per_step, found.seconds, found.usd(1.0)) == ("unknown", None, None, None)
    assert found.because == ("it is not known which GPU the job will get, so its time is not known either",)
    assert found.memory.low_gb > 5


@pytest.mark.parametrize(
    ("precision", "kind", "says"), [("fp32", H100, "in fp32 was not measured"), ("bf16", T4, "only emulates bf16")]
)
def test_of_a_precision_that_no_table_has_there_is_no_time(precision: str, kind: GpuKind, says: str) -> None:
    found = forecast(lora(precision=precision), SDXL, kind)
    assert found.seconds is None
    assert says in found.because[0]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_kind_has_a_forecast_for_every_family(kind: GpuKind, family: Family) -> None:
    found = forecast(lora(resolution=family.resolution), family, kind)
    assert found.seconds
    assert 0 < found.seconds.low < found.seconds.middle < found.seconds.high
    assert found.memory.low_gb < found.memory.high_gb


def test_a_slow_host_is_in_the_band_where_kernels_are_launched_one_by_one() -> None:
    replayed, launched = (forecast(lora(compile=by_one), SDXL, H100).seconds_per_step for by_one in (False, True))
    assert replayed and launched
    assert launched.high > 2 * replayed.high
    assert launched.low == pytest.approx(replayed.low)


def test_dollars_are_hours_times_the_price() -> None:
    found = forecast(lora(), SDXL, H100)
    assert found.seconds and (usd := found.usd(3.6))
    assert usd.middle == pytest.approx(found.seconds.middle / 1000)


def test_class_images_crops_and_pictures_are_counted() -> None:
    def all_s(**settings: Any) -> tuple[float, float]:
        found = forecast(lora(**settings), SDXL, H100)
        assert found.prepare_s and found.pictures_s
        return found.prepare_s.middle, found.pictures_s.middle

    assert all_s(class_prompt="a dog", class_images=10)[0] > all_s()[0] + 1
    assert all_s(crop="random", crops=8)[0] > all_s()[0]
    wide = {"prompt": "a dog", "width": 1536}
    assert all_s()[1] == all_s(sample_prompts=["a dog"])[1] < all_s(sample_prompts=[wide])[1]
    assert all_s(sample_prompts=["a dog"])[1] > all_s(sample_prompts=[{"prompt": "a dog", "seeds": [1]}])[1]
    assert all_s(sample_result=False)[1] == 0 < all_s()[1] < all_s(sample_seeds=[1, 2, 3, 4])[1]


# What it took before


def before(*pairs: tuple[str, float]) -> list[MeasuredPace]:
    return [MeasuredPace(gpu=gpu, seconds_per_step=seconds) for gpu, seconds in pairs]


def width(found: Forecast) -> float:
    assert found.seconds_per_step
    return found.seconds_per_step.high / found.seconds_per_step.low


def test_what_a_workload_took_on_this_card_counts_alone() -> None:
    counted = forecast(lora(), SDXL, H100)
    found = remembered(
        counted, H100, before(("H100 SXM", 0.2), ("RTX 4090", 9.0), ("H100 SXM", 0.22)), [H100, RTX_4090]
    )
    assert found.seconds_per_step
    assert (found.how, found.seconds_per_step.middle) == ("measured", pytest.approx(0.21))
    assert found.because[0] == "this workload ran 2 times on H100 SXM before, at 0.21 s a step"
    assert found.memory == counted.memory


def test_the_band_narrows_with_runs_that_agree_and_widens_with_those_that_do_not() -> None:
    counted = forecast(lora(), SDXL, H100)

    def of(*seconds: float) -> float:
        return width(remembered(counted, H100, before(*[("H100 SXM", each) for each in seconds])))

    assert of(0.2) > of(0.2, 0.2) > of(0.2, 0.2, 0.2, 0.2)
    assert of(0.1, 0.2, 0.4) > of(0.2, 0.2, 0.2)
    assert of(0.2) < width(counted)


def test_what_it_took_on_another_card_is_scaled_by_data_sheet() -> None:
    counted = forecast(lora(), SDXL, RTX_4090)
    found = remembered(counted, RTX_4090, before(("H100 SXM", 0.11)), [H100])
    assert found.seconds_per_step
    assert found.seconds_per_step.low == pytest.approx(0.11 * 3350 / 1008)
    assert found.seconds_per_step.high == pytest.approx(0.11 * 989 / 165.2)
    assert "ran on H100 SXM before, not on RTX 4090" in found.because[0]


def test_a_class_that_no_table_has_is_known_by_what_it_took() -> None:
    counted = forecast(lora(), SDXL, None)
    found = remembered(counted, None, before(("Radeon VII", 2.0)), gpu="Radeon VII")
    assert found.seconds_per_step
    assert (found.seconds_per_step.middle, found.gpu) == (2.0, "Radeon VII")
    assert remembered(counted, None, before(("H100 SXM", 0.1)), [H100], gpu="Radeon VII") == counted


def test_where_no_card_is_named_all_that_it_took_is_told() -> None:
    found = remembered(forecast(lora(), SDXL, None), None, before(("H100 SXM", 0.1), ("RTX 4090", 0.4)))
    assert found.seconds_per_step
    assert found.seconds_per_step.low < 0.1 and found.seconds_per_step.high > 0.4
    assert (
        "not known which GPU the job will get; this workload ran 2 times before, on H100 SXM, RTX 4090"
        in found.because[0]
    )


def test_nothing_measured_leaves_what_was_computed() -> None:
    counted = forecast(lora(), SDXL, H100)
    assert remembered(counted, H100, []) == counted


@pytest.mark.parametrize("subject", ["face", "object", "style"])
def test_the_preset_for_small_cards_makes_sdxl_fit_into_one(subject: str) -> None:
    small = forecast(lora(**read_presets([subject, "8gb"])), SDXL, find_kind("RTX 4060"))
    assert small.memory.high_gb < 7.5 and small.least_memory.fits(8) == "yes"
    assert forecast(lora(**read_presets([subject])), SDXL, None).least_memory.fits(8) == "no"
