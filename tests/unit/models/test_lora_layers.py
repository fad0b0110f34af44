"""Which layers a LoRA trains, by their names."""

from typing import Any

import pytest

from gangline.core.models.lora_layers import (
    LayerRank,
    layer_of_weight,
    layer_rank,
    patterns_without_layers,
    rate_factor_of_layer,
)
from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.specs.sections.low_rank import LowRankSettings
from tests.unit.specs.specs_of_every_setting import LORA

UP = "up_blocks.1.attentions.0.transformer_blocks.0"


@pytest.mark.parametrize(
    ("target", "module", "found"),
    [
        ("to_k", f"{UP}.attn1.to_k", True),
        ("k", f"{UP}.attn1.to_k", False),
        ("to_out.0", f"{UP}.attn1.to_out.0", True),
        ("conv_in", "conv_in", True),
        ("attn2.*", f"{UP}.attn2.to_out.0", True),
        ("attn2.*", f"{UP}.attn1.to_out.0", False),
        ("attn?.to_[kv]", f"{UP}.attn1.to_v", True),
        ("attn?.to_[kv]", f"{UP}.attn1.to_q", False),
        ("up_blocks.1.*", f"{UP}.ff.net.2", True),
        ("up_blocks.1.*", "up_blocks.11.resnets.0.conv1", False),
        ("*", "time_embedding.linear_1", True),
    ],
)
def test_a_target_is_the_end_of_a_name_or_a_pattern_of_it(target: str, module: str, found: bool) -> None:
    settings = LowRankSettings(rank=8, alpha=4.0, target_modules=(target,))
    assert layer_rank(settings, "unet", module) == (LayerRank(8, 4.0) if found else None)


def test_the_last_rank_that_matches_a_layer_counts_and_0_leaves_it_out() -> None:
    settings = LowRankSettings(
        rank=8, alpha=4.0, block_ranks=("*=16", "up_blocks.*=32:5", "attn1.to_q=0", "text_encoder.*.fc1=2")
    )
    assert layer_rank(settings, "unet", "mid_block.attentions.0.transformer_blocks.0.attn1.to_k") == LayerRank(16, 8.0)
    assert layer_rank(settings, "unet", f"{UP}.attn1.to_k") == LayerRank(32, 5.0)
    assert layer_rank(settings, "unet", f"{UP}.attn1.to_q") is None
    assert layer_rank(settings, "unet", f"{UP}.ff.net.2") is None, "it is no target"
    for module in ("text_model.encoder.layers.0.mlp.fc1", "encoder.layers.0.mlp.fc1"):
        assert layer_rank(settings, "text_encoder", module) == LayerRank(2, 1.0)
        assert layer_rank(settings, "text_encoder_2", module) == LayerRank(16, 8.0)


def test_a_layer_learns_at_the_rate_of_the_last_pattern_that_matches_it() -> None:
    settings = LowRankSettings(block_rates=("*=0.5", "up_blocks.*=2"))
    for weight in ("lora_A.default.weight", "lora_magnitude_vector.default.weight"):
        assert rate_factor_of_layer(settings, layer_of_weight(f"unet.{UP}.attn1.to_k.{weight}")) == 2
    assert rate_factor_of_layer(settings, layer_of_weight("text_encoder.encoder.layers.0.mlp.fc1.lora_B")) == 0.5
    assert rate_factor_of_layer(LowRankSettings(), "unet.conv_in") == 1


def test_patterns_that_match_nothing_are_found() -> None:
    settings = LowRankSettings(
        target_modules=("to_k", "nothing", "attn7.*"), block_ranks=("*=2", "up_blocks.9.*=4"), block_rates=("conv9=2",)
    )
    assert patterns_without_layers(settings, [f"unet.{UP}.attn1.to_k"]) == {
        "target_modules": ["attn7.*"],
        "block_ranks": ["up_blocks.9.*"],
        "block_rates": ["conv9"],
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"block_ranks": ["up_blocks.*"]}, "gives no rank: write PATTERN=RANK or PATTERN=RANK:ALPHA"),
        ({"block_ranks": ["=3"]}, "gives no rank"),
        ({"block_ranks": ["a=1025"]}, "gives no rank"),
        ({"block_ranks": ["a=-1"]}, "gives no rank"),
        ({"block_ranks": ["a=2.5"]}, "gives no rank"),
        ({"block_ranks": ["a=4:0"]}, "gives no rank"),
        ({"block_ranks": ["a=0:4"]}, "gives no rank"),
        ({"block_ranks": ["a=4:nan"]}, "gives no rank"),
        ({"block_rates": ["a=0"]}, "gives no factor: write PATTERN=FACTOR"),
        ({"block_rates": ["a=inf"]}, "gives no factor"),
        ({"block_rates": ["0.5"]}, "gives no factor"),
        ({"block_rates": ["a=0.5"], "optimizer": "prodigy"}, "prodigy, which finds one rate for everything"),
    ],
    ids=str,
)
def test_what_is_no_rank_or_rate_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSpec, match=says):
        parse_lora(to_json(LORA) | settings)


def test_ranks_are_taken_as_options_write_them() -> None:
    given = {"block_ranks": ["up_blocks.1.*=32", "a=4:2.5"], "block_rates": ["a=1e-1"]}
    spec = parse_lora(to_json(LORA) | given, options=True)
    assert isinstance(spec, LoraSpec) and spec.block_ranks == ("up_blocks.1.*=32", "a=4:2.5")
