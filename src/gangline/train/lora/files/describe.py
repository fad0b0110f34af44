"""Describe a LoRA's file: what it is, how large, whether it is whole. It reads files that nothing else here can use, too."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from gangline.core.errors import BadInput
from gangline.core.models.lora_file_metadata import words_of_metadata
from gangline.core.models.lora_modules import Module, family_of_header, module_of
from gangline.core.models.lora_names import KRONECKER, split_key
from gangline.core.models.recognition import Header
from gangline.data.safetensors_header import read_header
from gangline.train.lora.export import webui_hash
from gangline.train.lora.init_lora import LoraFile, settings_of_peft
from gangline.train.model.layouts import as_bad_input

HADAMARD = re.compile(r"(.+)\.(hada_(?:w[12]_[ab]|t[12]))")
"""The tensors of a LoHa (LyCORIS, Yeh et al. 2024, §3.2)."""
OTHER = re.compile(r"(.+)\.(diff|diff_b|w_norm|b_norm|oft_blocks|oft_diag|on_input|weight|rescale|scale)")
"""What else LyCORIS, IA³ and OFT add to a layer."""
HADA = ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b")
PEFT_ALONE = "base_model.model."
CHUNK_BYTES = 2**22


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDescription:
    """The layers of one model of the pipeline: how many have each rank and each alpha. `conv_ranks` are those of convolutions that are
    wider than a pixel; an alpha of None is not stated, or was not found."""

    part: str
    layers: int
    ranks: Mapping[str, int]
    conv_ranks: Mapping[str, int]
    alphas: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDescription:
    """`norm` is the Frobenius norm of all changes of the block's weights together; None if it cannot be computed without the base."""

    block: str
    layers: int
    norm: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraDescription:
    """`tensors_sha256` is of all bytes after the header: kohya's `sshs_model_hash`, and Civitai's AutoV3 is how it begins. `hash_matches`
    says whether it is the one in the metadata; None if there is none. `problems` are sentences about what is damaged."""

    path: str
    bytes: int
    kind: str
    format: str
    family: str | None
    dtypes: Mapping[str, int]
    parts: tuple[PartDescription, ...]
    blocks: tuple[BlockDescription, ...]
    problems: tuple[str, ...]
    unknown: tuple[str, ...]
    said: Mapping[str, str]
    metadata: Mapping[str, str]
    sha256: str
    autov2: str
    tensors_sha256: str
    legacy_hash: str
    hash_matches: bool | None


Layers = dict[str, dict[str, torch.Tensor]]


def describe_lora(path: Path, layers_per_block: int | None = None) -> LoraDescription:
    """Raise `BadInput` if the file is no safetensors file, truncated, or has nothing of a LoRA in it."""
    header = read_header(path)
    layers, unknown = _layers(path, header)
    if not layers:
        raise BadInput(f"{path.name} is not a LoRA: it has {_some(list(header.tensors)) or 'no tensors'}")
    family = family_of_header(header)
    per_block = layers_per_block or (family.unet.layers_per_block if family else 2)
    file = LoraFile(name=path.name, layers={}, settings=settings_of_peft(header), divided=False)
    found = {stem: _Layer(tensors, module_of(stem, per_block), file) for stem, tensors in layers.items()}
    whole, tail = _hashes(path, header.data_start)
    stated = header.metadata.get("sshs_model_hash")
    return LoraDescription(
        path=str(path),
        bytes=path.stat().st_size,
        kind=_kind(layers),
        format=_format(header),
        family=family.name if family else None,
        dtypes=dict(Counter(tensor.dtype for tensor in header.tensors.values())),
        parts=tuple(_parts(list(found.values()))),
        blocks=tuple(_blocks(list(found.values()))),
        problems=tuple(_problems(layers)),
        unknown=tuple(unknown),
        said=words_of_metadata(header.metadata),
        metadata=header.metadata,
        sha256=whole,
        autov2=whole[:10],
        tensors_sha256=tail,
        legacy_hash=webui_hash(path),
        hash_matches=stated == tail if stated else None,
    )


