"""Map single files, in the layout of the original Stable Diffusion code, to diffusers' modules.

Sizes are read from the tensors' shapes, so that small models load like large ones. The family supplies what shapes do not show (heads,
activations, scales). Each `…_source` function returns, for a tensor name of a diffusers module, the tensor that it comes from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gangline.core.errors import BadInput
from gangline.core.models.families import Family, TextEncoder
from gangline.core.models.recognition import UNET, VAE, Header
from gangline.train.model.clip import TOKENS

HEAD_CHANNELS = 64
LATENT_PIXELS = 8
SIZES_PER_PICTURE = 6

TensorShapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TensorSource:
    """The origin of a tensor: the tensor called `name`, one of its three equal parts (q, k, v), or its transpose."""

    name: str
    third: int | None = None
    transposed: bool = False

    def take(self, tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Return the tensor in `shape`. The original VAE has 1 × 1 convolutions where diffusers' has linear layers."""
        if self.third is not None:
            size = len(tensor) // 3
            tensor = tensor[self.third * size : (self.third + 1) * size]
        if self.transposed:
            tensor = tensor.T.contiguous()
        return tensor.reshape(shape) if tensor.numel() == shape.numel() else tensor


def shapes_below(header: Header, prefix: str) -> TensorShapes:
    return {
        name.removeprefix(prefix): tensor.shape for name, tensor in header.tensors.items() if name.startswith(prefix)
    }


# The U-Net


def unet_config(header: Header, family: Family) -> dict[str, Any]:
    """Return the settings of `UNet2DConditionModel` (Rombach et al. 2022; for SDXL Podell et al. 2023)."""
    shapes = shapes_below(header, UNET)
    downs = [
        number for number in range(_blocks(shapes, "input_blocks.")) if f"input_blocks.{number}.0.op.weight" in shapes
    ]
    layers = downs[0] - 1 if downs else _blocks(shapes, "input_blocks.") - 1
    firsts = [1 + level * (layers + 1) for level in range(len(downs) + 1)]
    widths = [shapes[f"input_blocks.{first}.0.out_layers.3.weight"][0] for first in firsts]
    depths = [_blocks(shapes, f"input_blocks.{first}.1.transformer_blocks.") for first in firsts]
    attends = [depth > 0 for depth in depths]
    if not attends[-1]:
        depths[-1] = _blocks(shapes, "middle_block.1.transformer_blocks.")
    to_text = next(shape for name, shape in shapes.items() if name.endswith("attn2.to_k.weight"))
    projection = next(shape for name, shape in shapes.items() if name.endswith(".proj_in.weight"))
    config: dict[str, Any] = {
        "in_channels": shapes["input_blocks.0.0.weight"][1],
        "out_channels": shapes["out.2.weight"][0],
        "sample_size": family.resolution // LATENT_PIXELS,
        "layers_per_block": layers,
        "block_out_channels": tuple(widths),
        "down_block_types": tuple("CrossAttnDownBlock2D" if here else "DownBlock2D" for here in attends),
        "up_block_types": tuple("CrossAttnUpBlock2D" if here else "UpBlock2D" for here in reversed(attends)),
        "transformer_layers_per_block": tuple(depth or 1 for depth in depths),
        "attention_head_dim": family.attention_heads or tuple(_heads(width) for width in widths),
        "cross_attention_dim": to_text[1],
        "use_linear_projection": len(projection) == 2,
    }
    return config | (_sizes_config(header, shapes, family) if family.has_sizes else {})


def _sizes_config(header: Header, shapes: TensorShapes, family: Family) -> dict[str, Any]:
    """Return the settings of SDXL's added embedding: the pooled text beside six sizes, each in sines and cosines."""
    width = shapes["label_emb.0.0.weight"][1]
    prefix = prefix_of(header, family.text_encoders[-1])
    pooled = _projection_width(shapes_below(header, prefix)) or 0
    return {
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": (width - pooled) // SIZES_PER_PICTURE,
        "projection_class_embeddings_input_dim": width,
    }


AROUND_UNET = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}
IN_UNET_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}


