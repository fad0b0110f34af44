"""A linear layer with a LoRA (Hu et al. 2021) as one autograd node: no full-width product is made, scaled and added separately.

Shape letters: N samples times pieces, I O the layer's width in and out, R rank.
"""

from typing import Any, cast

import torch
from peft.tuners.lora import Linear as PeftLinear
from torch import nn
from torch.nn import functional


class LowRankLinear(PeftLinear):
    """PEFT's layer, computed with fewer passes over memory. DoRA, dropout and inference are left to PEFT."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return (…, O) for x (…, I)."""
        name = self.active_adapters[0]
        dropped = not isinstance(self.lora_dropout[name], nn.Identity)
        if not self.training or self.disable_adapters or dropped or name in self.lora_variant or args or kwargs:
            return super().forward(x, *args, **kwargs)
        down, up = (cast(nn.Linear, part[name]).weight for part in (self.lora_A, self.lora_B))
        return _Product.apply(x, down, up, self.scaling[name], self.get_base_layer())  # pyright: ignore[reportReturnType]


class _Product(torch.autograd.Function):
    """The product x (W + s·B·A)ᵀ + bias in the base's precision, (…, I) to (…, O). W is frozen; A and B are kept in float32."""

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, down_RI: torch.Tensor, up_OR: torch.Tensor, scale: float, base: nn.Linear
    ) -> torch.Tensor:
        weight_OI = base.weight
        x_NI = input.reshape(-1, input.shape[-1]).to(weight_OI.dtype)
        down, up = down_RI.to(weight_OI.dtype), up_OR.to(weight_OI.dtype)
        low_NR = x_NI @ down.T
        ctx.save_for_backward(x_NI, low_NR, down, up)
        ctx.scale, ctx.base, ctx.shape = scale, base, input.shape
        y_NO = functional.linear(x_NI, weight_OI, base.bias).addmm_(low_NR, up.T, alpha=scale)
        return y_NO.view(*input.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x_NI, low_NR, down_RI, up_OR = ctx.saved_tensors
        back_NO = gradients[0].reshape(-1, gradients[0].shape[-1])
        back_NR = (back_NO @ up_OR).mul_(ctx.scale)
        of_up = (back_NO.T @ low_NR).mul_(ctx.scale)
        of_down = back_NR.T @ x_NI
        of_input = None
        if ctx.needs_input_grad[0]:
            of_input = (back_NO @ ctx.base.weight).addmm_(back_NR, down_RI).view(ctx.shape)
        return of_input, of_down, of_up, None, None  # autograd casts each to its input's dtype
