"""The type in which weights, gradients and optimiser states are passed around."""

import torch

Tensors = dict[str, torch.Tensor]
"""Tensors by name."""
