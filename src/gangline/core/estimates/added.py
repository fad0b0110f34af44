"""What a LoRA adds to a layer: weights, and the FLOP of their products."""

from dataclasses import dataclass

from gangline.core.estimates.layers import Layer
from gangline.core.models.lora_layers import layer_rank
from gangline.core.specs.low_rank import LowRankSettings


@dataclass(frozen=True, slots=True)
class Added:
    """`flops` are those of a forward pass of one sample."""

    weights: int
    flops: int


def added_to(layer: Layer, part: str, settings: LowRankSettings) -> Added | None:
    """Return what a LoRA with these settings adds to a layer of a model; None if it leaves the layer out."""
    found = None if layer.kind == "norm" else layer_rank(settings, part, layer.name, layer.kernel)
    if found is None:
        return None
    weights = found.rank * (layer.inputs * layer.kernel**2 + layer.outputs)
    return Added(weights, 2 * weights * layer.places)
