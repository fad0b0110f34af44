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
OF_ALL: list[tuple[dict[str, Any], str]] = [
    ({"huber_c": 0.2}, "huber_c: needs loss_type huber"),
    ({"huber_schedule": "constant"}, "huber_schedule: needs loss_type huber"),
]
OF_ONE: list[tuple[str, dict[str, Any], str]] = [
    ("vae", {"loss_type": "huber"}, "loss_type: cannot be huber with part = vae: vae_losses says what a VAE minimises"),
]
GOOD: list[dict[str, Any]] = [
    {"loss_type": "huber", "huber_c": 0.2, "huber_schedule": "constant", "min_snr_gamma": 5},
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
