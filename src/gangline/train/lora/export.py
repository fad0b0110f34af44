"""Write a LoRA's weights in the formats that other tools load.

Files are float32, as trained, and contain no time of writing: equal results have equal bytes.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoKrConfig, LoraConfig
from safetensors.torch import save

from gangline.core.models.families import Family
from gangline.core.models.lora_metadata import DIFFUSERS_FILE, Facts, kohya_metadata, modelspec
from gangline.core.models.lora_names import diffusers_stem, kohya_stem
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.updates import DOWN, MAGNITUDE, UP, LoraPart, growth
from gangline.train.tensors import Tensors

SETTINGS = "lora_adapter_metadata"
DIVIDED = {"gangline_dora_scale": "divided by the growth of each output's weights, for ComfyUI and Forge"}
"""Metadata of a kohya file whose DoRA norms are not those of the sum, unlike LyCORIS'."""
IN_UNET = (DOWN, UP, MAGNITUDE)
# transformers 5 finds a magnitude only by the name of its parameter; diffusers reads `lora_A` of attention only
IN_TEXT_ENCODER = (".lora_linear_layer.down.weight", ".lora_linear_layer.up.weight", ".lora_magnitude_vector.weight")


def write_diffusers(folder: Path, parts: Mapping[str, LoraPart]) -> Path:
    """Write the file that `load_lora_weights` reads, with the settings that PEFT needs to restore the LoRA as it was trained. A LoKr is
    read by a U-Net's `load_lora_adapter`."""
    return write_safetensors(folder / DIFFUSERS_FILE, *diffusers_file(parts))


def diffusers_file(parts: Mapping[str, LoraPart]) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors of diffusers' file, and its metadata."""
    tensors: Tensors = {}
    settings: dict[str, Any] = {}
    for part, trained in parts.items():
        down, up, magnitude = IN_UNET if part == "unet" else IN_TEXT_ENCODER
        for module, layer in trained.layers():
            stem = diffusers_stem(part, module)
            tensors |= {stem + down: layer.down, stem + up: layer.up}
            if layer.magnitude is not None:
                tensors[stem + magnitude] = layer.magnitude
        for module, product in trained.products():
            stem = diffusers_stem(part, module)
            tensors |= {f"{stem}.{role}": factor for role, factor in product.factors.items()}
        settings |= {f"{part}.{name}": value for name, value in _settings(trained).items()}
    return tensors, {"format": "pt", SETTINGS: json.dumps(settings, indent=2, sort_keys=True)}


def _settings(part: LoraPart) -> dict[str, Any]:
    """Return only the settings that the result depends on: an older PEFT refuses names that it does not know."""
    if isinstance(part.config, LoKrConfig):
        return _settings_of_lokr(part, part.config)
    return _settings_of_lora(part, part.config)


def _settings_of_lora(part: LoraPart, config: LoraConfig) -> dict[str, Any]:
    layers, targets = dict(part.layers()), config.target_modules
    ranks = {module: rank for module, layer in layers.items() if (rank := layer.down.shape[0]) != config.r}
    alphas = {module: layer.alpha for module, layer in layers.items() if layer.alpha != config.lora_alpha}
    patterns = {"rank_pattern": ranks, "alpha_pattern": alphas} if ranks or alphas else {}
    return patterns | {
        "r": config.r,
        "lora_alpha": config.lora_alpha,
        "use_dora": config.use_dora,
        "target_modules": sorted(layers) if isinstance(targets, str) else sorted(targets or ()),
    }


def _settings_of_lokr(part: LoraPart, config: LoKrConfig) -> dict[str, Any]:
    names = ("r", "alpha", "decompose_factor", "use_effective_conv2d", "rank_pattern", "alpha_pattern")
    return {name: getattr(config, name) for name in names} | {
        "target_modules": sorted(name for name, _ in part.products())
    }


def write_kohya(
    folder: Path,
    parts: Mapping[str, LoraPart],
    layers_per_block: int,
    spec: LoraSpec,
    facts: Facts,
    base_file: Path | None = None,
) -> Path:
    """Write the file that ComfyUI, A1111, Forge and kohya's scripts load. `base_file` is the base, if it is a single file."""
    tensors = kohya_tensors(parts, facts.family, layers_per_block)
    conv = bool(spec.conv_rank) or any(tensor.shape[2:].numel() > 1 for tensor in tensors.values())
    divided = any(name.endswith(".dora_scale") for name in tensors)
    metadata = kohya_metadata(spec, facts, conv) | (DIVIDED if divided else {})
    if base_file:
        metadata["ss_sd_model_hash"] = webui_hash(base_file)
    hashes = kohya_hashes(tensors, metadata)
    described = metadata | hashes | modelspec(spec, facts, hashes["sshs_model_hash"])
    return write_safetensors(folder / facts.kohya_file, tensors, described)


def kohya_hashes(tensors: Tensors, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes by which kohya's scripts and web UIs know a LoRA: of all bytes after the header (Civitai's AutoV3 begins with it),
    and A1111's first one of the file with `metadata`, which has the `ss_*` fields alone."""
    blob = save(_plain(tensors), dict(metadata))
    return {"sshs_model_hash": hashlib.sha256(_split(blob)[1]).hexdigest(), "sshs_legacy_hash": _webui_hash(blob)}


def kohya_tensors(parts: Mapping[str, LoraPart], family: Family, layers_per_block: int) -> Tensors:
    """Return the tensors under kohya's names, a LoKr's under LyCORIS'. A DoRA's norms, (out, 1) or (out, 1, 1, 1), are divided so that
    ComfyUI and Forge restore the trained weights."""
    tensors: Tensors = {}
    for part, trained in parts.items():
        for module, layer in trained.layers():
            stem = kohya_stem(family, part, module, layers_per_block)
            tensors[f"{stem}.lora_down.weight"] = layer.down
            tensors[f"{stem}.lora_up.weight"] = layer.up
            tensors[f"{stem}.alpha"] = torch.tensor(layer.alpha, device=layer.down.device)
            if layer.magnitude is not None:
                norms = layer.magnitude.flatten() / growth(layer)
                tensors[f"{stem}.dora_scale"] = norms.reshape(-1, *[1] * (layer.down.dim() - 1))
        for module, product in trained.products():
            stem = kohya_stem(family, part, module, layers_per_block)
            tensors |= {f"{stem}.{role}": factor for role, factor in product.without_core().factors.items()}
            tensors[f"{stem}.alpha"] = torch.tensor(product.alpha, device=product.first.device)
    return tensors


def webui_hash(path: Path) -> str:
    """Return the short hash of A1111's first web UI: of the 64 KiB after a file's first MiB."""
    with path.open("rb") as file:
        return _webui_hash(file.read(0x110000))


def _webui_hash(first: bytes) -> str:
    return hashlib.sha256(first[0x100000:0x110000]).hexdigest()[:8]


def _plain(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _split(blob: bytes) -> tuple[bytes, bytes]:
    """Split a safetensors file into its header, with the length, and the tensors' bytes."""
    end = 8 + int.from_bytes(blob[:8], "little")
    return blob[:end], blob[end:]


def write_safetensors(path: Path, tensors: Tensors, metadata: dict[str, str]) -> Path:
    """Write a safetensors file with the metadata in the given order: the library's own order is random."""
    header, content = _split(save(_plain(tensors), metadata))
    value = json.loads(header[8:])
    value["__metadata__"] = metadata
    text = json.dumps(value, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)
    return path
