"""The layer that training computes with: PEFT's numbers, in fewer passes."""

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from gangline.train.learning.flat import FlatWeights
from gangline.train.lora.layers.low_rank import LowRankLinear, LowRankViews
from gangline.train.model.quantise import QuantisedLinear

DTYPES = {torch.float32: 1e-6, torch.bfloat16: 1e-2}


class Layers(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.proj = base


def pair(base: nn.Module, **settings: Any) -> tuple[Any, Any]:
    """PEFT's own and ours around the same layer, with the same weights."""
    found = []
    for ours in (False, True):
        config = LoraConfig(r=4, lora_alpha=10, target_modules=["proj"], init_lora_weights=False, **settings)
        if ours:
            config._register_custom_module({nn.Linear: LowRankLinear})
        torch.manual_seed(1)
        layers = inject_adapter_in_model(config, Layers(copy.deepcopy(base)))
        assert isinstance(layers.proj, LowRankLinear) == ours
        for name, weight in layers.named_parameters():
            weight.requires_grad_("lora_" in name)
            weight.data = weight.data.float() if "lora_" in name else weight.data
        found.append(layers.train())
    return found[0], found[1]


def linear(dtype: torch.dtype, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(48, 32, bias=bias).to(dtype).requires_grad_(False)


def learned(layers: Any, input: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """The output, and the gradients of the input and of both weights."""
    input = input.clone().requires_grad_()
    torch.manual_seed(2)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        output = layers.proj(input)
    sent_back = torch.randn(output.shape, generator=torch.Generator().manual_seed(3)).to(output.dtype)
    weights = [weight for weight in layers.parameters() if weight.requires_grad]
    return [output.detach(), *torch.autograd.grad(output, [input, *weights], sent_back)]


def assert_alike(peft: Any, ours: Any, input: torch.Tensor, dtype: torch.dtype) -> None:
    for one, other in zip(learned(peft, input, dtype), learned(ours, input, dtype), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        off_by = (one.float() - other.float()).norm() / one.float().norm()
        assert off_by < DTYPES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_it_computes_what_peft_computes(dtype: torch.dtype, bias: bool) -> None:
    peft, ours = pair(linear(dtype, bias))
    assert_alike(peft, ours, torch.randn(2, 7, 48), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_around_a_quantised_layer_too(dtype: torch.dtype) -> None:
    peft, ours = pair(QuantisedLinear(linear(dtype), 8, torch.device("cpu")))
    assert_alike(peft, ours, torch.randn(2, 7, 48), dtype)


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"lora_dropout": 0.5}])
def test_what_it_does_not_know_is_left_to_peft(settings: dict[str, Any]) -> None:
    peft, ours = pair(linear(torch.float32), **settings)
    for one, other in zip(*(learned(each, torch.ones(2, 7, 48), torch.float32) for each in (peft, ours)), strict=True):
        assert torch.equal(one, other)


def test_switched_off_it_is_the_base_alone() -> None:
    _, ours = pair(linear(torch.float32))
    ours.proj.enable_adapters(False)
    input = torch.randn(2, 48)
    assert torch.equal(ours.proj(input), ours.proj.get_base_layer()(input))


def test_to_the_numbers_of_the_definition() -> None:
    """Against finite differences, in double precision."""
    from gangline.train.lora.layers.low_rank import _Product

    base = linear(torch.float64)
    shapes = ((3, 48), (4, 48), (32, 4))
    input, down, up = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    assert torch.autograd.gradcheck(lambda *given: _Product.apply(*given, 0.5, base), (input, down, up))


@pytest.mark.parametrize("dtype", DTYPES)
def test_with_views_it_adds_its_gradient_to_them_for_each_pass(dtype: torch.dtype) -> None:
    peft, ours = pair(linear(dtype))
    flat = FlatWeights({name: weight for name, weight in ours.named_parameters() if weight.requires_grad}, dtype)
    low, sums = flat.views(flat.low), flat.views(flat.gradient)
    down, up = (f"proj.lora_{which}.default.weight" for which in "AB")
    ours.proj.views = LowRankViews(low[down], low[up], sums[down], sums[up])
    input = torch.randn(2, 7, 48).to(dtype)
    for _ in range(2):
        ours.proj(input).float().square().sum().backward()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            peft.proj(input).float().square().sum().backward()
    for name, weight in peft.named_parameters():
        if weight.requires_grad:
            own = ours.get_parameter(name)
            assert (own.grad - weight.grad).norm() < 2 * DTYPES[dtype] * weight.grad.norm()
            assert own.grad.data_ptr() == sums[name].data_ptr()
    assert torch.equal(flat.joined(flat.views(flat.gradient)), flat.gradient), "nothing lies between the views"
