"""What a LoRA or a LoKr adds to a layer: weights, the FLOP of their products, and what these keep."""

from dataclasses import dataclass

from gangline.core.estimates.layers import Layer
from gangline.core.models.kronecker import factors_of
from gangline.core.specs.sections.low_rank import LowRankSettings


@dataclass(frozen=True, slots=True)
class Added:
    """`flops` are those of a forward pass of one sample; `kept` is how many numbers it keeps for the backward pass besides its input, those
    of a LoRA's rank not counted."""

    weights: int
    flops: int
    kept: int = 0


def added_to(layer: Layer, rank: int, settings: LowRankSettings) -> Added:
    """Return what training with these settings adds to a layer that has this rank."""
    if settings.algorithm == "lokr":
        return _of_product(layer, rank, settings)
    weights = rank * (layer.inputs * layer.kernel**2 + layer.outputs)
    return Added(weights, 2 * weights * layer.places)


def _of_product(layer: Layer, rank: int, settings: LowRankSettings) -> Added:
    """Return what a LoKr adds: its second factor acts on each of the first one's columns, then the first on what comes of it."""
    factors, pixels = factors_of(layer.outputs, layer.inputs, settings.lokr_factor), layer.kernel**2
    (rows, groups), (outputs, inputs) = factors.first, factors.second
    if settings.lokr_second_factor == "full" or factors.whole(rank):
        second, within = outputs * inputs * pixels, 0
    elif settings.lokr_second_factor == "tucker" and pixels > 1:
        second, within = rank * (outputs + inputs + rank * pixels), 2 * rank
    else:
        second, within = rank * (outputs + inputs * pixels), rank
    each = groups * second + rows * groups * outputs
    return Added(rows * groups + second, 2 * each * layer.places, groups * (within + outputs) * layer.places)
