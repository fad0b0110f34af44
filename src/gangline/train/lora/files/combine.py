"""Add LoRAs up: the sum of their changes, weighted, as one LoRA."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gangline.core.errors import BadInput
from gangline.core.models.families import Family
from gangline.core.models.lora_file_metadata import shared_metadata
from gangline.core.models.lora_modules import Module
from gangline.train.lora.files.adapter_file import AdapterFile, NewLayer, check_families, open_adapter, write_kohya_file
from gangline.train.lora.files.factors import spectrum_of, spectrum_of_product
from gangline.train.lora.files.peft_lokr import KERNEL, WIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """`rank_least` and `rank_most` are those of its layers; `kept` is the share of the sum's Frobenius norm that they hold: 1 if no rank
    was asked for."""

    path: str
    family: str
    layers: int
    rank_least: int
    rank_most: int
    kept: float


@dataclass(frozen=True, slots=True)
class _Summand:
    """A layer of one file: down (rank, in · …) and up (out, rank) with its scale and weight in it, in float32. A LoKr's is its change, and
    the identity. `shape` is that of `down` with a convolution's pixels."""

    down: torch.Tensor
    up: torch.Tensor
    shape: torch.Size


@torch.no_grad()
def combine_loras(
    given: Sequence[tuple[Path, float]],
    target: Path,
    *,
    rank: int | None = None,
    dtype: torch.dtype | None = None,
    family: Family | None = None,
    layers_per_block: int | None = None,
) -> Combined:
    """Write the sum of LoRAs, each times its weight, to `target` in kohya's names.

    Without `rank` the sum is exact: a layer's matrices are put beside each other, and its rank is the sum of theirs. With it each layer is
    the sum's best approximation of that rank. The precision is float32, or `dtype`. Raise `BadInput` if they are of different families, a
    DoRA is among them, or a LoKr and no rank.
    """
    files = [open_adapter(path, family, layers_per_block) for path, _ in given]
    check_families(files)
    for file in files:
        file.check_is_no_dora("added to another LoRA")
        _check_has_rank(file, rank)
    weighted = [(file, weight) for file, (_, weight) in zip(files, given, strict=True)]
    layers: dict[Module, NewLayer] = {}
    before = after = 0.0
    for module in dict.fromkeys(module for file in files for module in file.stems):
        summands = [_summand(file, module, weight) for file, weight in weighted if module in file.stems]
        _check_shapes(files, module, summands)
        layer, whole, kept = _sum(summands, rank)
        layers[module] = NewLayer(
            {role: each.to(dtype or each.dtype) for role, each in layer.items()},  # pyright: ignore[reportArgumentType]
            float(len(layer["down"])),
        )
        before, after = before + whole, after + kept
    ranks = [len(layer.tensors["down"]) for layer in layers.values()]
    write_kohya_file(target, layers, files[0].family, files[0].layers_per_block, _metadata(weighted, rank))
    return Combined(
        path=str(target),
        family=files[0].family.name,
        layers=len(layers),
        rank_least=min(ranks),
        rank_most=max(ranks),
        kept=(after / before) ** 0.5 if before else 1.0,
    )


def _check_has_rank(file: AdapterFile, rank: int | None) -> None:
    if rank is None and any(file.is_product(module) for module in file.stems):
        raise BadInput(
            f"{file.name} is a LoKr, whose sum with another file has no low rank",
            hint="pass --rank, and the sum is approximated by a LoRA of that rank",
        )


def _summand(file: AdapterFile, module: Module, weight: float) -> _Summand:
    if file.is_product(module):
        product = file.product(module)
        change = weight * product.scale * torch.kron(product.first.contiguous(), product.second.contiguous())
        return _Summand(change, torch.eye(len(change)), _shape_of_product(file, module, change))
    down, up = file.factors(module)
    return _Summand(down, up * (weight * file.scale(module)), file.tensors_of(module)["down"].shape)


def _shape_of_product(file: AdapterFile, module: Module, change: torch.Tensor) -> torch.Size:
    """Return the shape of a change: with a convolution's pixels where the factors show them."""
    found = file.tensors_of(module)
    pixels = next((found[role].shape[2:] for role in ("lokr_w2", "lokr_t2") if role in found), torch.Size())
    if not pixels and module.path.endswith(WIDE):
        pixels = torch.Size((KERNEL, KERNEL))
    return torch.Size((len(change), change.shape[1] // max(1, pixels.numel()), *pixels))


def _check_shapes(files: list[AdapterFile], module: Module, summands: list[_Summand]) -> None:
    first = summands[0]
    for other in summands[1:]:
        if (len(other.up), other.down.shape[1]) != (len(first.up), first.down.shape[1]):
            names = ", ".join(file.name for file in files)
            raise BadInput(
                f"{names} are for models of different sizes, as {module.part}.{module.path} shows",
                hint="take LoRAs of one base, or of bases of one architecture",
            )


def _sum(summands: list[_Summand], rank: int | None) -> tuple[dict[str, torch.Tensor], float, float]:
    """Return down and up of the sum, and the squared Frobenius norms of the whole sum and of what they hold."""
    down = torch.cat([each.down for each in summands])
    up = torch.cat([each.up for each in summands], dim=1)
    kernel = max((each.shape[2:] for each in summands), key=len)
    outputs, inputs = len(up), down.shape[1] // max(1, kernel.numel())
    whole = kept = 0.0
    if rank is not None:
        large = len(down) >= min(outputs, down.shape[1])
        spectrum = spectrum_of(up @ down, rank) if large else spectrum_of_product(down, up)
        left, right = up.double(), down.double()
        whole = float(((left.T @ left) * (right @ right.T)).sum())
        kept = float(spectrum.values[:rank].square().sum())
        down, up = spectrum.factors(rank)
    return (
        {
            "down": down.reshape(len(down), inputs, *kernel).contiguous(),
            "up": up.reshape(outputs, -1, *[1] * len(kernel)).contiguous(),
        },
        whole,
        kept,
    )


def _metadata(weighted: Sequence[tuple[AdapterFile, float]], rank: int | None) -> dict[str, str]:
    """Return the fields that all files share, and what they were merged from."""
    said = ", ".join(f"{file.name} ({weight:g})" for file, weight in weighted)
    how = "" if rank is None else f", approximated at rank {rank}"
    return shared_metadata([file.metadata for file, _ in weighted]) | {
        "ss_training_comment": f"merged from {said}{how}",
        "modelspec.merged_from": ", ".join(file.name for file, _ in weighted),
    }
