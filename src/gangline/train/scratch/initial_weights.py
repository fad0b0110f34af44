"""The modules to train as training starts: float32, with random weights or the base's. Random weights are the same on every machine."""

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig

from gangline.core.errors import BadInput
from gangline.core.models.families import TextEncoder
from gangline.core.specs.scratch import ScratchSpec
from gangline.train.model.base import LoadedBase
from gangline.train.model.layouts import ENCODER_CLASSES, FolderLayout, as_bad_input
from gangline.train.run import chance

UNET = "unet"
VAE = "vae"
FROZEN_EMBEDDINGS = 0.5
"""The standard deviation of random token embeddings that are never trained. CLIP starts with 0.02 and grows from there. Frozen at that
size, the layers' outputs would drown which token it is, and pictures would follow their seed instead of their prompt."""


def folder_of(base: LoadedBase) -> Path:
    """Return the base's folder, in whose layout the result is written. Raise `BadInput` if the base is a single file."""
    if not isinstance(base.layout, FolderLayout):
        raise BadInput(
            f"{base.path.name} is a single file; training needs a folder in diffusers' layout",
            hint="`StableDiffusionPipeline.from_single_file(…).save_pretrained(…)` makes one",
        )
    return base.path


def begin_unet(base: LoadedBase, spec: ScratchSpec) -> Any:
    """Return the U-Net to train, initialised from `spec.seed` if it is in `spec.new`, else the base's."""
    if UNET not in spec.new:
        return _trained(base.layout.unet(torch.float32), base)
    chance.seed_torch(spec.seed, "initial weights of the U-Net")
    with as_bad_input("the base's unet/config.json"):
        return _trained(UNet2DConditionModel.from_config(base.layout.unet_config()), base)


def begin_vae(base: LoadedBase, spec: ScratchSpec) -> Any:
    """Return the VAE to train, initialised from `spec.seed` if it is in `spec.new`, else the base's."""
    if VAE not in spec.new:
        return _trained(base.layout.vae(), base)
    chance.seed_torch(spec.seed, "initial weights of the VAE")
    with as_bad_input("the base's vae/config.json"):
        return _trained(AutoencoderKL.from_config(base.layout.vae_config()), base)


def begin_text_encoders(base: LoadedBase, spec: ScratchSpec) -> tuple[Any, ...]:
    """Return the text encoders to train, initialised from `spec.seed` if they are in `spec.new`, else the base's. Layers that nothing reads
    stay frozen."""
    if "text_encoders" in spec.new:
        found = tuple(_new_encoder(base, spec, kind) for kind in base.family.text_encoders)
    else:
        found = base.layout.text_encoders(torch.float32)
    encoders = tuple(_trained(encoder, base) for encoder in found)
    if spec.freeze_token_embeddings:
        for encoder in encoders:
            encoder.get_input_embeddings().requires_grad_(False)
    for encoder, kind in zip(encoders, base.family.text_encoders, strict=True):
        if kind.reads == "penultimate" and not kind.is_pooled:  # nothing reads its last layer, so it gets no gradient
            last = getattr(encoder, "text_model", encoder)
            last.encoder.layers[-1].requires_grad_(False)
            last.final_layer_norm.requires_grad_(False)
    return encoders


def _new_encoder(base: LoadedBase, spec: ScratchSpec, kind: TextEncoder) -> Any:
    name = kind.part
    chance.seed_torch(spec.seed, f"initial weights of {name}")
    with as_bad_input(f"the base's {name}/config.json"):
        encoder = ENCODER_CLASSES[kind.model](
            CLIPTextConfig.from_pretrained(folder_of(base) / name, local_files_only=True)
        )
    if spec.freeze_token_embeddings:
        torch.nn.init.normal_(encoder.get_input_embeddings().get_parameter("weight"), std=FROZEN_EMBEDDINGS)
    return encoder


def _trained(module: Any, base: LoadedBase) -> Any:
    return module.requires_grad_(True).to(base.device, torch.float32).train()
