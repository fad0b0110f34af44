"""Map the modules of a LoRA to their names in files. It sees names only.

A module is identified by its path in diffusers' models (`down_blocks.1.attentions.0.proj_in`) and its part of the pipeline (`unet`,
`text_encoder`, `text_encoder_2`). The name of a tensor in a file is a stem for the module and a suffix for the role. kohya's stems are
paths with `_` for `.`; for SDXL, paths in the U-Net's original (ldm) layout.
"""

import re
from collections.abc import Mapping
from typing import Literal, get_args

from gangline.core.models.families import SDXL, Family, family_of_width

KroneckerRole = Literal["lokr_w1", "lokr_w1_a", "lokr_w1_b", "lokr_w2", "lokr_w2_a", "lokr_w2_b", "lokr_t2"]
WeightRole = Literal["down", "up", "alpha", "magnitude", "dora_scale", KroneckerRole]

KRONECKER: tuple[KroneckerRole, ...] = get_args(KroneckerRole)
"""The tensors of a LoKr: factors, or the two matrices of one, and a core between those. LyCORIS names them so, and PEFT, too."""

ROLES: dict[str, WeightRole] = {
    ".lora_down.weight": "down",
    ".lora_up.weight": "up",
    ".lora_A.weight": "down",
    ".lora_B.weight": "up",
    ".lora.down.weight": "down",
    ".lora.up.weight": "up",
    ".lora_linear_layer.down.weight": "down",
    ".lora_linear_layer.up.weight": "up",
    "_lora.down.weight": "down",
    "_lora.up.weight": "up",
    ".alpha": "alpha",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
    ".dora_scale": "dora_scale",
}
ROLES |= {f".{role}": role for role in KRONECKER}

TEXT_MODULES = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")
"""The modules of text encoders that a LoRA trains."""
CONVOLUTIONS = ("conv1", "conv2", "downsamplers.0.conv", "upsamplers.0.conv")
"""The convolutions of a U-Net's resnets and samplers that are wider than a pixel: those that kohya's scripts and LyCORIS train, too."""
IN_A_RESNET = {
    "conv1": "in_layers.2",
    "conv2": "out_layers.3",
    "time_emb_proj": "emb_layers.1",
    "conv_shortcut": "skip_connection",
}
OUTSIDE_BLOCKS = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "conv_in": "input_blocks.0.0",
    "conv_out": "out.2",
}
IN_A_TRANSFORMER = ("to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2", "proj_in", "proj_out")
BLOCK = re.compile(r"(down|mid|up)_blocks?(?:\.(\d+))?\.(.+)")
CROSS_ATTENTION = re.compile(r"attn2[._](?:processor\.)?to_[kv]$")
LISTS = {"down": "input_blocks", "mid": "middle_block", "up": "output_blocks"}
SAMPLERS = {"downsamplers.0.conv": "0.op", "upsamplers.0.conv": "2.conv"}


def split_key(key: str) -> tuple[str, WeightRole] | None:
    """Return the stem and the role of a tensor; None if its name is not one of a LoRA."""
    for ending, role in ROLES.items():
        if key.endswith(ending):
            return key.removesuffix(ending), role
    return None


def kohya_stem(family: Family, part: str, module: str, layers_per_block: int) -> str:
    """Return the stem that ComfyUI, A1111, Forge and kohya's scripts read.

    >>> kohya_stem(SDXL, "unet", "down_blocks.1.attentions.0.proj_in", 2)
    'lora_unet_input_blocks_4_1_proj_in'
    >>> kohya_stem(SDXL, "text_encoder_2", "text_model.encoder.layers.0.mlp.fc1", 2)
    'lora_te2_text_model_encoder_layers_0_mlp_fc1'
    """
    if part == "unet":
        path = original_path(module, layers_per_block) if family.kohya_unet == "original" else module
        return f"lora_unet_{path}".replace(".", "_")
    prefix = next(encoder.kohya_prefix for encoder in family.text_encoders if encoder.part == part)
    return f"{prefix}_{text_path(module)}".replace(".", "_")


def diffusers_stem(part: str, module: str) -> str:
    return f"{part}.{module if part == 'unet' else text_path(module)}"


def stems(family: Family, part: str, module: str, layers_per_block: int) -> tuple[str, ...]:
    """Return every stem that a file may have for `module`, by all tools and their earlier versions."""
    if part == "unet":
        processor = re.sub(r"\.(attn\d)\.to_(\w+)(\.0)?$", r".\1.processor.to_\2", module)
        others = (f"unet.{processor}", f"lora_unet_{module}".replace(".", "_"))
    else:
        path = text_path(module)
        attention = re.sub(r"\.self_attn\.(\w+)_proj$", r".self_attn.to_\1", path)
        prefix = {"text_encoder": "lora_te1_", "text_encoder_2": "lora_te2_"}[part]
        others = (f"{part}.{path.removeprefix('text_model.')}", f"{part}.{attention}", prefix + path.replace(".", "_"))
    return (kohya_stem(family, part, module, layers_per_block), diffusers_stem(part, module), *others)


def text_path(module: str) -> str:
    """Return the module's path as files have it: as in transformers 4, where every text encoder has a `text_model`."""
    return module if module.startswith(("text_model.", "text_projection")) else f"text_model.{module}"


def original_path(module: str, layers_per_block: int) -> str:
    """Return the path of a U-Net's module in the original layout, in which SDXL was published.

    There all layers of the down blocks are one list (`input_blocks`: the first convolution, then for each level its layers and the
    downsampler), and all layers of the up blocks another (`output_blocks`, with one layer more for each level).
    """
    if module in OUTSIDE_BLOCKS:
        return OUTSIDE_BLOCKS[module]
    way, level, rest = BLOCK.fullmatch(module).groups()  # pyright: ignore[reportOptionalMemberAccess]
    first = 0 if way == "mid" else (layers_per_block + 1) * int(level) + (way == "down")
    if rest in SAMPLERS:
        return f"{LISTS[way]}.{first + layers_per_block}.{SAMPLERS[rest]}"
    kind, number, inner = rest.split(".", 2)
    inner = IN_A_RESNET[inner] if kind == "resnets" else inner
    if way == "mid":
        return f"{LISTS[way]}.{1 if kind == 'attentions' else 2 * int(number)}.{inner}"
    return f"{LISTS[way]}.{first + int(number)}.{1 if kind == 'attentions' else 0}.{inner}"


def target_of(stem: str) -> str | None:
    """Return the entry of a spec's `target_modules` that trains the module with this stem, or None.

    >>> target_of("lora_unet_output_blocks_2_1_transformer_blocks_3_ff_net_0_proj"), target_of("lora_unet_input_blocks_3_0_op")
    ('ff.net.0.proj', 'downsamplers.0.conv')
    """
    originals = IN_A_RESNET | OUTSIDE_BLOCKS | {"to_out.0": "to_out"} | SAMPLERS
    endings = {name: name for name in (*IN_A_TRANSFORMER, *originals)} | {old: new for new, old in originals.items()}
    for ending, target in endings.items():
        if f"_{stem}".replace(".", "_").endswith("_" + ending.replace(".", "_")):
            return target
    return None


def family_of_lora(input_widths: Mapping[str, int]) -> Family | None:
    """Return the family of a LoRA, given the width of each module's input by stem; None if that does not show it.

    The input of the cross-attention is as wide as the text encoders' outputs together, which differs between families.
    """
    for stem, width in input_widths.items():
        if CROSS_ATTENTION.search(stem):
            return family_of_width(width)
    return SDXL if any(stem.startswith(("lora_te2_", "text_encoder_2.")) for stem in input_widths) else None
