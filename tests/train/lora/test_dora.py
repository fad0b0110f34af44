"""A DoRA begins as its base, whatever that is stored in."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.lora import LoraLayer

from gangline.train.lora.adapter import Adapter
from gangline.train.lora.export import write_kohya
from gangline.train.model.base import load_base
from tests.conftest import BASE
from tests.train.conftest import small_spec
from tests.train.lora.test_export import facts_of

TARGETS = ("to_k", "ff.net.2", "conv1", "proj_in", "time_emb_proj")


def begun(dtype: torch.dtype, bits: Any, **settings: Any) -> Adapter:
    base = load_base(BASE, torch.device("cpu"), dtype, base_precision=bits)
    return Adapter(base, small_spec(dora=True, target_modules=TARGETS, **settings))


def magnitudes(adapter: Adapter) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Of each layer what it begins with, and the norms of its weights in double precision."""
    found = {}
    for part, module in adapter.parts.items():
        for name, layer in module.named_modules():
            if isinstance(layer, LoraLayer):
                weight = layer.get_base_layer().weight.detach().double().flatten(1)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
                magnitude = layer.lora_magnitude_vector["default"].weight.detach()  # pyright: ignore[reportAttributeAccessIssue]
                found[f"{part}.{name}"] = magnitude, weight.norm(dim=1)
    return found


@pytest.mark.parametrize("bits", ["full", "8bit", "4bit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_each_output_begins_with_the_norm_of_its_weights_but_for_rounding_in_float32(
    dtype: torch.dtype, bits: str
) -> None:
    found = magnitudes(begun(dtype, bits, train_text_encoder=True))
    assert {len(magnitude.shape) for magnitude, _ in found.values()} == {1, 4}, "layers and convolutions"
    for name, (magnitude, norms) in found.items():
        assert magnitude.dtype == torch.float32
        torch.testing.assert_close(magnitude.flatten().double(), norms, atol=0, rtol=1e-6, msg=name)


@torch.no_grad()
def test_a_dora_on_a_bfloat16_base_predicts_at_first_what_the_base_does() -> None:
    adapter = begun(torch.bfloat16, "full")
    layers = [one for one in adapter.parts["unet"].modules() if isinstance(one, LoraLayer)]
    for layer in layers:
        original: Any = layer.get_base_layer()
        size = (2, original.in_channels, 8, 8) if original.weight.dim() == 4 else (2, original.in_features)
        x = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float32).to(torch.bfloat16)
        assert torch.equal(layer(x), original(x))  # pyright: ignore[reportCallIssue]


@torch.no_grad()
@pytest.mark.parametrize("bits", ["full", "4bit"])
def test_a_dora_in_kohyas_file_goes_on_as_what_it_was_on_a_base_of_low_precision(tmp_path: Path, bits: str) -> None:
    trained = begun(torch.bfloat16, bits)
    generator = torch.Generator().manual_seed(3)
    for weight in trained.weights.values():
        weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)
    file = write_kohya(tmp_path, trained.as_parts(), 1, small_spec(dora=True, rank=4), facts_of("sdxl"))
    again = begun(torch.bfloat16, bits)
    again.start_from(file, load_base(BASE, torch.device("cpu"), torch.bfloat16))
    for name, weight in trained.weights.items():
        torch.testing.assert_close(again.weights[name], weight, atol=0, rtol=1e-5, msg=name)
