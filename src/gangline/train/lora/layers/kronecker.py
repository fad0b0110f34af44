"""Layers with a LoKr: the change of a weight is the Kronecker product s · w1 ⊗ w2 (Edalati et al. 2022, eq. 3; LyCORIS, Yeh et al. 2024,
§3.2), which is never computed as a whole.

An input of m · n numbers is a matrix X of m rows. It is multiplied by w2 (k, n), or by the tensors that w2 is a product of, and then by w1
(l, m): (w1 ⊗ w2) vec(X) = vec(w1 X w2ᵀ), row by row. In a convolution w2 is the kernel of m groups of n channels that share it.
"""

from typing import Any, ClassVar

import torch
from peft.tuners.lokr import LoKrModel
from peft.tuners.lokr.layer import Conv2d, Linear
from torch import nn
from torch.nn import functional


class KroneckerLinear(Linear):
    """PEFT's layer and its weights, computed factor by factor."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return (…, l · k) for x (…, m · n)."""
        result = self.base_layer(x, *args, **kwargs)
        return result if self.disable_adapters else _sum(result, self._change(x, self.active_adapters[0]))

    def _change(self, x: torch.Tensor, name: str) -> torch.Tensor:
        first = self.lokr_w1[name] * self.scaling[name]
        grouped = _in_dtype_of(first, x).unflatten(-1, (first.shape[1], -1))
        if name in self.lokr_w2:
            second = functional.linear(grouped, self.lokr_w2[name])
        else:
            second = functional.linear(functional.linear(grouped, self.lokr_w2_b[name]), self.lokr_w2_a[name])
        return functional.linear(second.transpose(-1, -2), first).transpose(-1, -2).flatten(-2)


class KroneckerConvolution(Conv2d):
    """PEFT's layer and its weights, computed factor by factor."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return (samples, l · k, …) for x (samples, m · n, …)."""
        result = self.base_layer(x, *args, **kwargs)
        return result if self.disable_adapters else _sum(result, self._change(x, self.active_adapters[0]))

    def _change(self, x: torch.Tensor, name: str) -> torch.Tensor:
        first = self.lokr_w1[name] * self.scaling[name]
        groups = first.shape[1]
        second = self._second(_in_dtype_of(first, x).unflatten(1, (groups, -1)).flatten(0, 1), name)
        pixels = second.shape[-2:]
        return (first @ second.unflatten(0, (-1, groups)).flatten(2)).unflatten(-1, (-1, *pixels)).flatten(1, 2)

    def _second(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Return (samples · m, k, …) for x (samples · m, n, …)."""
        base: Any = self.get_base_layer()
        places = (None, base.stride, base.padding, base.dilation)
        if name in self.lokr_w2:
            return functional.conv2d(x, self.lokr_w2[name], *places)
        up, down = self.lokr_w2_a[name], self.lokr_w2_b[name]
        if name not in self.lokr_t2:
            low = functional.conv2d(x, down.unflatten(1, (-1, *base.kernel_size)), *places)
            return functional.conv2d(low, up[:, :, None, None])
        low = functional.conv2d(x, down[:, :, None, None])
        return functional.conv2d(functional.conv2d(low, self.lokr_t2[name], *places), up.T[:, :, None, None])


class KroneckerModel(LoKrModel):
    """PEFT's way to put these layers into a model."""

    layers_mapping: ClassVar[dict[type[nn.Module], Any]] = {nn.Conv2d: KroneckerConvolution, nn.Linear: KroneckerLinear}  # pyright: ignore[reportIncompatibleVariableOverride]


def _in_dtype_of(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the input in the dtype of the weights, which autocast brings into its own."""
    casts = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    return x if casts else x.to(weight.dtype)


def _sum(result: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    return result + change.to(result.dtype)
