"""The types in which weights, gradients and optimiser states are passed around."""

from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
"""Tensors by name."""
StateNumbers = dict[str, Any]
"""The state that is not a tensor: values that JSON can hold, by name."""
