"""A convolution with a LoRA as one autograd node: a convolution to few channels, and one of a pixel back to all (LoCon, Yeh et al. 2024,
§3.1). The weights' shapes are those of PEFT and kohya's scripts: `down` (rank, in, height, width), `up` (out, rank, 1, 1)."""

from typing import Any

import torch
from peft.tuners.lora import Conv2d as PeftConvolution
from torch import nn
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

from gangline.train.lora.layers.low_rank import LowRankViews, OneNodeLayer


class _Convolution(torch.autograd.Function):
    """x * W + s · (x * down) * up + bias in the base's precision. W is frozen; both others are kept in float32."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        down: torch.Tensor,
        up: torch.Tensor,
        scale: float,
        base: nn.Conv2d,
        views: LowRankViews | None = None,
    ) -> torch.Tensor:
        weight = base.weight
        x = input.to(weight.dtype)
        if views:
            down, up = views.down, views.up
        else:
            down, up = down.to(weight.dtype), up.to(weight.dtype)
        low = functional.conv2d(x, down, None, *_places(base))
        ctx.save_for_backward(x, low, down, up)
        ctx.scale, ctx.base, ctx.views = scale, base, views
        return functional.conv2d(x, weight, base.bias, *_places(base)).add_(functional.conv2d(low, up), alpha=scale)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, low, down, up = ctx.saved_tensors
        back, places = gradients[0], _places(ctx.base)
        back_low = functional.conv2d(back, up.transpose(0, 1))
        of_up = conv2d_weight(low, up.shape, back)
        of_down = conv2d_weight(x, down.shape, back_low, *places)
        of_input = None
        if ctx.needs_input_grad[0]:
            of_input = conv2d_input(x.shape, ctx.base.weight, back, *places)
            of_input.add_(conv2d_input(x.shape, down, back_low, *places), alpha=ctx.scale)
        if ctx.views:
            ctx.views.up_sum.add_(of_up, alpha=ctx.scale)
            ctx.views.down_sum.add_(of_down, alpha=ctx.scale)
            return of_input, None, None, None, None, None
        return of_input, of_down.mul_(ctx.scale), of_up.mul_(ctx.scale), None, None, None


class LowRankConvolution(OneNodeLayer, PeftConvolution):
    """PEFT's layer, computed in the base's precision with no copy of the input in another."""

    node = _Convolution


def _places(base: nn.Conv2d) -> tuple[Any, Any, Any]:
    """Return where the kernel is put: stride, padding and dilation, in the order of torch's functions."""
    return base.stride, base.padding, base.dilation
