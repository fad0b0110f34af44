"""Files of LoRAs as several tools write them, with weights as if trained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from gangline.core.models.families import FAMILIES
from gangline.train.lora.export import write_diffusers, write_kohya
from gangline.train.lora.files.adapter_file import AdapterFile, open_adapter
from gangline.train.lora.updates import LoraPart
from tests.train.lora.test_export import CONV, LAYERS_PER_BLOCK, SPEC, TRANSFORMER, facts_of, trained

EVERYTHING = [*TRANSFORMER, *CONV]


def layers_of(family: str) -> int:
    return LAYERS_PER_BLOCK[family]


def parts_of(family: str, **settings: Any) -> tuple[Any, dict[str, LoraPart]]:
    """A pipeline with a LoRA in every kind of layer, and its weights."""
    return trained(family, targets=EVERYTHING, **settings)


def written(folder: Path, family: str, parts: Mapping[str, LoraPart], form: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if form == "diffusers":
        return write_diffusers(folder, parts)
    return write_kohya(folder, parts, layers_of(family), SPEC, facts_of(family))


def opened(path: Path, family: str) -> AdapterFile:
    return open_adapter(path, FAMILIES[family], layers_of(family))  # pyright: ignore[reportArgumentType]


def metadata_in(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        return file.metadata()


def changes(path: Path, family: str) -> dict[tuple[str, str], torch.Tensor]:
    """What a file adds to each layer, in float64: by the definition, from its tensors."""
    file = opened(path, family)
    found = {}
    for module in file.stems:
        tensors = file.tensors_of(module)
        if file.is_product(module):
            product = file.product(module)
            found[tuple(module)] = product.scale * torch.kron(product.first.double(), product.second.double())
        else:
            down, up = tensors["down"].double().flatten(1), tensors["up"].double().flatten(1)
            found[tuple(module)] = file.alpha(module) / len(down) * (up @ down)
    return found