def _layers(path: Path, header: Header) -> tuple[Layers, list[str]]:
    """Return the tensors by layer and role, and the names of those that no kind of LoRA has."""
    layers: Layers = {}
    unknown: list[str] = []
    with as_bad_input(path.name), safe_open(path, framework="pt") as file:
        for name in header.tensors:
            key = split_key(name.removeprefix(PEFT_ALONE)) or _other_key(name)
            if key is None:
                unknown.append(name)
            else:
                layers.setdefault(key[0], {})[key[1]] = file.get_tensor(name)
    return layers, unknown


def _other_key(name: str) -> tuple[str, str] | None:
    if found := HADAMARD.fullmatch(name):
        return found[1], found[2]
    found = OTHER.fullmatch(name)
    return (found[1], found[2]) if found and name.startswith("lora_") else None


def _kind(layers: Layers) -> str:
    """Return what kinds of layers the file has, the most frequent first."""
    kinds = Counter(_kind_of_layer(layer) for layer in layers.values())
    return ", ".join(kind for kind, _ in kinds.most_common())


def _kind_of_layer(layer: Mapping[str, torch.Tensor]) -> str:
    dora = "magnitude" in layer or "dora_scale" in layer
    for kind, roles in (("LoKr", KRONECKER), ("LoHa", HADA)):
        if not layer.keys().isdisjoint(roles):
            return f"{kind} with DoRA" if dora else kind
    if layer.keys() & {"down", "up"}:
        return "DoRA" if dora else "LoRA"
    return "other"


FORMATS = (
    (PEFT_ALONE, "", "PEFT"),
    ("", ".lora_down.weight", "kohya (ComfyUI, A1111, Forge)"),
    ("lora_", "", "LyCORIS (ComfyUI, A1111, Forge)"),
    ("", "_lora.down.weight", "diffusers before 0.22 (attention processors)"),
    ("", ".lora_linear_layer.down.weight", "diffusers"),
    ("", ".lora.down.weight", "diffusers before PEFT"),
    ("", "", "diffusers (PEFT)"),
)


def _format(header: Header) -> str:
    """Return whose names the file has: the first form that a tensor shows."""
    names = list(header.tensors)
    return next(
        called for start, end, called in FORMATS if any(name.startswith(start) and name.endswith(end) for name in names)
    )


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer's tensors, the module that its name stands for, and PEFT's settings of the file."""

    tensors: Mapping[str, torch.Tensor]
    module: Module | None
    file: LoraFile

    @property
    def part(self) -> str:
        return self.module.part if self.module else "unknown"

    @property
    def block(self) -> str:
        return self.module.block if self.module else "unknown"

    @property
    def rank(self) -> int | None:
        found, roles = self.tensors, ("down", "lokr_w2_b", "lokr_w1_b", "hada_w1_b")
        return next((len(found[role]) for role in roles if role in found and found[role].dim()), None)

    @property
    def is_wide(self) -> bool:
        roles = ("down", "lokr_w2", "lokr_t2", "hada_t1")
        return any(self.tensors[role].shape[2:].numel() > 1 for role in roles if role in self.tensors)

    @property
    def alpha(self) -> float | None:
        """The alpha of the file, else of PEFT's settings; None if neither states it."""
        if "alpha" in self.tensors and self.tensors["alpha"].numel():
            return float(self.tensors["alpha"].reshape(-1)[0])
        return self.file.stated_alpha(*self.module) if self.module else None

    @property
    def scale(self) -> float:
        if "alpha" not in self.tensors and self.module and "down" in self.tensors:
            return self.file.scale(*self.module, self.tensors)  # pyright: ignore[reportArgumentType]
        return self.alpha / self.rank if self.rank and self.alpha is not None else 1.0

    def norm(self) -> float | None:
        """Return the Frobenius norm of what the layer adds to a weight, without its DoRA; None if its tensors do not show it."""
        found = self.tensors
        try:
            if {"down", "up"} <= found.keys():
                down, up = found["down"].double().flatten(1), found["up"].double().flatten(1)
                return self.scale * math.sqrt(max(0.0, float(((up.T @ up) * (down @ down.T)).sum())))
            if {*HADA} <= found.keys() and "hada_t1" not in found:
                first, second = (found[f"hada_w{n}_a"].float() @ found[f"hada_w{n}_b"].float() for n in (1, 2))
                return self.scale * float((first * second).norm())
            if not found.keys().isdisjoint(KRONECKER) and "lokr_t2" not in found:
                return self.scale * float(self._factor("lokr_w1").norm() * self._factor("lokr_w2").norm())
        except (RuntimeError, KeyError, IndexError):
            pass  # a damaged layer, which is among the problems
        return None

    def _factor(self, name: str) -> torch.Tensor:
        found = self.tensors
        return found[name].float() if name in found else found[f"{name}_a"].float() @ found[f"{name}_b"].float()


