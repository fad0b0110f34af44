"""Which layers of a model a LoRA trains, and with which rank, alpha and learning rate. It sees names only."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gangline.core.models.lora_names import CONVOLUTIONS, TEXT_MODULES, text_path
from gangline.core.specs.sections.low_rank import LowRankSettings
from gangline.core.specs.sections.patterns import is_pattern, matches, rank_rule, rate_rule, unmatched

OF_ADAPTER = re.compile(r"\.(lora|lokr)_.*")
"""The end of a weight's name that follows the name of its layer."""


@dataclass(frozen=True, slots=True)
class LayerRank:
    rank: int
    alpha: float


def layer_name(part: str, module: str) -> str:
    """Return the name that patterns match: the same whichever library's version names the layers of text encoders."""
    return f"{part}.{module if part == 'unet' else text_path(module)}"


def layer_of_weight(weight: str) -> str:
    """Return the layer's name for a weight in training.

    >>> layer_of_weight("unet.mid_block.attentions.0.proj_in.lora_A.default.weight")
    'unet.mid_block.attentions.0.proj_in'
    """
    part, _, module = OF_ADAPTER.sub("", weight).partition(".")
    return layer_name(part, module)


def layer_rank(settings: LowRankSettings, part: str, module: str, kernel: int = 1) -> LayerRank | None:
    """Return the rank and alpha of a linear layer, or a convolution of a kernel so wide, of a model; None if the LoRA leaves it out."""
    name, wide = layer_name(part, module), kernel > 1 and settings.conv_rank is not None
    targets = settings.target_modules if part == "unet" else TEXT_MODULES
    if not any(matches(target, name) for target in (*targets, *CONVOLUTIONS * wide)):
        return None
    found = rank_of_convolutions(settings) if wide else LayerRank(settings.rank, settings.alpha)
    for rule in map(rank_rule, settings.block_ranks):
        if matches(rule.pattern, name):
            found = LayerRank(rule.rank, _scaled(settings, rule.rank) if rule.alpha is None else rule.alpha)
    return found if found.rank else None


def rank_of_convolutions(settings: LowRankSettings) -> LayerRank:
    """Return the rank and alpha of convolutions that are wider than a pixel, where no block has others."""
    if settings.conv_rank is None:
        return LayerRank(settings.rank, settings.alpha)
    scaled = _scaled(settings, settings.conv_rank)
    return LayerRank(settings.conv_rank, scaled if settings.conv_alpha is None else settings.conv_alpha)


def _scaled(settings: LowRankSettings, rank: int) -> float:
    """Return the alpha by which layers of this rank have the scale of the others."""
    return rank * settings.alpha / settings.rank


def rate_factor_of_layer(settings: LowRankSettings, name: str) -> float:
    factors = [rule.factor for rule in map(rate_rule, settings.block_rates) if matches(rule.pattern, name)]
    return factors[-1] if factors else 1.0


def patterns_without_layers(settings: LowRankSettings, names: Iterable[str]) -> dict[str, list[str]]:
    """Return by setting the patterns that match none of a base's layers, which `names` lists."""
    known = list(names)
    given = {
        "target_modules": filter(is_pattern, settings.target_modules),
        "block_ranks": (rank_rule(text).pattern for text in settings.block_ranks),
        "block_rates": (rate_rule(text).pattern for text in settings.block_rates),
    }
    found = {setting: unmatched(patterns, known) for setting, patterns in given.items()}
    return {setting: patterns for setting, patterns in found.items() if patterns}
