"""Bases of random weights, for benchmarks: SDXL's architecture at its own width or narrower, and Stable Diffusion 2's.

Only what training needs is imported, so that a bare machine with a card can make them.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from diffusers.utils import logging
from peft import LoraConfig
from tests.inputs import BASE, file_at
from torch.utils.flop_counter import FlopCounterMode
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection
from transformers.utils.logging import disable_progress_bar

from gangline.core.files import File
from gangline.core.models.bases import files_needed
from gangline.core.specs.sections.low_rank import ATTENTION
from gangline.train.model.clip import clip_tokenizer
from gangline.train.model.layouts import NOISE

ON_CARD = torch.cuda.is_available()
RANK = 16


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """SDXL's shape at any width; `text` are the hidden sizes of its two text encoders, of which the second one's is pooled."""

    width: int
    vae_width: int
    vae_groups: int
    heads: tuple[int, ...]
    text: tuple[int, int]
    side: int

    def unet(self) -> UNet2DConditionModel:
        return UNet2DConditionModel(
            sample_size=self.side // 8,
            block_out_channels=tuple(self.width * times for times in (1, 2, 4)),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            transformer_layers_per_block=(1, 2, 10),
            attention_head_dim=self.heads,
            cross_attention_dim=sum(self.text),
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=256,
            projection_class_embeddings_input_dim=6 * 256 + self.text[1],
        )

    def vae(self) -> AutoencoderKL:
        return AutoencoderKL(
            block_out_channels=tuple(self.vae_width * times for times in (1, 2, 4, 4)),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=4,
            norm_num_groups=self.vae_groups,
            scaling_factor=0.13025,
            sample_size=self.side,
        )


SDXL = Architecture(width=320, vae_width=128, vae_groups=32, heads=(5, 10, 20), text=(768, 1280), side=1024)
NARROW = Architecture(width=32, vae_width=14, vae_groups=2, heads=(2, 4, 8), text=(64, 64), side=256)
HERE = SDXL if ON_CARD else NARROW


@dataclass(frozen=True)
class Flops:
    """Of one image: the encoder's, and the U-Net's there and back with a LoRA."""

    vae: int
    unet: int

    @property
    def share(self) -> float:
        return self.vae / (self.vae + self.unet)


def count_flops(of: Architecture) -> Flops:
    """On tensors without numbers, so that it takes no card."""
    with torch.device("meta"):
        unet, vae = of.unet(), of.vae()
        noisy, timestep = torch.zeros(1, 4, of.side // 8, of.side // 8), torch.zeros(1, dtype=torch.long)
        words, picture = torch.zeros(1, 77, sum(of.text)), torch.zeros(1, 3, of.side, of.side)
        besides = {"text_embeds": torch.zeros(1, of.text[1]), "time_ids": torch.zeros(1, 6)}
    unet.requires_grad_(False)
    unet.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, init_lora_weights=False, target_modules=list(ATTENTION)))
    unet.to("meta")
    with FlopCounterMode(display=False) as encoding, torch.no_grad():
        vae.encode(picture)
    with FlopCounterMode(display=False) as training:
        unet(noisy, timestep, words, added_cond_kwargs=besides).sample.sum().backward()
    return Flops(encoding.get_total_flops(), training.get_total_flops())


def make_base(folder: Path) -> None:
    """In diffusers' layout; the tokenizers and the schedule are the tiny base's."""
    disable_progress_bar()
    logging.set_verbosity_error()
    torch.manual_seed(0)
    dtype = torch.float16 if ON_CARD else torch.float32
    for part in ("tokenizer", "tokenizer_2", "scheduler"):
        shutil.copytree(BASE / part, folder / part)
    shutil.copyfile(BASE / "model_index.json", folder / "model_index.json")
    with torch.device("cuda" if ON_CARD else "cpu"):
        HERE.unet().to(dtype).save_pretrained(folder / "unet")
        HERE.vae().to(dtype).save_pretrained(folder / "vae")
        kinds = (("text_encoder", CLIPTextModel), ("text_encoder_2", CLIPTextModelWithProjection))
        for (part, kind), size in zip(kinds, HERE.text, strict=True):
            kind(text_config(size)).to(dtype).save_pretrained(folder / part)


def text_config(size: int) -> CLIPTextConfig:
    """SDXL's two by their sizes, but for the vocabulary; any other has two layers."""
    known = json.loads((BASE / "text_encoder" / "config.json").read_text())
    layers = {768: 12, 1280: 32}.get(size, 2)
    return CLIPTextConfig(
        vocab_size=known["vocab_size"],
        bos_token_id=known["bos_token_id"],
        eos_token_id=known["eos_token_id"],
        hidden_size=size,
        intermediate_size=4 * size,
        projection_dim=size,
        num_attention_heads=max(1, size // 64),
        num_hidden_layers=layers,
    )


def make_sd2(folder: Path) -> None:
    """Write Stable Diffusion 2's architecture in diffusers' layout."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        unet = UNet2DConditionModel(
            sample_size=64, cross_attention_dim=1024, attention_head_dim=(5, 10, 20, 20), use_linear_projection=True
        )
        vae = AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=4,
            sample_size=512,
        )
        text = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=49408,
                hidden_size=1024,
                intermediate_size=4096,
                num_hidden_layers=23,
                num_attention_heads=16,
                hidden_act="gelu",
                projection_dim=512,
                bos_token_id=49406,
                eos_token_id=49407,
                pad_token_id=0,
            )
        )
    StableDiffusionPipeline(
        unet=unet,
        vae=vae,
        text_encoder=text,
        tokenizer=clip_tokenizer(0),
        scheduler=DDIMScheduler(**NOISE),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)


def files_of(base: Path) -> tuple[File, ...]:
    """As a spec names them."""
    names = files_needed([str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()])
    return tuple(file_at(base / name, base) for name in names)
