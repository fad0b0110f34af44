"""A linear layer with a LoRA (Hu et al. 2021) as one autograd node: no full-width product is made, scaled and added separately.

Shape letters: N samples times pieces, I O the layer's width in and out, R rank.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, cast

import torch
from peft.tuners.lora import Linear as PeftLinear
from peft.tuners.lora import LoraLayer
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class LowRankViews:
    """The two weights in the dtype in which the layer computes, (R, I, …) and (O, R, …), and their gradients in float32, which passes add
    to."""

    down: torch.Tensor
    up: torch.Tensor
    down_sum: torch.Tensor
    up_sum: torch.Tensor


class OneNodeLayer(nn.Module, LoraLayer):
    """A layer of PEFT, computed by one autograd node. DoRA, dropout and inference are left to PEFT. With `views`, a backward pass adds to
    their sums, and hands autograd no gradient of the weights."""

    node: ClassVar[type[torch.autograd.Function]]
    views: LowRankViews | None = None

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return (…, O) for x (…, I), of a convolution (samples, O, …) for (samples, I, …)."""
        name = self.active_adapters[0]
        if not self.training or self.disable_adapters or self._is_left_to_peft(name) or args or kwargs:
            return super().forward(x, *args, **kwargs)
        down, up = (cast(nn.Linear | nn.Conv2d, part[name]).weight for part in (self.lora_A, self.lora_B))
        return self.node.apply(x, down, up, self.scaling[name], self.get_base_layer(), self.views)  # pyright: ignore[reportReturnType]

    def _is_left_to_peft(self, name: str) -> bool:
        """Return whether the layer has DoRA or dropout."""
        return name in self.lora_variant or not isinstance(self.lora_dropout[name], nn.Identity)


class _Product(torch.autograd.Function):
    """The product x (W + s·B·A)ᵀ + bias in the base's precision, (…, I) to (…, O). W is frozen; A and B are kept in float32."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        down_RI: torch.Tensor,
        up_OR: torch.Tensor,
        scale: float,
        base: nn.Linear,
        views: LowRankViews | None = None,
    ) -> torch.Tensor:
        weight_OI = base.weight
        x_NI = input.reshape(-1, input.shape[-1]).to(weight_OI.dtype)
        if views:
            down, up = views.down, views.up
        else:
            down, up = down_RI.to(weight_OI.dtype), up_OR.to(weight_OI.dtype)
        low_NR = x_NI @ down.T
        ctx.save_for_backward(x_NI, low_NR, down, up)
        ctx.scale, ctx.base, ctx.shape, ctx.views = scale, base, input.shape, views
        y_NO = functional.linear(x_NI, weight_OI, base.bias).addmm_(low_NR, up.T, alpha=scale)
        return y_NO.view(*input.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x_NI, low_NR, down_RI, up_OR = ctx.saved_tensors
        back_NO = gradients[0].reshape(-1, gradients[0].shape[-1])
        back_NR = back_NO @ up_OR
        of_down = of_up = of_input = None
        if ctx.views:
            add_product(ctx.views.up_sum, back_NO.T, low_NR, ctx.scale)
            add_product(ctx.views.down_sum, back_NR.T, x_NI, ctx.scale)
        else:  # autograd casts each to its weight's dtype
            of_up = (back_NO.T @ low_NR).mul_(ctx.scale)
            of_down = (back_NR.T @ x_NI).mul_(ctx.scale)
        if ctx.needs_input_grad[0]:
            of_input = (back_NO @ ctx.base.weight).addmm_(back_NR, down_RI, alpha=ctx.scale).view(ctx.shape)
        return of_input, of_down, of_up, None, None, None


def add_product(to: torch.Tensor, one: torch.Tensor, other: torch.Tensor, scale: float) -> None:
    """Add `scale` times the product of two matrices to a float32 matrix, whose sums a card does not round to the matrices' dtype."""
    if one.dtype == to.dtype:
        to.addmm_(one, other, alpha=scale)
    elif adds_to_float32(one.device.type, one.dtype):
        torch.addmm(to, one, other, out_dtype=to.dtype, alpha=scale, out=to)
    else:
        to.add_(one @ other, alpha=scale)


class LowRankLinear(OneNodeLayer, PeftLinear):
    """PEFT's layer, computed with fewer passes over memory."""

    node = _Product


@cache
def adds_to_float32(device: str, dtype: torch.dtype) -> bool:
    """Return whether this kind of device multiplies matrices of `dtype` into float32 ones, and does it right."""
    if device == "meta":
        return True
    one, other = (torch.arange(16 * 16, device=device).view(16, 16).remainder(by).to(dtype) for by in (5, 7))
    to = torch.full((16, 16), 0.5, device=device)
    try:
        torch.addmm(to, one, other, out_dtype=to.dtype, alpha=2, out=to)
    except (RuntimeError, NotImplementedError):
        return False
    return torch.equal(to, 0.5 + 2 * (one.float() @ other.float()))
