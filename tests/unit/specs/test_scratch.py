"""What may be asked of training on data sets, and what is refused before anything is started."""

import tomllib
from dataclasses import replace
from typing import Any

import pytest

from gangline.core.gpus import kind_of_device
from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.runs.schedule import rate_factor, warm_up
from gangline.core.specs.fields import HubBase, Needs
from gangline.core.specs.phases import DataRef, TrainingPhase, moment_of_step
from gangline.core.specs.scratch import (
    ScratchSpec,
    burst_of_phase,
    parse_scratch,
    scratch_hash,
    wanted_rows,
)
from tests.conftest import ROOT

RECIPES = ("sd2_base", "sdxl_scratch", "tiny_vae", "tiny_sdxl")


PHASE = {"steps": 10, "resolution": 64, "batch_size": 8}


def spec_of(**settings: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "kind": "scratch",
        "base": {"source": "hub", "repo": "somebody/something"},
        "data": [{"place": "s3://sets/shapes.lance", "id": "x", "version": 1}],
        "phases": [PHASE],
    }
    return value | settings


def recipe(name: str) -> ScratchSpec:
    """As it is when submitted: its base and data sets pinned."""
    value = tomllib.loads((ROOT / "recipes" / f"{name}.toml").read_text())
    value["base"] = {"source": "hub", "repo": value["base"].rjust(3, "_")}
    value["data"] = [data | {"place": f"s3://sets/{data['place']}", "id": "x", "version": 1} for data in value["data"]]
    return parse_scratch(value)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_spec(name: str) -> None:
    spec = recipe(name)
    assert parse_scratch(to_json(spec)) == spec


def test_the_recipe_of_stable_diffusion_2_has_the_samples_of_its_publication() -> None:
    first, second = recipe("sd2_base").phases
    assert first.steps * first.batch_size == 1_126_400_000
    assert second.steps * second.batch_size == 1_740_800_000


def test_the_recipe_of_stable_diffusion_2_warms_up_in_each_phase_and_averages_its_last_50_000_steps() -> None:
    """SD-2-base-512.yaml counts `ema_start` from the beginning of its own phase."""
    spec = recipe("sd2_base")
    assert [phase.warmup_steps for phase in spec.phases] == [10_000, 10_000] and not spec.warmup_steps
    assert spec.steps - spec.ema_from_step == 50_000


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"phases": []}, "phases"),
        ({"data": []}, "data"),
        ({"phases": [{"steps": 1, "resolution": 60, "batch_size": 1}]}, "phases.0.resolution"),
        ({"phases": [{"steps": 1, "resolution": 64, "batch_size": 4, "microbatch": 5}]}, "phases.0.microbatch"),
        ({"needs": {"slots": 3}}, "phases.0.batch_size"),
        ({"new": ["vae"]}, "new"),
        ({"new": ["text_encoders"]}, "new"),
        ({"new": ["unet"], "part": "vae"}, "new"),
        ({"text_encoder_learning_rate": 1e-4}, "text_encoder_learning_rate"),
        ({"freeze_token_embeddings": True}, "freeze_token_embeddings"),
        ({"text_embeddings": "required", "train_text_encoders": True}, "text_embeddings"),
        ({"text_embeddings": "required", "part": "vae"}, "text_embeddings"),
        ({"zero_terminal_snr": True, "prediction_type": "epsilon"}, "zero_terminal_snr"),
        ({"warmup_steps": 11}, "warmup_steps"),
        ({"schedule_floor": 0.1}, "schedule_floor"),
        ({"phases": [PHASE | {"warmup_steps": 11}]}, "phases.0.warmup_steps"),
        ({"phases": [PHASE, PHASE | {"warmup_steps": 5}], "warmup_steps": 11}, "phases.1.warmup_steps"),
        ({"ema_from_step": 5}, "ema_from_step"),
        ({"ema_from_step": 50, "ema_decay": 0.9}, "ema_from_step"),
        ({"held_out_every_steps": 5}, "held_out_every_steps"),
        ({"optimizer": "adamw8bit", "parallel": "fsdp"}, "optimizer"),
        ({"part": "vae", "sample_prompts": ["a cat"]}, "sample_prompts"),
        ({"data": [{"place": "a", "id": "x", "version": 1}] * 2}, "data"),
        ({"of_next_year": 1}, "of_next_year"),
    ],
)
def test_what_contradicts_itself_is_refused_by_its_field(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSpec) as told:
        parse_scratch(spec_of(**settings))
    assert field in [problem.field for problem in told.value.problems]


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidSpec) as told:
        parse_scratch(spec_of(freeze_token_embeddings=True, held_out_every_steps=1, needs={"slots": 3}))
    assert len(told.value.problems) == 3


def test_how_the_work_is_shared_out_does_not_make_it_another_result() -> None:
    spec = parse_scratch(spec_of())
    same = {"parallel": "fsdp", "compile": True, "priority": 3, "needs": Needs(slots=4), "checkpoint_every_s": 5.0}
    for name, value in same.items():
        assert scratch_hash(replace(spec, **{name: value})) == scratch_hash(spec), name
    cut = replace(spec, phases=(replace(spec.phases[0], microbatch=2),))
    assert scratch_hash(cut) == scratch_hash(spec)
    others = {
        "seed": 1,
        "new": ("unet",),
        "phases": (replace(spec.phases[0], batch_size=16),),
        "data": (replace(spec.data[0], version=2),),
        "base": HubBase(repo="somebody/else"),
        "learning_rate": 1e-3,
    }
    for name, value in others.items():
        assert scratch_hash(replace(spec, **{name: value})) != scratch_hash(spec), name


