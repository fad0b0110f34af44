"""Weights in training as views of one buffer, their gradients as views of another: what treats all elements alike takes one kernel for all
of them instead of one for each weight."""

import torch

from gangline.train.tensors import Tensors

ALIGNED = 64
"""Elements to whose multiples each view begins, so that products read it at full speed. The elements between views stay 0."""


class FlatWeights:
    """Float32 `weights`, by name, made views of the parameter `whole`, and their gradients views of `whole.grad`. `low` is a copy in the
    dtype in which a network computes, or `whole` itself where that is float32."""

    @torch.no_grad()
    def __init__(self, weights: dict[str, torch.nn.Parameter], dtype: torch.dtype) -> None:
        self._places: dict[str, tuple[int, torch.Size]] = {}
        length = 0
        for name, weight in weights.items():
            self._places[name] = (length, weight.shape)
            length += -(-weight.numel() // ALIGNED) * ALIGNED
        device = next(iter(weights.values())).device
        self.whole = torch.nn.Parameter(torch.zeros(length, device=device))
        self.gradient = torch.zeros(length, device=device)
        self.whole.grad = self.gradient
        self.low = self.whole.detach() if dtype == torch.float32 else torch.zeros(length, device=device, dtype=dtype)
        views, gradients = self.views(self.whole.detach()), self.views(self.gradient)
        for name, weight in weights.items():
            views[name].copy_(weight)
            weight.data, weight.grad = views[name], gradients[name]
        self.refresh()

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def views(self, of: torch.Tensor) -> Tensors:
        """Return the part of each weight in a tensor of the shape of `whole`."""
        return {name: of[start : start + shape.numel()].view(shape) for name, (start, shape) in self._places.items()}

    def joined(self, tensors: Tensors) -> torch.Tensor:
        """Return the tensor whose views are `tensors`, on the device of `whole`."""
        first = tensors[self.names[0]]
        made = torch.zeros(len(self.whole), device=self.whole.device, dtype=first.dtype)
        for name, view in self.views(made).items():
            view.copy_(tensors[name])
        return made

    def refresh(self) -> None:
        """Copy the weights to `low`, after they changed."""
        if self.low.dtype != self.whole.dtype:
            self.low.copy_(self.whole.detach())
