"""Keep a frozen base's weights in 8 or 4 bits (QLoRA, Dettmers et al. 2023) and compute with them at full precision.

bitsandbytes packs and restores them, with different code on each kind of processor. So each layer's restored weights are compared once,
when the layer is made, with the definition in plain torch.
"""

import importlib.metadata
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

from gangline.core.errors import GanglineError
from gangline.core.models.families import Bits

BLOCK = 64  # weights that share one float32 scale, which costs half a bit per weight
# Quantiles of a normal distribution, zero among them (Dettmers et al. 2023, appendix E). A copy, so that a wrong table in bitsandbytes
# is noticed too.
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


class QuantisedLinear(nn.Linear):
    """A linear layer that stores its weight in `bits` bits and restores it in `dtype` for each forward and backward pass.

    It is an `nn.Linear`, so that PEFT wraps it with a LoRA; its `weight` is not a parameter.
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
        """The weight (out, in) in `dtype`, restored at each access."""
        state = QuantState(
            absmax=self.scales.float(),
            shape=torch.Size((self.out_features * self.in_features,)),
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
    """The product x @ weight.T + bias, (…, in) to (…, out), which keeps nothing for the backward pass but the layer itself."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, layer: QuantisedLinear) -> torch.Tensor:
        ctx.layer = layer
        return functional.linear(input, layer.weight, layer.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] @ ctx.layer.weight, None


def _quantise(weight: torch.Tensor, bits: Bits) -> tuple[torch.Tensor, QuantState]:
    """Pack `weight` as one flat row, so that its blocks are those that the scales count.

    Given a matrix, bitsandbytes 0.50.2 counts whole blocks in each of its rows on a processor with AVX-512, and uses the scales of other
    blocks if a row ends within one: 96 × 96 weights came back 28 % off instead of 9 %.
    """
    row = weight.flatten()
    if bits == 4:
        return quantize_4bit(row, blocksize=BLOCK, quant_type="nf4")
    return quantize_blockwise(row, code=create_linear_map().to(row.device), blocksize=BLOCK)


def by_definition(layer: QuantisedLinear) -> torch.Tensor:
    """Return the weight of `layer` (out, in) in float32 from its codes and scales by plain torch: each level times the scale of its
    block."""
    levels = layer.levels.float()
    if layer.bits == 4:  # a byte holds two codes, the first one in its upper half
        nf4 = torch.tensor(NF4, device=levels.device)
        levels = torch.cartesian_prod(nf4, nf4)
    count = layer.out_features * layer.in_features
    found = levels.index_select(0, layer.codes.flatten().int()).flatten()[:count]
    scales = layer.scales.float().repeat_interleave(BLOCK)[:count]
    return (found * scales).view(layer.out_features, layer.in_features)


def _refuse_wrong(name: str, layer: QuantisedLinear) -> None:
    """Raise `GanglineError` if `layer` restores its weight differently from the definition by more than rounding in its dtype."""
    unit = torch.finfo(layer.dtype)
    least = max(unit.tiny * unit.eps, torch.finfo(torch.float32).tiny)  # subnormal numbers may be rounded to zero
    restored, wanted = layer.weight, by_definition(layer)
    if torch.equal(restored, wanted.to(layer.dtype)):  # the usual case, and ten times as fast to check
        return
    restored = restored.float()
    if torch.isclose(restored, wanted, rtol=2 * unit.eps, atol=least, equal_nan=True).all():
        return
    off = float((restored - wanted).double().norm() / wanted.double().norm())
    raise GanglineError(
        f"{name}: bitsandbytes {importlib.metadata.version('bitsandbytes')} restores this layer's {layer.bits}-bit weights "
        f"with an error of {off:.1%} on this {layer.codes.device.type}",
        hint="set base_precision to full, or install another version of bitsandbytes on this machine",
    )


def quantise(module: nn.Module, bits: Bits, device: torch.device) -> None:
    """Replace the linear layers of `module`'s attentions, which hold most of a U-Net, with quantised ones on `device`.

    Small or sensitive layers stay as they are: convolutions, norms, the embeddings of time and sizes. Raise `GanglineError` if the restored
    weights of a layer do not match their definition.
    """
    for name, parent in list(module.named_modules()):
        for child, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear) and "attentions." in f"{name}.":
                small = QuantisedLinear(layer, bits, device)
                _refuse_wrong(f"{name}.{child}", small)
                setattr(parent, child, small)
