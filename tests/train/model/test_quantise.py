"""A base in 8 or 4 bits: close to the full one, smaller by what is promised, and a LoRA on it learns."""

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig
from torch.nn import functional

from gangline.core.errors import GanglineError
from gangline.train.model import quantise as quantising
from gangline.train.model.base import BITS, Bits, load_base
from gangline.train.model.quantise import BLOCK, QuantisedLinear, by_definition, quantise
from tests.conftest import BASE

CPU = torch.device("cpu")
OFF_BY_MAX: dict[Bits, float] = {8: 0.01, 4: 0.12}
DTYPES = [torch.float32, torch.bfloat16]
# (out, in): rows of whole blocks; rows that end within one, of whole vectors of AVX-512 or not; the last block not full
SHAPES = [(128, 192), (96, 96), (40, 72), (64, 48), (16, 224), (5, 16), (10, 13), (3, 6)]


def linear(dtype: torch.dtype, shape: tuple[int, int] = (128, 192)) -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(shape[1], shape[0]).to(dtype).requires_grad_(False)


class Attentions(torch.nn.Module):
    """A module with one linear layer of each shape below `attentions`, as a U-Net has them."""

    def __init__(self, shapes: list[tuple[int, int]]) -> None:
        super().__init__()
        self.attentions = torch.nn.ModuleList(linear(torch.float32, shape) for shape in shapes)


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


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("bits", [8, 4])
def test_a_layer_of_any_size_computes_with_its_weight_as_defined(
    bits: Bits, dtype: torch.dtype, shape: tuple[int, int], rows: int
) -> None:
    full = linear(dtype, shape)
    small = QuantisedLinear(full, bits, CPU)
    weight = by_definition(small).to(dtype)
    assert off_by(small.weight, weight) <= torch.finfo(dtype).eps
    assert off_by(weight, full.weight) < OFF_BY_MAX[bits]
    input_BD = torch.randn(rows, shape[1], dtype=dtype, requires_grad=True)
    wanted = functional.linear(input_BD, weight, full.bias)
    output = small(input_BD)
    sent_back = torch.randn_like(output)
    assert off_by(output, wanted) <= 2 * torch.finfo(dtype).eps
    one, other = (torch.autograd.grad(of, input_BD, sent_back)[0] for of in (output, wanted))
    assert off_by(one, other) <= 2 * torch.finfo(dtype).eps


def a_fast_path(codes: torch.Tensor, state: Any) -> torch.Tensor:
    """Restore NF4 as bitsandbytes 0.50.2 does with AVX-512: each row begins after the whole blocks of those before it."""
    *before, inner = state.shape
    pairs = torch.stack((codes >> 4, codes & 15), dim=-1).view(-1, inner)
    firsts = torch.arange(len(pairs))[:, None] * (inner // BLOCK)
    scales = state.absmax[firsts + torch.arange(inner) // BLOCK]
    return (state.code[pairs.int()] * scales).to(state.dtype).view(*before, inner)


def by_a_wrong_scale(codes: torch.Tensor, state: Any) -> torch.Tensor:
    """Restore with each block's scale taken for its neighbour's."""
    return by_blocks(codes, state, state.absmax.roll(1))


def by_blocks(codes: torch.Tensor, state: Any, absmax: torch.Tensor) -> torch.Tensor:
    codes = torch.stack((codes >> 4, codes & 15), dim=-1) if len(state.code) == 16 else codes
    return (state.code[codes.flatten().int()] * absmax.repeat_interleave(BLOCK)).to(state.dtype)


def test_a_library_whose_fast_path_counts_blocks_by_row_restores_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantising, "dequantize_4bit", a_fast_path)
    module = Attentions(SHAPES)
    quantise(module, 4, CPU)
    assert all(isinstance(layer, QuantisedLinear) for layer in module.attentions)


@pytest.mark.parametrize(("bits", "restores"), [(4, "dequantize_4bit"), (8, "dequantize_blockwise")])
def test_a_layer_that_the_library_restores_wrongly_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, bits: Bits, restores: str
) -> None:
    monkeypatch.setattr(quantising, restores, by_a_wrong_scale)
    with pytest.raises(
        GanglineError, match=rf"^attentions\.0: bitsandbytes .* {bits}-bit weights with an error of .*% on this cpu$"
    ) as told:
        quantise(Attentions([(128, 192)]), bits, CPU)
    assert "base_precision" in told.value.hint


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_value_is_enough_to_refuse_a_layer(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    def all_but_one(codes: torch.Tensor, state: Any) -> torch.Tensor:
        restored = by_blocks(codes, state, state.absmax)
        restored[-1] *= 1 + 4 * torch.finfo(dtype).eps
        return restored

    monkeypatch.setattr(quantising, "dequantize_4bit", all_but_one)
    with pytest.raises(GanglineError, match=r"^attentions\.0: "):
        quantise(Attentions([(128, 192)]).to(dtype), 4, CPU)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_library_that_rounds_otherwise_is_taken(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    def rounded_up(codes: torch.Tensor, state: Any) -> torch.Tensor:
        restored = by_blocks(codes, state, state.absmax)
        return restored.nextafter(torch.full_like(restored, torch.inf))

    monkeypatch.setattr(quantising, "dequantize_4bit", rounded_up)
    quantise(Attentions([(128, 192)]).to(dtype), 4, CPU)


def test_a_base_with_weights_of_zero_or_next_to_it_is_not_refused() -> None:
    module = Attentions([(96, 96), (96, 96), (96, 96)])
    for layer, size in zip(module.attentions, (0.0, 1e-42, 1e-30), strict=True):
        layer.weight.mul_(size)  # pyright: ignore[reportCallIssue]
    for bits in (8, 4):
        quantise(copy.deepcopy(module), bits, CPU)


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
