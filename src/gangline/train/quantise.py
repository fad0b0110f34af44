"""A frozen base's weights in 8 or 4 bits (QLoRA, Dettmers et al. 2023): stored small, computed with in full."""

from typing import Any

import torch
from bitsandbytes.functional import (
    QuantState,
    create_linear_map,
    dequantize_4bit,
    dequantize_blockwise,
    quantize_4bit,
    quantize_blockwise,
)
from torch import nn
from torch.nn import functional

from gangline.train.base import Bits

BLOCK = 64  # weights that share one scale in float32: half a bit for each weight


class QuantisedLinear(nn.Linear):
    """A linear layer that keeps its weight in `bits` bits and makes it anew, in `dtype`, forward and backward.

    It is an `nn.Linear`, so that peft puts a LoRA around it; its `weight` is no parameter.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    levels: torch.Tensor

    def __init__(self, linear: nn.Linear, bits: Bits, device: torch.device) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bits, self.dtype = bits, linear.weight.dtype
        codes, state = _quantise(linear.weight.detach().to(device), bits)
        self.register_buffer("codes", codes)
        self.register_buffer("scales", state.absmax)
        self.register_buffer("levels", state.code)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().to(device), requires_grad=False)

    @property
    def weight(self) -> torch.Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        state = QuantState(
            absmax=self.scales.float(),
            shape=torch.Size((self.out_features, self.in_features)),
            code=self.levels.float(),
            blocksize=BLOCK,
            quant_type="nf4",
            dtype=self.dtype,
        )
        restore = dequantize_4bit if self.bits == 4 else dequantize_blockwise
        return restore(self.codes, state).view(self.out_features, self.in_features)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _Product.apply(input.to(self.dtype), self)  # pyright: ignore[reportReturnType]


class _Product(torch.autograd.Function):
    """x @ weight.T + bias that keeps nothing for the way back but the layer itself."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, layer: QuantisedLinear) -> torch.Tensor:
        ctx.layer = layer
        return functional.linear(input, layer.weight, layer.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] @ ctx.layer.weight, None


def _quantise(weight: torch.Tensor, bits: Bits) -> tuple[torch.Tensor, QuantState]:
    if bits == 4:
        return quantize_4bit(weight, blocksize=BLOCK, quant_type="nf4")
    return quantize_blockwise(weight, code=create_linear_map().to(weight.device), blocksize=BLOCK)


def quantise(module: nn.Module, bits: Bits, device: torch.device) -> None:
    """Replace the linear layers of `module`'s attentions, which hold most of a U-Net, by quantised ones on `device`.

    What is small or sensitive stays as it is: convolutions, norms, the embeddings of time and sizes.
    """
    for name, parent in list(module.named_modules()):
        for child, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear) and "attentions." in f"{name}.":
                setattr(parent, child, QuantisedLinear(layer, bits, device))
