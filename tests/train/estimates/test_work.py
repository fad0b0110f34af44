"""What `gangline.core.estimates` counts, beside what torch counts of the libraries' own models. They are on no device, so nothing runs."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from peft import LoraConfig
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from gangline.core.estimates.layers import (
    Attention,
    Layer,
    decoder_layers,
    embedding_weights,
    encoder_layers,
    text_layers,
    unet_layers,
)
from gangline.core.estimates.work import Trained, training_work
from gangline.core.models.architecture import PUBLISHED_VAE, UNet, unet_of_config
from gangline.core.models.families import SD2, SD15, SDXL, TextEncoder
from gangline.core.specs.sections.low_rank import ATTENTION, LowRankSettings
from tests.conftest import BASE

META = torch.device("meta")
RANK = 16
TINY = json.loads((BASE / "unet" / "config.json").read_text())
SD: dict[str, Any] = {"block_out_channels": [320, 640, 1280, 1280], "layers_per_block": 2, "in_channels": 4}
SD["down_block_types"] = ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"]
PUBLISHED: dict[str, dict[str, Any]] = {
    "sd15": SD | {"cross_attention_dim": 768, "attention_head_dim": 8},
    "sd2": SD | {"cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20], "use_linear_projection": True},
    "sdxl": {
        "block_out_channels": [320, 640, 1280],
        "layers_per_block": 2,
        "in_channels": 4,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "transformer_layers_per_block": [1, 2, 10],
        "cross_attention_dim": 2048,
        "attention_head_dim": [5, 10, 20],
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    },
    "tiny": TINY,
}
"""What the config.json of the published bases says, as far as it is not what diffusers has by itself; and the tiny base's."""
SIDES = {"sd15": 512, "sd2": 256, "sdxl": 512, "tiny": 128}


def unet_on_meta(name: str) -> Any:
    with META:
        return UNet2DConditionModel.from_config(PUBLISHED[name])