def _parts(layers: list[_Layer]) -> Iterator[PartDescription]:
    for part in dict.fromkeys(layer.part for layer in layers):
        own = [layer for layer in layers if layer.part == part]
        yield PartDescription(
            part=part,
            layers=len(own),
            ranks=_counts(layer.rank for layer in own if not layer.is_wide),
            conv_ranks=_counts(layer.rank for layer in own if layer.is_wide),
            alphas=_counts(layer.alpha for layer in own),
        )


def _counts(values: Iterator[Any]) -> dict[str, int]:
    return {f"{value:g}" if value is not None else "none": count for value, count in Counter(values).most_common()}


def _blocks(layers: list[_Layer]) -> Iterator[BlockDescription]:
    for block in sorted({layer.block for layer in layers}):
        norms = [layer.norm() for layer in layers if layer.block == block]
        known = [norm for norm in norms if norm is not None]
        together = math.sqrt(sum(norm**2 for norm in known)) if len(known) == len(norms) else None
        yield BlockDescription(block=block, layers=len(norms), norm=together)


NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "LoRA": (("down", "up"),),
    "LoHa": (HADA,),
    "LoKr": tuple(
        (*first, *second)
        for first in (("lokr_w1",), ("lokr_w1_a", "lokr_w1_b"))
        for second in (("lokr_w2",), ("lokr_w2_a", "lokr_w2_b"))
    ),
}
"""The tensors without which a layer is incomplete: one of these sets."""


def _problems(layers: Layers) -> Iterator[str]:
    for stem, layer in layers.items():
        if _is_incomplete(layer):
            yield f"{stem} is incomplete: it has only {', '.join(sorted(layer))}"
        elif {"down", "up"} <= layer.keys() and len(layer["down"]) != layer["up"].shape[1]:
            yield f"{stem} has rank {len(layer['down'])} in one matrix and {layer['up'].shape[1]} in the other"
        for role, tensor in layer.items():
            if not bool(torch.isfinite(tensor.float()).all()):
                yield f"{stem} has values that are not finite, in {role}"


def _is_incomplete(layer: Mapping[str, torch.Tensor]) -> bool:
    kind = _kind_of_layer(layer).removesuffix(" with DoRA").replace("DoRA", "LoRA")
    if kind == "other":
        return not layer.keys() - {"alpha", "magnitude", "dora_scale"}
    whole = any({*roles} <= layer.keys() for roles in NEEDED[kind])
    return not whole or any(layer[role].dim() < 2 for role in ("down", "up") if role in layer)


def _hashes(path: Path, data_start: int) -> tuple[str, str]:
    """Return the SHA-256 of the file, and of all bytes after its header."""
    whole, tail = hashlib.sha256(), hashlib.sha256()
    with path.open("rb") as file:
        whole.update(file.read(data_start))
        while chunk := file.read(CHUNK_BYTES):
            whole.update(chunk)
            tail.update(chunk)
    return whole.hexdigest(), tail.hexdigest()


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
