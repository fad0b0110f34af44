"""Find the settings by which PEFT makes a LoKr's factors of the sizes that a file has."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from peft import LoKrConfig

from gangline.core.errors import BadInput
from gangline.core.models.kronecker import Factors, factors_of
from gangline.core.models.lora_names import CONVOLUTIONS
from gangline.train.lora.files.adapter_file import NewLayer

WIDE = (*CONVOLUTIONS, "conv_in", "conv_out")
KERNEL = 3
"""The sides of a wide convolution's kernel in the families' U-Nets, in pixels."""
ALIKE = -1
"""PEFT's decompose_factor for factors that are about alike."""


def lokr_config(name: str, layers: Mapping[str, NewLayer]) -> LoKrConfig:
    """Return the settings for these layers by path. Raise `BadInput` with the file's `name` if PEFT makes other factors: it has one
    decompose_factor for all layers, divides w2 alone, and keeps it whole from half its size on."""
    factor = next((number for number in _numbers(layers) if _all_fit(layers, number)), None)
    cores = {_has_core(layer) for path, layer in layers.items() if _rank(layer) and path.endswith(WIDE)}
    if factor is None or len(cores) > 1:
        raise BadInput(
            f"{name} is a LoKr whose factors PEFT does not make: it has one decompose_factor for all layers, and divides w2 only",
            hint="use kohya's names, or merge it into its base with `gangline lora merge LORA --base BASE`",
        )
    ranks = {path: _rank(layer) or _least_whole(path, layer) for path, layer in layers.items()}
    alphas = {path: layer.alpha if _rank(layer) else float(ranks[path]) for path, layer in layers.items()}
    rank, alpha = usual(ranks), usual(alphas)
    return LoKrConfig(
        r=rank,
        alpha=alpha,
        rank_pattern={path: own for path, own in ranks.items() if own != rank},
        alpha_pattern={path: own for path, own in alphas.items() if own != alpha},  # pyright: ignore[reportArgumentType]
        decompose_factor=factor,
        use_effective_conv2d=True in cores,
        target_modules=sorted(layers),
    )


def usual(values: Mapping[str, Any]) -> Any:
    """Return the most frequent value."""
    return Counter(values.values()).most_common(1)[0][0]


def _numbers(layers: Mapping[str, NewLayer]) -> list[int]:
    firsts = {len(layer.tensors["lokr_w1"]) for layer in layers.values() if "lokr_w1" in layer.tensors}
    return [ALIKE, *sorted(firsts, reverse=True)]


def _all_fit(layers: Mapping[str, NewLayer], number: int) -> bool:
    return all(_fits(path, layer, number) for path, layer in layers.items())


def _fits(path: str, layer: NewLayer, number: int) -> bool:
    found = layer.tensors
    if "lokr_w1" not in found:
        return False
    first, second = found["lokr_w1"], _second(path, found)
    outputs, inputs = first.shape[0] * second[0], first.shape[1] * second[1]
    made = factors_of(outputs, inputs, None if number == ALIKE else number)
    rank = _rank(layer)
    return made == Factors((first.shape[0], first.shape[1]), second) and (rank is None or not made.whole(rank))


def _second(path: str, found: Mapping[Any, torch.Tensor]) -> tuple[int, int]:
    """Return rows and columns of w2, a convolution's without its pixels."""
    if "lokr_w2" in found:
        rows, columns = found["lokr_w2"].shape[:2]
        return rows, columns
    if "lokr_t2" in found:
        return found["lokr_w2_a"].shape[1], found["lokr_w2_b"].shape[1]
    pixels = KERNEL**2 if path.endswith(WIDE) else 1
    return len(found["lokr_w2_a"]), found["lokr_w2_b"].shape[1] // pixels


def _rank(layer: NewLayer) -> int | None:
    return len(layer.tensors["lokr_w2_b"]) if "lokr_w2_b" in layer.tensors else None


def _has_core(layer: NewLayer) -> bool:
    return "lokr_t2" in layer.tensors


def _least_whole(path: str, layer: NewLayer) -> int:
    """Return the least rank at which PEFT keeps w2 whole."""
    return -(-max(_second(path, layer.tensors)) // 2)