def unet_source(config: Any) -> Callable[[str], TensorSource]:
    per_level = config["layers_per_block"] + 1
    upsampler = [2 if kind.startswith("CrossAttn") else 1 for kind in config["up_block_types"]]

    def name_of(name: str) -> str:
        match name.split("."):
            case ["down_blocks", level, "downsamplers", _, "conv", end]:
                return f"input_blocks.{(int(level) + 1) * per_level}.0.op.{end}"
            case ["up_blocks", level, "upsamplers", _, "conv", end]:
                return f"output_blocks.{(int(level) + 1) * per_level - 1}.{upsampler[int(level)]}.conv.{end}"
            case ["down_blocks", level, kind, layer, *within]:
                return f"input_blocks.{int(level) * per_level + int(layer) + 1}.{_in_block(kind, within)}"
            case ["up_blocks", level, kind, layer, *within]:
                return f"output_blocks.{int(level) * per_level + int(layer)}.{_in_block(kind, within)}"
            case ["mid_block", "resnets", layer, part, end]:
                return f"middle_block.{2 * int(layer)}.{IN_UNET_RESNET[part]}.{end}"
            case ["mid_block", "attentions", _, *within]:
                return f"middle_block.1.{'.'.join(within)}"
        around, end = name.rsplit(".", 1)
        return f"{AROUND_UNET[around]}.{end}"

    return lambda name: TensorSource(UNET + name_of(name))


def _in_block(kind: str, within: list[str]) -> str:
    """Return a name inside a block of the original: a residual part, followed by an attention if the block attends."""
    if kind == "attentions":
        return f"1.{'.'.join(within)}"
    part, end = within
    return f"0.{IN_UNET_RESNET[part]}.{end}"


def _blocks(shapes: TensorShapes, prefix: str) -> int:
    """Return how many numbered blocks follow `prefix`."""
    return len({name.removeprefix(prefix).split(".", 1)[0] for name in shapes if name.startswith(prefix)})


def _heads(width: int) -> int:
    return max(1, width // HEAD_CHANNELS)


# The VAE


def vae_prefix(header: Header) -> str:
    """Return the prefix of the VAE's tensors: a whole model has one, a file with only a VAE does not."""
    return VAE if header.has(VAE) else ""


def vae_config(header: Header, family: Family) -> dict[str, Any]:
    """Return the settings of `AutoencoderKL`."""
    shapes = shapes_below(header, vae_prefix(header))
    levels = _blocks(shapes, "encoder.down.")
    widths = [shapes[f"encoder.down.{level}.block.0.conv2.weight"][0] for level in range(levels)]
    return {
        "block_out_channels": tuple(widths),
        "down_block_types": ("DownEncoderBlock2D",) * levels,
        "up_block_types": ("UpDecoderBlock2D",) * levels,
        "layers_per_block": _blocks(shapes, "encoder.down.0.block."),
        "latent_channels": shapes["decoder.conv_in.weight"][1],
        "mid_block_add_attention": "encoder.mid.attn_1.q.weight" in shapes,
        "use_quant_conv": "quant_conv.weight" in shapes,
        "use_post_quant_conv": "post_quant_conv.weight" in shapes,
        "scaling_factor": family.latent_scale,
        "sample_size": family.resolution,
    }


IN_VAE = {"conv_shortcut": "nin_shortcut"}
IN_VAE_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out": "proj_out"}


def vae_source(prefix: str, config: Any) -> Callable[[str], TensorSource]:
    last = len(config["block_out_channels"]) - 1

    def name_of(name: str) -> str:
        match name.split("."):
            case [side, "down_blocks", level, "resnets", layer, part, end]:
                return f"{side}.down.{level}.block.{layer}.{IN_VAE.get(part, part)}.{end}"
            case [side, "up_blocks", level, "resnets", layer, part, end]:
                return f"{side}.up.{last - int(level)}.block.{layer}.{IN_VAE.get(part, part)}.{end}"
            case [side, "down_blocks", level, "downsamplers", _, "conv", end]:
                return f"{side}.down.{level}.downsample.conv.{end}"
            case [side, "up_blocks", level, "upsamplers", _, "conv", end]:
                return f"{side}.up.{last - int(level)}.upsample.conv.{end}"
            case [side, "mid_block", "resnets", layer, part, end]:
                return f"{side}.mid.block_{int(layer) + 1}.{part}.{end}"
            case [side, "mid_block", "attentions", _, part, *_, end]:
                return f"{side}.mid.attn_1.{IN_VAE_ATTENTION[part]}.{end}"
        return name.replace("conv_norm_out", "norm_out")

    return lambda name: TensorSource(prefix + name_of(name))


# The text encoders

PROJECTION_AS_A_LAYER = "text_projection.weight"
IN_OPEN_CLIP = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}


def text_config(header: Header, encoder: TextEncoder) -> dict[str, Any]:
    """Return the settings of `CLIPTextConfig`."""
    prefix = prefix_of(header, encoder)
    if encoder.origin == "CLIP":
        return _clip_config(header, prefix)
    return _open_clip_config(header, prefix, without_last=encoder.without_last)


def text_source(header: Header, encoder: TextEncoder) -> Callable[[str], TensorSource]:
    prefix = prefix_of(header, encoder)
    if encoder.origin == "CLIP":
        return _clip_source(header, prefix)
    return open_clip_source(prefix, as_a_layer=f"{prefix}{PROJECTION_AS_A_LAYER}" in header.tensors)


