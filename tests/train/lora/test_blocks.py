"""Blocks with ranks and rates of their own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from safetensors import safe_open
from safetensors.torch import load_file

from gangline.core.errors import BadInput
from gangline.core.models.families import SDXL
from gangline.core.models.lora_names import kohya_stem
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.export import write_diffusers, write_kohya
from gangline.train.lora.init_lora import read_lora
from gangline.train.model.base import load_base
from gangline.train.run.optimiser import make_groups
from tests.conftest import BASE
from tests.train.conftest import lay_out, small_spec
from tests.train.learners import learner_of, take_step
from tests.train.lora.test_export import effects, facts_of

SETTINGS: dict[str, Any] = {
    "rank": 4,
    "alpha": 2.0,
    "target_modules": ("attn2.*", "ff.net.2"),
    "block_ranks": ("up_blocks.*=3:7.5", "mid_block.*=0", "text_encoder_2.*=2"),
    "block_rates": ("down_blocks.*=0.25", "text_encoder.*.fc1=3"),
    "train_text_encoder": True,
    "text_encoder_learning_rate": 2e-4,
}


def adapter_of(**settings: Any) -> Adapter:
    return Adapter(load_base(BASE, torch.device("cpu"), torch.float32), small_spec(**(SETTINGS | settings)))


@torch.no_grad()
def as_if_trained(adapter: Adapter) -> Adapter:
    generator = torch.Generator().manual_seed(3)
    for weight in adapter.weights.values():
        weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    return adapter


def rank_and_alpha(part: str, module: str) -> tuple[int, float] | None:
    """By hand."""
    if part != "unet":
        return (2, 1.0) if part == "text_encoder_2" else (4, 2.0)
    if module.startswith("mid_block"):
        return None
    return (3, 7.5) if module.startswith("up_blocks") else (4, 2.0)


def test_each_layer_has_the_rank_and_alpha_of_its_block() -> None:
    adapter = adapter_of()
    parts = adapter.as_parts()
    for part, one in parts.items():
        for module, layer in one.layers():
            assert (layer.down.shape[0], layer.alpha) == rank_and_alpha(part, module), module
            assert layer.scale == adapter.parts[part].get_submodule(module).scaling["default"]
    unet = {module for module, _ in parts["unet"].layers()}
    assert all(".attn2." in module or module.endswith("ff.net.2") for module in unet)
    known = {
        name.partition(".base_layer")[0] for name, _ in adapter.parts["unet"].named_modules() if ".attn2.to_q" in name
    }
    outside = {name for name in known if not name.startswith("mid_block.") and ".lora_" not in name}
    assert outside and outside <= unet


def test_both_files_have_each_layers_rank_and_alpha(tmp_path: Path) -> None:
    adapter = as_if_trained(adapter_of())
    parts, layers = adapter.as_parts(), 1
    diffusers = write_diffusers(tmp_path, parts)
    kohya = write_kohya(tmp_path, parts, layers, small_spec(**SETTINGS), facts_of("sdxl"))
    tensors = load_file(kohya)
    for part, one in parts.items():
        for module, layer in one.layers():
            stem = kohya_stem(SDXL, part, module, layers)
            assert float(tensors[f"{stem}.alpha"]) == layer.alpha
            assert tensors[f"{stem}.lora_down.weight"].shape[0] == layer.down.shape[0]
    with safe_open(kohya, framework="pt") as opened:
        assert opened.metadata()["ss_network_dim"] == opened.metadata()["ss_network_alpha"] == "Dynamic"
    pipeline = StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True, torch_dtype=torch.float32)
    pipeline.load_lora_weights(diffusers.parent, weight_name=diffusers.name)
    for part, module in adapter.parts.items():
        wanted, found = effects_of(module), effects(pipeline, part, pipeline.get_active_adapters()[0])
        assert found.keys() == wanted.keys() and wanted
        for layer, weight in wanted.items():
            torch.testing.assert_close(found[layer], weight, atol=1e-6, rtol=1e-5)


def effects_of(module: Any) -> dict[str, torch.Tensor]:
    """What each layer's weight becomes: W + alpha / rank · B A (Hu et al. 2021, eq. 3)."""
    found = {}
    for name, layer in module.named_modules():
        if hasattr(layer, "lora_A"):
            up, down = layer.lora_B["default"].weight, layer.lora_A["default"].weight
            scale = layer.lora_alpha["default"] / down.shape[0]
            found[name] = (layer.get_base_layer().weight + scale * (up @ down)).detach()
    return found


def test_what_was_written_is_read_to_the_bit_by_a_job_of_the_same_ranks(tmp_path: Path) -> None:
    parts = as_if_trained(adapter_of()).as_parts()
    fresh = adapter_of().as_parts()
    for file in (
        write_diffusers(tmp_path, parts),
        write_kohya(tmp_path, parts, 1, small_spec(**SETTINGS), facts_of("sdxl")),
    ):
        back = read_lora(file, SDXL, fresh, 1)
        for part, one in parts.items():
            assert back[part].keys() == one.weights.keys()
            assert all(torch.equal(back[part][name], weight) for name, weight in one.weights.items())


def test_each_weight_is_in_the_group_of_its_rate() -> None:
    adapter = adapter_of()
    groups = make_groups(small_spec(**SETTINGS), adapter.weights)
    found = {name: (group.learning_rate, group.metric) for group in groups for name in group.weights}
    assert found.keys() == adapter.weights.keys()
    for name, (rate, metric) in found.items():
        if name.startswith("unet."):
            assert (rate, metric) == (1e-3 * (0.25 if "down_blocks" in name else 1), "learning_rate")
        else:
            factor = 3 if ".fc1." in name and name.startswith("text_encoder.") else 1
            assert (rate, metric) == (2e-4 * factor, "text_encoder_learning_rate")
    assert len(groups) == 4


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit", "schedule_free"])
def test_a_factor_of_0_point_25_moves_a_weight_a_quarter_as_far(tmp_path: Path, optimizer: Any) -> None:
    """Adam's first step is as long as its rate (Kingma and Ba 2015, §2.1)."""
    spec = small_spec(
        optimizer=optimizer, block_rates=("down_blocks.*=0.25",), weight_decay=0.0, target_modules=("to_k",), steps=2
    )
    learner, batches = learner_of(lay_out(tmp_path / "run", spec))
    before = {name: weight.detach().clone() for name, weight in learner.weights.items()}
    take_step(learner, batches, 1)
    for name, weight in learner.weights.items():
        if "lora_B" in name:
            moved = float((weight - before[name]).abs().max())
            assert moved == pytest.approx(1e-3 * (0.25 if "down_blocks" in name else 1), rel=0.02)
    assert learner.gauges() == {"learning_rate": pytest.approx(1e-3)}
    batches.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"block_ranks": ("up_blocks.9.*=4",)},
            r"block_ranks do not fit this base: no layer's name matches up_blocks\.9",
        ),
        ({"block_rates": ("attn3.*=4",)}, "block_rates do not fit this base"),
        ({"target_modules": ("to_q", "attn3.*")}, "target_modules do not fit this base"),
        ({"block_ranks": ("unet.*=0",)}, "block_ranks leave no layer of unet to train"),
    ],
    ids=str,
)
def test_patterns_that_fit_no_layer_of_the_base_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        adapter_of(**settings)
