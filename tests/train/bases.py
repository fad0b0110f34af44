"""Small random bases of each family, as a folder and as the single file that the original code would have written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from safetensors.torch import save_file
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from gangline.core.models.families import FamilyName
from gangline.core.models.recognition import Header, TensorHeader
from gangline.core.specs.fields import Sampler
from gangline.train.model import original
from gangline.train.model.base import LoadedBase
from gangline.train.model.clip import clip_tokenizer
from gangline.train.model.denoise import sampler_of
from gangline.train.model.layouts import NOISE

TINY: dict[FamilyName, dict[str, Any]] = {
    "sd15": {
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "attention_head_dim": 8,
        "cross_attention_dim": 64,
    },
    "sd2": {
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "attention_head_dim": (1, 1),
        "cross_attention_dim": 64,
        "use_linear_projection": True,
    },
    "sdxl": {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": (1, 1),
        "cross_attention_dim": 128,
        "transformer_layers_per_block": (1, 2),
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 16,
        "projection_class_embeddings_input_dim": 64 + 6 * 16,
    },
}


def text_encoder(kind: Any, *, act: str, layers: int) -> Any:
    config = CLIPTextConfig(
        vocab_size=49408,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=1,
        hidden_act=act,
        projection_dim=64,
        bos_token_id=49406,
        eos_token_id=49407,
        pad_token_id=49407,
    )
    return kind(config)


def save_tiny(folder: Path, family: FamilyName, **scheduler: Any) -> Path:
    """The folder that diffusers writes."""
    torch.manual_seed(0)
    parts: dict[str, Any] = {
        "unet": UNet2DConditionModel(
            in_channels=4, out_channels=4, layers_per_block=2, block_out_channels=(32, 64), **TINY[family]
        ),
        "vae": AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 3,
            up_block_types=("UpDecoderBlock2D",) * 3,
            block_out_channels=(32, 32, 64),
            latent_channels=4,
            scaling_factor=0.13025 if family == "sdxl" else 0.18215,
        ),
        "scheduler": DDIMScheduler(**{**NOISE, **scheduler}),
        "tokenizer": clip_tokenizer(0 if family == "sd2" else 49407),
        "text_encoder": text_encoder(CLIPTextModel, act="gelu" if family == "sd2" else "quick_gelu", layers=2),
    }
    if family == "sdxl":
        parts["tokenizer_2"] = clip_tokenizer(0)
        parts["text_encoder_2"] = text_encoder(CLIPTextModelWithProjection, act="gelu", layers=3)
        StableDiffusionXLPipeline(**parts).save_pretrained(folder)
    else:
        parts |= {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
        StableDiffusionPipeline(**parts).save_pretrained(folder)
    return folder


SMALLEST: dict[str, Any] = {
    "in_channels": 4,
    "out_channels": 4,
    "layers_per_block": 1,
    "block_out_channels": (32,),
    "down_block_types": ("CrossAttnDownBlock2D",),
    "mid_block_type": None,
    "up_block_types": ("UpBlock2D",),
    "attention_head_dim": 8,
    "cross_attention_dim": 64,
}
"""Two kinds of blocks: to compile one for a shape takes seconds."""


def save_smallest(folder: Path) -> Path:
    """Of Stable Diffusion 1, with as few blocks as there can be."""
    save_tiny(folder, "sd15")
    UNet2DConditionModel(**SMALLEST).save_pretrained(folder / "unet")
    return folder


def in_original_layout(unet: Any, vae: Any, encoders: tuple[Any, ...], family: FamilyName) -> dict[str, torch.Tensor]:
    """The tensors of a single file; what OpenCLIP has and Stable Diffusion 2 leaves out is there, too."""
    clip = "conditioner.embedders.0.transformer." if family == "sdxl" else "cond_stage_model.transformer."
    tensors = _moved(unet, original.unet_source(unet.config)) | _moved(
        vae, original.vae_source(original.VAE, vae.config)
    )
    for name in [name for name in tensors if ".attn_1." in name and name.endswith("weight") and ".norm." not in name]:
        tensors[name] = tensors[name][:, :, None, None]
    if family != "sd2":
        tensors |= _moved(
            encoders[0], lambda name: original.TensorSource(f"{clip}text_model.{name.removeprefix('text_model.')}")
        )
    if family != "sd15":
        prefix = "conditioner.embedders.1.model." if family == "sdxl" else "cond_stage_model.model."
        tensors |= _moved(encoders[-1], original.open_clip_source(prefix))
    if family == "sd2":
        last = encoders[0].config.num_hidden_layers
        block = {name: tensor for name, tensor in tensors.items() if ".resblocks.0." in name}
        tensors |= {name.replace(".resblocks.0.", f".resblocks.{last}."): tensor for name, tensor in block.items()}
    return tensors


def _moved(module: Any, source: Callable[[str], original.TensorSource]) -> dict[str, torch.Tensor]:
    whole: dict[str, Any] = {}
    for name, tensor in module.state_dict().items():
        from_ = source(name)
        if from_.third is not None:
            whole.setdefault(from_.name, [None] * 3)[from_.third] = tensor
        else:
            whole[from_.name] = tensor.T if from_.transposed else tensor
    joined = {name: torch.cat(value) if isinstance(value, list) else value for name, value in whole.items()}
    return {name: tensor.contiguous() for name, tensor in joined.items()}


def load_whole(folder: Path, family: FamilyName) -> Any:
    kind = StableDiffusionXLPipeline if family == "sdxl" else StableDiffusionPipeline
    return kind.from_pretrained(folder, local_files_only=True)


def encoders_of(pipeline: Any) -> tuple[Any, ...]:
    return tuple(encoder for name in ("text_encoder", "text_encoder_2") if (encoder := getattr(pipeline, name, None)))


def save_single(folder: Path, file: Path, family: FamilyName, *, marks: tuple[str, ...] = (), **metadata: str) -> Path:
    """The same weights as in `folder`, in one file."""
    pipeline = load_whole(folder, family)
    tensors = in_original_layout(pipeline.unet, pipeline.vae, encoders_of(pipeline), family)
    tensors |= {mark: torch.zeros(0) for mark in marks}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, file, metadata=metadata or None)
    return file


def header_of(tensors: dict[str, torch.Tensor], **metadata: str) -> Header:
    entries = {
        name: TensorHeader(dtype="F16", shape=tuple(tensor.shape), start=0, end=0) for name, tensor in tensors.items()
    }
    return Header(name="model.safetensors", data_start=0, tensors=entries, metadata=metadata)


def pipeline_of(base: LoadedBase, sampler: Sampler) -> Any:
    """Return diffusers' own pipeline of an SDXL base with one of our samplers."""
    pipeline: Any = StableDiffusionXLPipeline(
        vae=base.vae,
        text_encoder=base.text_encoders[0],
        text_encoder_2=base.text_encoders[1],
        tokenizer=base.tokenizers[0],
        tokenizer_2=base.tokenizers[1],
        unet=base.unet,
        scheduler=sampler_of(base, sampler),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
