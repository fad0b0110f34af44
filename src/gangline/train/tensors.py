"""The types in which weights, gradients and optimiser states are passed around."""

from collections.abc import Iterable
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
"""Tensors by name."""
StateNumbers = dict[str, Any]
"""The state that is not a tensor: values that JSON can hold, by name."""


def weights_in_training(parts: Iterable[tuple[str, torch.nn.Module]]) -> dict[str, torch.nn.Parameter]:
    """Return the weights of a model's parts that learn, by name: `unet.down_blocks.0…`."""
    return {
        f"{part}.{name}": weight
        for part, module in parts
        for name, weight in module.named_parameters()
        if weight.requires_grad
    }
