"""Give a LoRA a lower rank: each layer's best approximation of it, by its singular values."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from gangline.core.errors import BadInput
from gangline.core.models.families import Family
from gangline.core.models.lora_file_metadata import amended
from gangline.core.models.lora_modules import Module
from gangline.core.models.lora_names import WeightRole
from gangline.train.lora.files.adapter_file import AdapterFile, NewLayer, kohya_norms, open_adapter, write_kohya_file
from gangline.train.lora.files.factors import Spectrum, spectrum_of_product

Method = Literal["energy", "sv_fro", "sv_ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How each layer's rank is chosen: at most `rank` (`conv_rank` in convolutions that are wider than a pixel), and no more than `method`
    needs for `parameter`.

    `energy` keeps a share of the squared Frobenius norm, `sv_fro` of the norm itself, `sv_ratio` the singular values above the first one
    divided by it: the last two as in kohya's resize_lora.py.
    """

    rank: int | None = None
    conv_rank: int | None = None
    method: Method | None = None
    parameter: float = 1.0

    def rank_of(self, spectrum: Spectrum, had: int, *, wide: bool) -> int:
        most = (self.conv_rank or self.rank if wide else self.rank) or had
        return max(1, min(most, had, self._needed(spectrum)))

    def _needed(self, spectrum: Spectrum) -> int:
        match self.method:
            case None:
                return len(spectrum.values)
            case "sv_ratio":
                return spectrum.rank_for_ratio(self.parameter)
            case "energy":
                return spectrum.rank_for_energy(self.parameter)
            case "sv_fro":
                return spectrum.rank_for_energy(self.parameter**2)

    @property
    def words(self) -> str:
        """What was done, in the words of kohya's scripts."""
        conv = f" (conv: {self.conv_rank})" if self.conv_rank else ""
        if self.method:
            most = f", max rank {self.rank}{conv}" if self.rank else ""
            return f"dynamic resize with {self.method}: {self.parameter:g}{most}"
        return f"dimension is resized to {self.rank}{conv}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKept:
    """`kept` is the share of the Frobenius norm of the block's changes that the result has."""

    block: str
    layers: int
    rank_least: int
    rank_most: int
    kept: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    path: str
    family: str
    layers: int
    kept: float
    blocks: tuple[BlockKept, ...]


@dataclass(frozen=True, slots=True)
class _Shrunk:
    layer: NewLayer
    before: float
    after: float
    """The squared Frobenius norms of the change."""


@torch.no_grad()
def resize_lora(
    path: Path, target: Path, rule: Rule, *, family: Family | None = None, layers_per_block: int | None = None
) -> Resized:
    """Write the LoRA with lower ranks to `target`, in kohya's names and in the precision of its weights. A DoRA keeps its norms.

    Raise `BadInput` if it is a LoKr, or a DoRA whose norms were made for these very weights.
    """
    file = open_adapter(path, family, layers_per_block)
    _check_can_be_resized(file)
    found = {module: _shrunk(file, module, rule) for module in file.stems}
    layers = {module: each.layer for module, each in found.items()}
    had = max(len(file.tensors_of(module)["down"]) for module in file.stems)
    metadata = amended(file.metadata, f"{rule.words} from {had}")
    write_kohya_file(target, layers, file.family, file.layers_per_block, metadata)
    return Resized(
        path=str(target),
        family=file.family.name,
        layers=len(layers),
        kept=_share(found.values()),
        blocks=tuple(_by_block(found)),
    )


def _check_can_be_resized(file: AdapterFile) -> None:
    if any(file.is_product(module) for module in file.stems):
        raise BadInput(
            f"{file.name} is a LoKr, whose rank is not one of its matrices",
            hint="make a LoRA of it with `gangline lora merge FILE --rank N`",
        )
    if file.file.divided and any(file.norms(module) is not None for module in file.stems):
        raise BadInput(
            f"{file.name} is a DoRA with norms for ComfyUI and Forge, which fit these weights alone",
            hint="resize diffusers' file of the same job",
        )


def _shrunk(file: AdapterFile, module: Module, rule: Rule) -> _Shrunk:
    down, up = file.factors(module)
    found, scale = file.tensors_of(module), file.scale(module)
    spectrum = spectrum_of_product(down, up)
    kernel = found["down"].shape[2:]
    rank = rule.rank_of(spectrum, len(down), wide=kernel.numel() > 1)
    squares = spectrum.values.square() * scale**2
    before, after = float(squares.sum()), float(squares[:rank].sum())
    if rank == len(down):
        new_down, new_up = found["down"], found["up"]
    else:
        flat_down, flat_up = spectrum.factors(rank)
        new_down = flat_down.reshape(rank, *found["down"].shape[1:]).to(found["down"].dtype)
        new_up = flat_up.reshape(len(up), rank, *found["up"].shape[2:]).to(found["up"].dtype)
    norms = file.norms(module)
    tensors: dict[WeightRole, torch.Tensor] = {"down": new_down, "up": new_up}
    if norms is not None:
        tensors["magnitude"] = kohya_norms(norms, new_down)
    alpha = file.alpha(module) if rank == len(down) else scale * rank
    return _Shrunk(NewLayer(tensors, alpha), before, after)


def _by_block(found: Mapping[Module, _Shrunk]) -> list[BlockKept]:
    blocks = []
    for block in sorted({module.block for module in found}):
        own = [each for module, each in found.items() if module.block == block]
        ranks = [len(each.layer.tensors["down"]) for each in own]
        blocks.append(
            BlockKept(block=block, layers=len(own), rank_least=min(ranks), rank_most=max(ranks), kept=_share(own))
        )
    return blocks


def _share(layers: Iterable[_Shrunk]) -> float:
    every = list(layers)
    before = sum(each.before for each in every)
    return math.sqrt(sum(each.after for each in every) / before) if before else 1.0
