"""A base in 8 or 4 bits: close to the full one, smaller by what is promised, and a LoRA on it learns."""

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig
from torch.nn import functional

from gangline.train.base import BITS, Bits, load_base
from gangline.train.quantise import BLOCK, QuantisedLinear, quantise
from tests.conftest import BASE

CPU = torch.device("cpu")
OFF_BY_MAX: dict[Bits, float] = {8: 0.01, 4: 0.12}
DTYPES = [torch.float32, torch.bfloat16]


def linear(dtype: torch.dtype) -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(192, 128).to(dtype).requires_grad_(False)


def off_by(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.float() - other.float()).norm() / other.float().norm())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantised_layer_is_close_to_the_full_one_and_its_gradient_is_its_own(bits: Bits, dtype: torch.dtype) -> None:
    full = linear(dtype)
    small = QuantisedLinear(full, bits, CPU)
    input_BD = torch.randn(32, 192, dtype=dtype, requires_grad=True)
    output = small(input_BD)
    assert output.dtype == dtype
    assert off_by(small.weight, full.weight) < OFF_BY_MAX[bits]
    assert off_by(output, full(input_BD)) < OFF_BY_MAX[bits]
    again = functional.linear(input_BD, small.weight, small.bias)
    sent_back = torch.randn_like(output)
    assert torch.equal(output, again)
    (gradient,) = torch.autograd.grad(output, input_BD, sent_back)
    (wanted,) = torch.autograd.grad(again, input_BD, sent_back)
    assert torch.equal(gradient, wanted)


@pytest.mark.parametrize("bits", [8, 4])
def test_the_weights_take_the_bits_and_one_scale_for_each_block(bits: Bits) -> None:
    full = linear(torch.bfloat16)
    small = QuantisedLinear(full, bits, CPU)
    count = full.weight.numel()
    held = small.codes.nbytes + small.scales.nbytes
    assert held == count * bits // 8 + 4 * count // BLOCK
    assert small.levels.nbytes <= 4 * 256
    assert [name for name, _ in small.named_parameters()] == ["bias"]


def test_the_graph_keeps_no_full_weight_for_the_way_back() -> None:
    kept: list[tuple[int, ...]] = []
    small = QuantisedLinear(linear(torch.float32), 8, CPU)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tuple(tensor.shape)), lambda none: none):
        small(torch.randn(4, 192, requires_grad=True))
    assert (128, 192) not in kept


def unet(precision: Any) -> Any:
    torch.manual_seed(0)
    return load_base(BASE, CPU, torch.float32, base_precision=precision).unet


def predict(unet: Any) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    tokens, pooled = torch.randn(1, 24, 128, generator=generator), torch.randn(1, 64, generator=generator)
    sizes = torch.tensor([[64.0, 64, 0, 0, 64, 64]])
    noisy = torch.randn(1, 4, 16, 16, generator=generator)
    return unet(noisy, 500, tokens, added_cond_kwargs={"text_embeds": pooled, "time_ids": sizes}).sample


@pytest.mark.parametrize("precision", ["8bit", "4bit"])
def test_a_quantised_base_predicts_nearly_the_same(precision: str) -> None:
    with torch.no_grad():
        assert off_by(predict(unet(precision)), predict(unet("full"))) < OFF_BY_MAX[BITS[precision]]


def test_only_the_attentions_are_quantised() -> None:
    small = [name for name, module in unet("4bit").named_modules() if isinstance(module, QuantisedLinear)]
    assert small and all("attentions." in name for name in small)
    assert any(name.endswith("to_out.0") for name in small) and any(name.endswith("ff.net.2") for name in small)


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("precision", ["8bit", "4bit"])
def test_a_lora_on_a_quantised_base_learns(precision: str, dora: bool) -> None:
    base = unet(precision)
    before = copy.deepcopy({name: buffer for name, buffer in base.named_buffers() if name.endswith("codes")})
    base.add_adapter(LoraConfig(r=4, lora_alpha=4, use_dora=dora, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
    trained = [weight for weight in base.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    target = torch.zeros(1, 4, 16, 16)
    losses = []
    for _ in range(5):
        loss = functional.mse_loss(predict(base), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    after = {name.replace(".base_layer", ""): buffer for name, buffer in base.named_buffers()}
    assert before and all(torch.equal(buffer, after[name]) for name, buffer in before.items())


def test_a_quantised_base_gives_the_same_bits_each_time() -> None:
    with torch.no_grad():
        assert torch.equal(predict(unet("4bit")), predict(unet("4bit")))


def test_what_has_no_attention_is_left_as_it_is() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 64))
    quantise(module, 8, CPU)
    assert type(module[0]) is torch.nn.Linear
