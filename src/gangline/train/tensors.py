"""What weights, gradients and states are passed around as."""

import torch

Tensors = dict[str, torch.Tensor]
"""Tensors by their names."""