def test_a_step_has_a_phase_and_the_number_of_its_first_sample() -> None:
    phases = (TrainingPhase(steps=3, resolution=16, batch_size=8), TrainingPhase(steps=8, resolution=32, batch_size=4))
    spec = replace(parse_scratch(spec_of()), phases=phases)
    told = [(at.number, at.first_sample) for step in (1, 3, 4, 11) for at in (moment_of_step(spec.phases, step),)]
    assert told == [(0, 0), (0, 16), (1, 0), (1, 28)]
    assert (spec.steps, spec.resolution) == (11, 32)


@pytest.mark.parametrize("name", RECIPES)
def test_a_burst_of_a_phase_is_nothing_but_its_steps(name: str) -> None:
    spec = recipe(name)
    for number, phase in enumerate(spec.phases):
        short = burst_of_phase(spec, number)
        assert parse_scratch(to_json(short)) == short
        assert replace(short.phases[0], steps=phase.steps) == phase and len(short.phases) == 1
        assert not short.held_out and not short.sample_prompts and not short.checkpoint_every_steps


def test_a_burst_averages_where_most_of_the_phase_does() -> None:
    spec = replace(recipe("sd2_base"), ema_from_step=800_000)
    late, soon = burst_of_phase(spec, 0), burst_of_phase(spec, 1)
    assert late.ema_decay == soon.ema_decay == spec.ema_decay
    assert (late.ema_from_step, soon.ema_from_step) == (late.steps, 1)


def test_the_learning_rate_warms_up_over_the_steps_of_all_phases() -> None:
    spec = replace(recipe("sd2_base"), schedule="linear", warmup_steps=10_000)
    assert [rate_factor(spec, step) for step in (1, 5000, 10_000)] == [1e-4, 0.5, 1.0]
    assert rate_factor(spec, spec.steps) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("schedule", "halfway"), [("linear", 0.6), ("cosine", 0.6)])
def test_a_schedule_falls_to_its_floor(schedule: Any, halfway: float) -> None:
    phases = (TrainingPhase(steps=100, resolution=16, batch_size=8),)
    spec = replace(parse_scratch(spec_of()), phases=phases, schedule=schedule, schedule_floor=0.2)
    assert [rate_factor(spec, step) for step in (1, 51)] == [1.0, pytest.approx(halfway)]
    assert rate_factor(spec, 100) == pytest.approx(0.2, abs=0.01) and rate_factor(spec, 101) == pytest.approx(0.2)


def test_a_phase_warms_up_over_its_own_first_steps() -> None:
    phases = tuple(TrainingPhase(steps=8, resolution=16, batch_size=4, warmup_steps=steps) for steps in (0, 4))
    spec = replace(parse_scratch(spec_of()), phases=phases)
    assert [warm_up(moment_of_step(spec.phases, step)) for step in (1, 8, 9, 10, 12, 13, 16)] == [
        1.0,
        1.0,
        0.25,
        0.5,
        1.0,
        1.0,
        1.0,
    ]


def test_a_row_is_trained_on_or_held_out_or_neither() -> None:
    spec = replace(parse_scratch(spec_of()), held_out="sha256 < '1' or a > 2")
    data, phase = DataRef(place="p", id="i", version=1, where="b"), replace(spec.phases[0], where="c or d")
    assert wanted_rows(spec, data, phase, held_out=True) == "(b) and (c or d) and (sha256 < '1' or a > 2)"
    assert (
        wanted_rows(spec, data, phase, held_out=False) == "(b) and (c or d) and ((sha256 < '1' or a > 2) is not true)"
    )
    everything = replace(spec, held_out="")
    assert wanted_rows(everything, replace(data, where=""), spec.phases[0], held_out=False) == ""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA A100 80GB PCIe", None),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA B200", "B200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA A10", "A10"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A40-8Q", None),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100 16GB"),
        ("Tesla V100-PCIE-16GB", None),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Quadro RTX 6000", None),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
        ("NVIDIA GeForce RTX 4070 Ti", "RTX 4070 Ti"),
        ("NVIDIA GeForce RTX 4070", None),
        ("NVIDIA GeForce RTX 3080 Ti", None),
        ("NVIDIA GeForce RTX 3060", None),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("", None),
    ],
)
def test_a_gpu_is_known_by_what_its_driver_calls_it(name: str, kind: str | None) -> None:
    found = kind_of_device(name)
    assert (found.name if found else None) == kind


@pytest.mark.parametrize(
    ("name", "memory_gb", "kind"),
    [
        ("NVIDIA GeForce RTX 3060", 12, "RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 3060", 8, None),
        ("NVIDIA GeForce RTX 4060 Ti", 16, "RTX 4060 Ti 16GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 8, "RTX 4060 Ti 8GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 12, None),
        ("NVIDIA GeForce RTX 3080", 10, "RTX 3080 10GB"),
        ("Tesla T4", 15, "T4"),
        ("NVIDIA L4", 22, "L4"),
        ("NVIDIA H200", 140, "H200"),
        ("NVIDIA GeForce RTX 4090", 12, None),
    ],
)
def test_cards_of_one_name_are_told_apart_by_their_memory(name: str, memory_gb: float, kind: str | None) -> None:
    found = kind_of_device(name, memory_gb)
    assert (found.name if found else None) == kind
