"""Settings that make no sense together are refused, with a sentence that says why, by the parsers of both kinds."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.specs.lora import parse_lora
from gangline.core.specs.scratch import parse_scratch
from tests.unit.specs.specs_of_every_setting import LORA, UNET, VAE

PARSED: dict[str, tuple[Callable[[object], Any], dict[str, Any]]] = {
    "lora": (parse_lora, to_json(LORA)),
    "unet": (parse_scratch, to_json(UNET)),
    "vae": (parse_scratch, to_json(VAE)),
}
RANGE = {"timestep_bias_strategy": "range", "timestep_bias_multiplier": 2}
OF_ALL: list[tuple[dict[str, Any], str]] = [
    ({"schedule_floor": 0.2}, "schedule_floor: needs a linear or cosine schedule"),
    ({"schedule": "cosine", "schedule_cycles": 2}, "schedule_cycles: needs schedule cosine_with_restarts"),
    ({"schedule_steps": 5}, "schedule_steps: needs a linear or cosine schedule"),
    (
        {"schedule": "linear", "warmup_steps": 5, "schedule_steps": 5},
        "schedule_steps: must be more than the 5 steps of the warm-up",
    ),
    ({"huber_c": 0.2}, "huber_c: needs loss_type huber"),
    ({"huber_schedule": "constant"}, "huber_schedule: needs loss_type huber"),
    ({"min_timestep": 600, "max_timestep": 600}, "min_timestep: must be below max_timestep, 600"),
    ({"timestep_bias_strategy": "later"}, "timestep_bias_strategy: needs a timestep_bias_multiplier other than 1"),
    ({"timestep_bias_multiplier": 3}, "timestep_bias_multiplier: needs a timestep_bias_strategy"),
    ({"timestep_bias_portion": 0.5}, "timestep_bias_portion: needs timestep_bias_strategy earlier or later"),
    ({"timestep_bias_begin": 5}, "timestep_bias_begin: needs timestep_bias_strategy range"),
    ({"timestep_bias_end": 5}, "timestep_bias_end: needs timestep_bias_strategy range"),
    (RANGE, "timestep_bias_strategy: needs timestep_bias_begin or timestep_bias_end"),
    (
        RANGE | {"timestep_bias_begin": 600, "timestep_bias_end": 600},
        "timestep_bias_begin: must be below timestep_bias_end, 600",
    ),
    (
        RANGE | {"timestep_bias_begin": 600, "max_timestep": 600},
        "timestep_bias_begin: is a range without a timestep of those that are trained, 0 to 599",
    ),
]
RESTARTS = {"schedule": "cosine_with_restarts", "warmup_steps": 5}
OF_ONE: list[tuple[str, dict[str, Any], str]] = [
    (
        "lora",
        {"lora_plus_ratio": 16, "optimizer": "prodigy"},
        "lora_plus_ratio: cannot be set with prodigy, which finds one rate for everything: leave it out",
    ),
    ("lora", {"lora_plus_ratio": 0.5}, "lora_plus_ratio: must be 1 or more, not 0.5"),
    ("lora", RESTARTS | {"schedule_cycles": 496}, "schedule_cycles: is more than the 495 steps after the warm-up"),
    (
        "lora",
        RESTARTS | {"schedule_cycles": 6, "schedule_steps": 10},
        "schedule_cycles: is more than the 5 steps after the warm-up",
    ),
    ("unet", RESTARTS | {"schedule_cycles": 11}, "schedule_cycles: is more than the 10 steps after the warm-up"),
    ("vae", {"loss_type": "huber"}, "loss_type: cannot be huber with part = vae: vae_losses says what a VAE minimises"),
    ("vae", {"min_timestep": 5}, "min_timestep: cannot be set with part = vae: a VAE has no timesteps"),
    ("vae", {"max_timestep": 5}, "max_timestep: cannot be set with part = vae: a VAE has no timesteps"),
    (
        "vae",
        {"timestep_bias_strategy": "later", "timestep_bias_multiplier": 2},
        "timestep_bias_strategy: cannot be set with part = vae: a VAE has no timesteps",
    ),
]
GOOD: list[dict[str, Any]] = [
    RESTARTS | {"schedule_cycles": 10, "schedule_floor": 0.1},
    RESTARTS | {"schedule_steps": 6},
    {"schedule": "cosine", "schedule_steps": 1000},
    {"loss_type": "huber", "huber_c": 0.2, "huber_schedule": "constant", "min_snr_gamma": 5},
    {"min_timestep": 200, "max_timestep": 800, "timestep_bias_strategy": "earlier", "timestep_bias_multiplier": 0.5},
    RANGE | {"timestep_bias_begin": 200, "timestep_bias_end": 500},
    RANGE | {"timestep_bias_end": 500, "max_timestep": 300},
]


@pytest.mark.parametrize(
    ("of", "settings", "sentence"),
    [*OF_ONE, *((of, settings, sentence) for of in ("lora", "unet") for settings, sentence in OF_ALL)],
)
def test_what_makes_no_sense_together_is_refused(of: str, settings: dict[str, Any], sentence: str) -> None:
    parse, spec = PARSED[of]
    with pytest.raises(InvalidSpec, match=f"^{re.escape(sentence)}$"):
        parse(spec | settings)


@pytest.mark.parametrize("settings", GOOD)
@pytest.mark.parametrize("of", ["lora", "unet"])
def test_what_belongs_together_is_taken(of: str, settings: dict[str, Any]) -> None:
    parse, spec = PARSED[of]
    parsed = parse(spec | settings)
    assert {name: getattr(parsed, name) for name in settings} == settings
