"""Make a LoRA of the difference of two checkpoints. They are read layer by layer, so memory holds one layer of each and the result."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from gangline.core.errors import BadInput
from gangline.core.models.lora_modules import Module
from gangline.core.models.lora_names import CONVOLUTIONS, IN_A_TRANSFORMER, TEXT_MODULES, text_path
from gangline.train.lora.files.adapter_file import NewLayer, write_kohya_file
from gangline.train.lora.files.checkpoint_weights import CheckpointWeights, open_checkpoint
from gangline.train.lora.files.factors import spectrum_of

IN_RESNETS = (*CONVOLUTIONS, "conv_shortcut", "time_emb_proj")
"""Layers that are extracted with a rank for convolutions, as kohya's scripts and LyCORIS do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """`layers` differ between the checkpoints, `equal` do not; `kept` is the share of the differences' Frobenius norm that the LoRA has."""

    path: str
    family: str
    layers: int
    equal: int
    kept: float


@torch.no_grad()
def extract_lora(
    base: Path,
    tuned: Path,
    target: Path,
    rank: int,
    *,
    conv_rank: int | None = None,
    text_encoder: bool = False,
    dtype: torch.dtype = torch.float16,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> Extracted:
    """Write the LoRA that `tuned` is to `base` to `target`, in kohya's names. `tell` gets the number of layers that are done, and of all.

    Raise `BadInput` if the two are of different architectures, or equal where a LoRA would change them.
    """
    before, after = open_checkpoint(base), open_checkpoint(tuned)
    _check_alike(before, after)
    places = list(_places(before, after, conv_rank, text_encoder=text_encoder))
    layers: dict[Module, NewLayer] = {}
    whole = kept = 0.0
    for number, (part, layer, is_wide) in enumerate(places, 1):
        change = after.weight(part, layer) - before.weight(part, layer)
        if change.any():
            made, squares, of_made = _layer(change, conv_rank if is_wide and conv_rank else rank, dtype)
            layers[Module(part, layer if part == "unet" else text_path(layer))] = made
            whole, kept = whole + squares, kept + of_made
        tell(number, len(places))
    if not layers:
        raise BadInput(
            f"{tuned.name} has the weights of {base.name} in every layer that is compared",
            hint="add --conv-rank or --text-encoder, if it was trained elsewhere",
        )
    metadata = _metadata(before, after, tuned)
    write_kohya_file(target, layers, before.model.family, before.unet_config["layers_per_block"], metadata)
    return Extracted(
        path=str(target),
        family=before.model.family.name,
        layers=len(layers),
        equal=len(places) - len(layers),
        kept=(kept / whole) ** 0.5,
    )


def _check_alike(before: CheckpointWeights, after: CheckpointWeights) -> None:
    if before.model.family is not after.model.family:
        raise BadInput(
            f"{before.path.name} is {before.model.family.words}, and {after.path.name} is {after.model.family.words}",
            hint="take a checkpoint and one that was made from it",
        )


def _places(
    before: CheckpointWeights, after: CheckpointWeights, conv_rank: int | None, *, text_encoder: bool
) -> Iterator[tuple[str, str, bool]]:
    """Yield part, name and whether it is wider than a pixel of each layer to compare. Raise `BadInput` if shapes differ."""
    ends = (*IN_A_TRANSFORMER, *IN_RESNETS) if conv_rank else IN_A_TRANSFORMER
    parts = ("unet", *(before.model.family.text_parts if text_encoder else ()))
    for part in parts:
        ours, theirs = before.layers(part), after.layers(part)
        if ours != theirs:
            raise BadInput(
                f"{before.path.name} and {after.path.name} have different layers in their {part}",
                hint="take checkpoints of one architecture",
            )
        for layer, shape in ours.items():
            if layer.endswith(tuple(f".{end}" for end in (ends if part == "unet" else TEXT_MODULES))):
                yield part, layer, shape[2:].numel() > 1


def _layer(change: torch.Tensor, rank: int, dtype: torch.dtype) -> tuple[NewLayer, float, float]:
    """Return the layer, and the squared Frobenius norms of the change and of what the layer has of it."""
    flat = change.flatten(1)
    rank = min(rank, *flat.shape)
    spectrum = spectrum_of(flat, rank)
    down, up = spectrum.factors(rank)
    kernel = change.shape[2:]
    tensors = {
        "down": down.reshape(rank, *change.shape[1:]).to(dtype),
        "up": up.reshape(len(up), rank, *[1] * len(kernel)).to(dtype),
    }
    squares = float(flat.double().square().sum())
    return NewLayer(tensors, float(rank)), squares, min(squares, float(spectrum.values.square().sum()))  # pyright: ignore[reportArgumentType]


def _metadata(before: CheckpointWeights, after: CheckpointWeights, tuned: Path) -> dict[str, str]:
    """Return kohya's and ModelSpec's fields. The LoRA is for what the tuned checkpoint predicts."""
    variant = after.model.family.variant(after.model.prediction_type)
    zero = {"ss_zero_terminal_snr": "True"} if after.model.zero_terminal_snr else {}
    return zero | {
        "ss_base_model_version": variant.kohya_version,
        "ss_sd_model_name": before.path.name,
        "ss_training_comment": f"extracted by Gangline from {tuned.name}, which was made from {before.path.name}",
        "modelspec.sai_model_spec": "1.0.1",
        "modelspec.architecture": f"{variant.architecture}/lora",
        "modelspec.implementation": after.model.family.implementation,
        "modelspec.title": tuned.stem,
        "modelspec.prediction_type": "v" if after.model.prediction_type == "v_prediction" else "epsilon",
    }
