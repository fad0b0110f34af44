"""What libraries compute on this processor, by whichever of their paths it has, is what plain arithmetic says.

Each of them has code of its own for some processors (AVX2, AVX-512, AMX, oneDNN), chosen when it runs. Sizes here fill
neither vectors nor blocks, where such code goes wrong first.
"""

import struct
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from gangline.train.run.optimiser import ParameterGroup, make_optimizer, set_rates
from tests.train.conftest import small_spec

SIZES = [(1,), (7,), (17,), (63, 3), (33, 31), (96, 96), (5000,), (4097,)]
RATE, DECAY, STEPS = 1e-3, 0.01, 5
# Adam's moments in 8 bits stand for 32; Dettmers et al. 2022 find the same results
OFF_BY_MAX = {"adamw": 1e-5, "adamw8bit": 0.02}
PRECISIONS = [torch.float32, torch.bfloat16, torch.float16]


def off_by(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


def by_definition(
    weight: torch.Tensor, gradients: list[torch.Tensor], beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
) -> torch.Tensor:
    """Adam with decoupled weight decay, in float64 (Loshchilov and Hutter 2019, algorithm 2)."""
    weight = weight.double()
    first, second = torch.zeros_like(weight), torch.zeros_like(weight)
    for step, gradient in enumerate(gradients, 1):
        first = beta1 * first + (1 - beta1) * gradient.double()
        second = beta2 * second + (1 - beta2) * gradient.double() ** 2
        weight = weight - RATE * DECAY * weight
        weight = weight - RATE * (first / (1 - beta1**step)) / ((second / (1 - beta2**step)).sqrt() + epsilon)
    return weight


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit"])
def test_an_optimiser_moves_weights_of_any_size_as_adam_does(optimizer: Any, size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(size) / 100)  # so that rounding of the weight hides no move
    before = weight.detach().clone()
    gradients = [torch.randn(size) for _ in range(STEPS)]
    groups = [ParameterGroup({"weight": weight}, RATE)]
    made = make_optimizer(small_spec(optimizer=optimizer, weight_decay=DECAY), groups)
    set_rates(made, groups, 1.0)
    for gradient in gradients:
        weight.grad = gradient.clone()
        made.step()
    moved, wanted = weight.detach() - before, by_definition(before, gradients) - before
    assert off_by(moved, wanted) < OFF_BY_MAX[optimizer]
    assert (
        off_by(moved.flatten()[-5:], wanted.flatten()[-5:]) < 2 * OFF_BY_MAX[optimizer]
    )  # the rest after whole vectors


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit"])
def test_an_optimiser_has_the_betas_and_epsilon_that_are_asked_for(optimizer: Any) -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(5000) / 100)
    before = weight.detach().clone()
    gradients = [torch.randn(5000) for _ in range(STEPS)]
    groups = [ParameterGroup({"weight": weight}, RATE)]
    asked = {"adam_beta1": 0.7, "adam_beta2": 0.95, "adam_epsilon": 0.1}
    made = make_optimizer(small_spec(optimizer=optimizer, weight_decay=DECAY, **asked), groups)
    for gradient in gradients:
        weight.grad = gradient.clone()
        made.step()
    wanted = by_definition(before, gradients, *asked.values())
    assert off_by(weight.detach() - before, wanted - before) < OFF_BY_MAX[optimizer]


@pytest.mark.parametrize("optimizer", ["prodigy", "schedule_free"])
def test_other_optimisers_have_them_too(optimizer: Any) -> None:
    weight = torch.nn.Parameter(torch.randn(5))
    asked = {"adam_beta1": 0.7, "adam_beta2": 0.95, "adam_epsilon": 0.1}
    made = make_optimizer(small_spec(optimizer=optimizer, **asked), [ParameterGroup({"weight": weight}, RATE)])
    (group,) = made.param_groups
    assert (*group["betas"], group["eps"]) == (0.7, 0.95, 0.1)


def each_product(dtype: torch.dtype) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """What a U-Net and its encoders compute under autocast to `dtype`, beside the same in float64."""
    torch.manual_seed(0)
    x_BD, kernel_ED = torch.randn(5, 67), torch.randn(35, 67)
    image, filters = torch.randn(2, 5, 13, 11), torch.randn(7, 5, 3, 3)
    query, key, value = (torch.randn(2, 3, length, 20) for length in (19, 77, 77))
    shaped = torch.randn(2, 12, 9, 7)
    computed = {
        "linear": (functional.linear, (x_BD, kernel_ED)),
        "convolution": (lambda x, w: functional.conv2d(x, w, padding=1), (image, filters)),
        "convolution, channels last": (
            lambda x, w: functional.conv2d(x.to(memory_format=torch.channels_last), w, stride=2),
            (image, filters),
        ),
        "attention": (functional.scaled_dot_product_attention, (query, key, value)),
        "attention, causal": (
            lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
            (key, key, value),
        ),
        "attention, masked": (
            lambda q, k, v: functional.scaled_dot_product_attention(
                q, k, v, attn_mask=(torch.arange(77) < 70).expand(19, 77)
            ),
            (query, key, value),
        ),
        "group norm": (lambda x: functional.group_norm(x, 4), (shaped,)),
        "gelu": (functional.gelu, (x_BD,)),
        "silu": (functional.silu, (x_BD,)),
    }
    found = {}
    for name, (compute, given) in computed.items():
        lowered = [tensor.to(dtype) for tensor in given]
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            result = compute(*lowered)
        found[name] = (result, compute(*(tensor.double() for tensor in lowered)))
    return found


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_every_kind_of_layer_computes_what_it_does_in_double_precision_but_for_rounding(dtype: torch.dtype) -> None:
    off = {name: off_by(result, wanted) for name, (result, wanted) in each_product(dtype).items()}
    assert {name: by for name, by in off.items() if by > 4 * torch.finfo(dtype).eps} == {}


def test_the_gradients_of_a_layer_are_those_in_double_precision_but_for_rounding() -> None:
    torch.manual_seed(0)
    given = [torch.randn(shape) for shape in ((2, 5, 13, 11), (7, 5, 3, 3), (31, 7))]

    def gradients(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        image, filters, kernel = (tensor.to(dtype).requires_grad_() for tensor in given)
        seen = functional.conv2d(image, filters, padding=1).flatten(2).mT
        mixed = functional.scaled_dot_product_attention(seen, seen, seen)
        return torch.autograd.grad(functional.linear(mixed, kernel).square().mean(), (image, filters, kernel))

    for one, other in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
        assert off_by(one, other) < 1e-5


def test_an_average_of_many_weights_is_that_of_each() -> None:
    torch.manual_seed(0)
    averages, weights = ([torch.randn(size) for size in SIZES] for _ in range(2))
    wanted = [0.75 * one.double() + 0.25 * other.double() for one, other in zip(averages, weights, strict=True)]
    torch._foreach_lerp_(averages, weights, 0.25)
    assert all(off_by(one, other) < 1e-6 for one, other in zip(averages, wanted, strict=True))


def test_numbers_are_stored_in_16_bits_as_ieee_754_rounds_them() -> None:
    numbers = (
        np.random.default_rng(0).standard_normal(1013).astype(np.float32) * 10.0 ** np.arange(-8, 5).repeat(80)[:1013]
    )
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    between = (halves[:-1] + halves[1:]) / 2  # ties, which go to the even one
    for values in (numbers.astype(np.float32), between.astype(np.float32)):
        wanted = b"".join(struct.pack("<e", value) for value in values.tolist())
        assert values.astype(np.float16).tobytes() == wanted
        assert torch.from_numpy(values).to(torch.float16).numpy().tobytes() == wanted
