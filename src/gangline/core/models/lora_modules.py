"""Find a LoRA's module from its name in a file, whichever tool wrote it, and the family of the LoRA. It sees names and shapes only."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from gangline.core.models.families import FAMILIES, SDXL, Family
from gangline.core.models.lora_names import IN_A_RESNET, OUTSIDE_BLOCKS, SAMPLERS, WeightRole, family_of_lora, split_key
from gangline.core.models.recognition import Header, input_width


class Module(NamedTuple):
    """A layer by its part of the pipeline and its path in diffusers' model."""

    part: str
    path: str

    @property
    def block(self) -> str:
        """The block of the U-Net that the layer is in, `unet.up_blocks.1`; else its part."""
        found = re.match(r"(?:down_blocks|up_blocks)\.\d+|mid_block", self.path)
        return f"{self.part}.{found[0]}" if found else self.part


PREFIXES = {
    "lora_unet_": "unet",
    "lora_te2_": "text_encoder_2",
    "lora_te1_": "text_encoder",
    "lora_te_": "text_encoder",
    "unet.": "unet",
    "text_encoder_2.": "text_encoder_2",
    "text_encoder.": "text_encoder",
}
IN_BLOCKS = ("down_blocks", "mid_block", "up_blocks", "transformer_blocks")
IN_ORIGINAL = (
    "input_blocks",
    "middle_block",
    "output_blocks",
    "in_layers",
    "out_layers",
    "emb_layers",
    "skip_connection",
)
IN_ATTENTION = ("to_out", "to_q", "to_k", "to_v", "proj_in", "proj_out")
IN_CONVOLUTIONS = ("conv_in", "conv_out", "conv_shortcut", "time_emb_proj")
OF_EMBEDDINGS = ("time_embed", "label_emb", "time_embedding", "add_embedding", "linear_1", "linear_2")
OF_TEXT = ("text_model", "self_attn", "q_proj", "k_proj", "v_proj", "out_proj", "text_projection")
NAMES_WITH_UNDERSCORES = (*IN_BLOCKS, *IN_ORIGINAL, *IN_ATTENTION, *IN_CONVOLUTIONS, *OF_EMBEDDINGS, *OF_TEXT)
PIECE = re.compile(rf"(?:{'|'.join(NAMES_WITH_UNDERSCORES)})(?=_|$)|[^_]+")
ORIGINAL = re.compile(r"(input_blocks|output_blocks)\.(\d+)\.(\d+)(?:\.(.+))?|middle_block\.(\d+)\.(.+)")
RESNETS = {old: new for new, old in IN_A_RESNET.items()}
OUTSIDE = {old: new for new, old in OUTSIDE_BLOCKS.items()}


def module_of(stem: str, layers_per_block: int) -> Module | None:
    """Return the module with this stem; None if no U-Net or text encoder of a family has such a name.

    >>> module_of("lora_unet_input_blocks_4_1_transformer_blocks_0_attn2_to_out_0", 2)
    Module(part='unet', path='down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_out.0')
    >>> module_of("text_encoder.text_model.encoder.layers.3.self_attn.to_q", 2)
    Module(part='text_encoder', path='text_model.encoder.layers.3.self_attn.q_proj')
    """
    prefix = next((prefix for prefix in PREFIXES if stem.startswith(prefix)), None)
    if prefix is None:
        return None
    rest = stem.removeprefix(prefix)
    path = rest if prefix.endswith(".") else ".".join(PIECE.findall(rest))
    if PREFIXES[prefix] != "unet":
        path = re.sub(r"\.self_attn\.to_(q|k|v|out)$", r".self_attn.\1_proj", path)
        return Module(PREFIXES[prefix], path if path.startswith("text_") else f"text_model.{path}")
    path = re.sub(r"\.to_out$", ".to_out.0", path.replace(".processor.", "."))
    path = diffusers_path(path, layers_per_block)
    return Module("unet", path) if path else None


def diffusers_path(path: str, layers_per_block: int) -> str | None:
    """Return a U-Net's module by its path in diffusers' model: the inverse of `original_path`. A path that is diffusers' already is
    returned as it is; None if the original layout has no such module."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if not path.startswith(("input_blocks.", "middle_block.", "output_blocks.")):
        return path
    found = ORIGINAL.fullmatch(path)
    if not found:
        return None
    where, number, place, inner, in_middle, of_middle = found.groups()
    if in_middle:
        kind = "attentions.0" if in_middle == "1" else f"resnets.{int(in_middle) // 2}"
        return f"mid_block.{kind}.{RESNETS.get(of_middle, of_middle)}"
    way, first = ("down", 1) if where == "input_blocks" else ("up", 0)
    level, layer = divmod(int(number) - first, layers_per_block + 1)
    if f"{place}.{inner}" == SAMPLERS["downsamplers.0.conv"] and way == "down":
        return f"down_blocks.{level}.downsamplers.0.conv"
    if inner == "conv" and way == "up":
        return f"up_blocks.{level}.upsamplers.0.conv"
    kind = "attentions" if place == "1" else "resnets"
    return f"{way}_blocks.{level}.{kind}.{layer}.{RESNETS.get(inner, inner)}" if inner else None


def family_of_header(header: Header) -> Family | None:
    """Return the family of a LoRA by its shapes and names, else by its metadata; None if nothing shows it."""
    layers: dict[str, dict[WeightRole, tuple[int, ...]]] = {}
    for name, tensor in header.tensors.items():
        if key := split_key(name):
            layers.setdefault(key[0], {})[key[1]] = tensor.shape
    widths = {stem: width for stem, layer in layers.items() if (width := input_width(layer))}
    return family_of_lora(widths) or _by_names(layers) or _by_metadata(header)


def _by_names(stems: Iterable[str]) -> Family | None:
    """Only SDXL's LoRAs name the layers of the U-Net as the original code does, and two text encoders."""
    marks = ("lora_unet_input_blocks_", "lora_unet_middle_block_", "lora_unet_output_blocks_", "lora_te2_")
    return SDXL if any(stem.startswith(marks) for stem in stems) else None


def _by_metadata(header: Header) -> Family | None:
    architecture = header.metadata.get("modelspec.architecture", "").lower()
    version = header.metadata.get("ss_base_model_version", "").lower()
    for family in FAMILIES.values():
        for variant in family.variants:
            if architecture.startswith(variant.architecture) or version == variant.kohya_version:
                return family
    return None