def flops(work: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def passes(unet: Any, side: int) -> Callable[[], object]:
    """Forwards and backwards, for one sample."""
    latents = torch.empty(1, 4, side // 8, side // 8, device=META)
    text = torch.empty(1, 77, unet.config["cross_attention_dim"], device=META)
    more: dict[str, Any] = {}
    if unet.config["addition_embed_type"]:
        pooled = unet.config["projection_class_embeddings_input_dim"] - 6 * unet.config["addition_time_embed_dim"]
        sizes = torch.empty(1, 6, device=META)
        more["added_cond_kwargs"] = {"text_embeds": torch.empty(1, pooled, device=META), "time_ids": sizes}
    return lambda: unet(latents, torch.zeros(1, device=META), text, **more).sample.sum().backward()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_unet_has_the_layers_that_are_counted_each_with_its_weights(name: str) -> None:
    counted = [layer for layer in unet_layers(shape(name), SIDES[name]) if isinstance(layer, Layer)]
    own = {
        module: sum(weight.numel() for weight in part.parameters(recurse=False))
        for module, part in unet_on_meta(name).named_modules()
        if list(part.parameters(recurse=False))
    }
    assert {layer.name: layer.weights for layer in counted} == own


def shape(name: str) -> UNet:
    return unet_of_config(PUBLISHED[name])


def test_a_familys_unet_is_that_of_its_published_configuration() -> None:
    assert {name: shape(name) for name in ("sd15", "sd2", "sdxl")} == {
        family.name: family.unet for family in (SD15, SD2, SDXL)
    }


@pytest.mark.tenths
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_loras_step_computes_what_torch_counts(name: str) -> None:
    unet = unet_on_meta(name).requires_grad_(False)
    with META:
        unet.add_adapter(LoraConfig(r=RANK, target_modules=list(ATTENTION)))
    trained = Trained(lora=LowRankSettings(rank=RANK))
    counted = training_work(unet_layers(shape(name), SIDES[name]), trained, again=False)
    assert counted.flops == pytest.approx(flops(passes(unet, SIDES[name])), rel=0.005)
    learning = sum(weight.numel() for weight in unet.parameters() if weight.requires_grad)
    assert trained.weights(unet_layers(shape(name), SIDES[name])) == learning


@pytest.mark.parametrize("name", ["sd15", "tiny"])
def test_a_loras_step_with_convolutions_computes_what_torch_counts(name: str) -> None:
    unet = unet_on_meta(name).requires_grad_(False)
    wide = ["conv1", "conv2", "downsamplers.0.conv", "upsamplers.0.conv"]
    ranks = {rf".*\.{each}": 8 for each in wide}
    with META:
        unet.add_adapter(LoraConfig(r=RANK, target_modules=[*ATTENTION, *wide], rank_pattern=ranks))
    trained = Trained(lora=LowRankSettings(rank=RANK, conv_rank=8))
    layers = list(unet_layers(shape(name), SIDES[name]))
    assert training_work(layers, trained, again=False).flops == pytest.approx(
        flops(passes(unet, SIDES[name])), rel=0.01
    )
    assert trained.weights(layers) == sum(weight.numel() for weight in unet.parameters() if weight.requires_grad)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_step_from_scratch_computes_what_torch_counts(name: str) -> None:
    counted = training_work(unet_layers(shape(name), SIDES[name]), Trained(), again=False)
    assert counted.flops == pytest.approx(flops(passes(unet_on_meta(name), SIDES[name])), rel=0.005)


@pytest.mark.tenths
@pytest.mark.parametrize("rank", [RANK, 0], ids=["lora", "scratch"])
@pytest.mark.parametrize("name", ["sd15", "sdxl"])
def test_gradient_checkpointing_computes_what_torch_counts(name: str, rank: int) -> None:
    unet = unet_on_meta(name)
    if rank:
        unet.requires_grad_(False)
        with META:
            unet.add_adapter(LoraConfig(r=rank, target_modules=list(ATTENTION)))
    unet.enable_gradient_checkpointing(lambda part, *given: checkpoint(part, *given, use_reentrant=False))
    unet.train()
    counted = training_work(
        unet_layers(shape(name), 256), Trained(lora=LowRankSettings(rank=rank) if rank else None), again=True
    )
    assert counted.flops == pytest.approx(flops(passes(unet, 256)), rel=0.05)


@pytest.mark.parametrize(
    "encoder", [encoder for family in (SD15, SD2, SDXL) for encoder in family.text_encoders], ids=lambda each: each.part
)
def test_a_text_encoder_computes_what_torch_counts(encoder: TextEncoder) -> None:
    size = encoder.shape
    config = CLIPTextConfig(
        vocab_size=size.words,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.width // 64,
        projection_dim=size.projection or size.width,
    )
    model = CLIPTextModelWithProjection if encoder.is_pooled else CLIPTextModel
    with META:
        made = model(config)
    counted = list(text_layers(size))
    assert sum(layer.weights for layer in counted) + embedding_weights(size) == sum(
        weight.numel() for weight in made.parameters()
    )
    products = sum(layer.flops for layer in counted if isinstance(layer, Layer))
    attention = sum(layer.flops for layer in counted if isinstance(layer, Attention))
    found = flops(lambda: made(torch.zeros(1, 77, dtype=torch.long, device=META)))
    assert products <= found <= products + attention  # torch may count half of a causal attention


def test_the_vae_computes_what_torch_counts() -> None:
    config = {
        "block_out_channels": list(PUBLISHED_VAE.channels),
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
        "layers_per_block": 2,
    }
    with META:
        vae: Any = AutoencoderKL.from_config(config)
    picture, latents = torch.empty(1, 3, 256, 256, device=META), torch.empty(1, 4, 32, 32, device=META)
    encoder, decoder = list(encoder_layers(PUBLISHED_VAE, 256)), list(decoder_layers(PUBLISHED_VAE, 256))
    assert sum(layer.flops for layer in encoder) == pytest.approx(flops(lambda: vae.encode(picture)), rel=0.001)
    assert sum(layer.flops for layer in decoder) == pytest.approx(flops(lambda: vae.decode(latents)), rel=0.001)
    assert sum(layer.weights for layer in (*encoder, *decoder)) == sum(weight.numel() for weight in vae.parameters())