def text_source_of(encoder: TextEncoder) -> Callable[[str], TensorSource]:
    """Return the tensor names that the family's authors use in their files."""
    prefix = encoder.prefixes[0]
    if encoder.origin == "OpenCLIP":
        return open_clip_source(prefix)
    return lambda name: TensorSource(f"{prefix}text_model.{name.removeprefix('text_model.')}")


def prefix_of(header: Header, encoder: TextEncoder) -> str:
    return next((prefix for prefix in encoder.prefixes if header.has(prefix)), encoder.prefixes[0])


def _clip_config(header: Header, prefix: str) -> dict[str, Any]:
    shapes = shapes_below(header, prefix + _wrapper(header, prefix))
    return _text_config(
        header,
        tokens_BD=shapes["embeddings.token_embedding.weight"],
        wide=shapes["encoder.layers.0.mlp.fc1.weight"][0],
        layers=_blocks(shapes, "encoder.layers."),
    ) | {"hidden_act": "quick_gelu"}


def _clip_source(header: Header, prefix: str) -> Callable[[str], TensorSource]:
    """Accept names with `text_model.` or without it: old files and old versions of transformers have it, or the new ones do."""
    below = prefix + _wrapper(header, prefix)
    return lambda name: TensorSource(below + name.removeprefix("text_model."))


def _wrapper(header: Header, prefix: str) -> str:
    return "text_model." if header.has(f"{prefix}text_model.") else ""


def _open_clip_config(header: Header, prefix: str, *, without_last: bool) -> dict[str, Any]:
    """Read the settings from shapes. Stable Diffusion 2 uses its encoder's penultimate output, so `without_last` leaves the last layer
    out."""
    shapes = shapes_below(header, prefix)
    return _text_config(
        header,
        tokens_BD=shapes["token_embedding.weight"],
        wide=shapes["transformer.resblocks.0.mlp.c_fc.weight"][0],
        layers=_blocks(shapes, "transformer.resblocks.") - without_last,
    ) | {
        "hidden_act": "gelu",
        "projection_dim": _projection_width(shapes) or shapes["token_embedding.weight"][1],
    }


def _projection_width(shapes: TensorShapes) -> int | None:
    """Return the width of OpenCLIP's pooled output: a matrix (in, out), or the weight of a layer (out, in)."""
    if PROJECTION_AS_A_LAYER in shapes:
        return shapes[PROJECTION_AS_A_LAYER][0]
    return shapes["text_projection"][1] if "text_projection" in shapes else None


def open_clip_source(prefix: str, *, as_a_layer: bool = False) -> Callable[[str], TensorSource]:
    """Return the tensors of OpenCLIP's encoder below `prefix`. Some merges have its projection `as_a_layer`, under the name and in the
    orientation of a linear layer."""

    def source(name: str) -> TensorSource:
        match name.removeprefix("text_model.").split("."):
            case ["embeddings", "token_embedding", end]:
                return TensorSource(f"{prefix}token_embedding.{end}")
            case ["embeddings", "position_embedding", _]:
                return TensorSource(f"{prefix}positional_embedding")
            case ["final_layer_norm", end]:
                return TensorSource(f"{prefix}ln_final.{end}")
            case ["text_projection", _]:
                if as_a_layer:
                    return TensorSource(f"{prefix}{PROJECTION_AS_A_LAYER}")
                return TensorSource(f"{prefix}text_projection", transposed=True)
            case ["encoder", "layers", layer, "self_attn", ("q_proj" | "k_proj" | "v_proj") as part, end]:
                below = f"{prefix}transformer.resblocks.{layer}.attn.in_proj_{end}"
                return TensorSource(below, third="qkv".index(part[0]))
            case ["encoder", "layers", layer, *part, end]:
                return TensorSource(f"{prefix}transformer.resblocks.{layer}.{IN_OPEN_CLIP['.'.join(part)]}.{end}")
        raise AssertionError(name)

    return source


def _text_config(header: Header, *, tokens_BD: tuple[int, ...], wide: int, layers: int) -> dict[str, Any]:
    count, width = tokens_BD
    if count != TOKENS:
        raise BadInput(f"the text encoder in {header.name} knows {count} tokens; CLIP's tokenizer has {TOKENS}")
    return {
        "vocab_size": count,
        "hidden_size": width,
        "intermediate_size": wide,
        "num_hidden_layers": layers,
        "num_attention_heads": _heads(width),
        "bos_token_id": TOKENS - 2,
        "eos_token_id": TOKENS - 1,
        "pad_token_id": TOKENS - 1,
    }
