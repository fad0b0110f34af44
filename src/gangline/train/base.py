"""A base model from a folder in diffusers' layout, part by part. Safetensors only, nothing from the network."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from safetensors import SafetensorError
from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from gangline.core.errors import BadInput

PIPELINE = "StableDiffusionXLPipeline"


@dataclass
class Base:
    """`noise` is the forward process that the model was trained with; `path` holds the rest of it.

    The parts are `Any`, as their configurations have no types.
    """

    path: Path
    tokenizers: tuple[Any, Any]
    text_encoders: tuple[Any, Any]
    vae: Any
    unet: Any
    noise: Any

    has_sizes = True
    zero_empty = True

    @property
    def dtype(self) -> torch.dtype:
        return self.unet.dtype

    @property
    def unet_config(self) -> Any:
        return self.unet.config

    def pipeline(self, scheduler: Any) -> Any:
        kind: Any = StableDiffusionXLPipeline
        return kind(self.vae, None, None, None, None, self.unet, scheduler)

    @property
    def latent_factor(self) -> int:
        """Pixels of a side for one latent."""
        return 2 ** (len(self.vae.config.block_out_channels) - 1)


def load_base(path: Path, device: torch.device, dtype: torch.dtype) -> Base:
    """The VAE stays in float32 (SDXL's overflows in half precision), the rest is in `dtype`; all of it frozen.

    Raises `BadInput` where the folder holds no model of SDXL's architecture.
    """
    _check_family(path)
    try:
        base = Base(
            path=path,
            tokenizers=(_part(CLIPTokenizer, path, "tokenizer"), _part(CLIPTokenizer, path, "tokenizer_2")),
            text_encoders=(
                _model(CLIPTextModel, path, "text_encoder", dtype),
                _model(CLIPTextModelWithProjection, path, "text_encoder_2", dtype),
            ),
            vae=_model(AutoencoderKL, path, "vae", torch.float32),
            unet=_model(UNet2DConditionModel, path, "unet", dtype),
            noise=_part(DDPMScheduler, path, "scheduler"),
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(f"the base cannot be loaded: {reason}", hint="is it complete, and in safetensors?") from None
    for module in (*base.text_encoders, base.vae, base.unet):
        module.requires_grad_(False)
        module.to(device)
        module.eval()
    return base


def _check_family(path: Path) -> None:
    try:
        name = json.loads((path / "model_index.json").read_text())["_class_name"]
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(
            "the base is not a model in diffusers' layout: it has no readable model_index.json",
            hint="give a folder that StableDiffusionXLPipeline.save_pretrained wrote, or a hub id",
        ) from None
    if name != PIPELINE:
        raise BadInput(f"the base is a {name}; this trainer needs a {PIPELINE}")


def _part(kind: Any, path: Path, folder: str) -> Any:
    return kind.from_pretrained(path, subfolder=folder, local_files_only=True)


def _model(kind: Any, path: Path, folder: str, dtype: torch.dtype) -> Any:
    names = [file.name for file in (path / folder).glob("*.safetensors")]
    variant = "fp16" if names and all(".fp16" in name for name in names) else None
    return kind.from_pretrained(
        path,
        subfolder=folder,
        local_files_only=True,
        use_safetensors=True,
        variant=variant,
        **({"torch_dtype": dtype} if kind.__module__.startswith("diffusers") else {"dtype": dtype}),
    )
