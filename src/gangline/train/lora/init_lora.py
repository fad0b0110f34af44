"""Read a LoRA to start from: a file in diffusers' or kohya's format, whatever tool wrote it."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from gangline.core.errors import BadInput
from gangline.core.models.families import Family
from gangline.core.models.lora_names import CONVOLUTIONS, KRONECKER, WeightRole, split_key, stems, target_of
from gangline.core.models.recognition import Header, check_lora
from gangline.data.safetensors_header import read_header
from gangline.train.lora.export import DIVIDED, SETTINGS
from gangline.train.lora.updates import (
    DOWN,
    EPSILON,
    MAGNITUDE,
    UP,
    KroneckerLayer,
    LoraPart,
    LowRankLayer,
    growth,
)
from gangline.train.tensors import Tensors

NAMED = 3

LoraWeights = dict[str, dict[WeightRole, torch.Tensor]]


def read_lora(path: Path, family: Family, parts: Mapping[str, LoraPart], layers_per_block: int) -> dict[str, Tensors]:
    """Return the weights of the LoRA at `path` under exactly the names and shapes of `parts`' weights.

    They are scaled so that they have the same effect at `parts`' alphas as at the file's. What the file lacks, modules or ranks above its
    own, stays as it is in `parts`, whose `up`s are still zero. Raise `BadInput` if the file does not fit.
    """
    file = open_lora(path, family)
    weights = {part: dict(fresh.weights) for part, fresh in parts.items()}
    left = dict(file.layers)
    for part, fresh in parts.items():
        for module, layer in (*fresh.layers(), *fresh.products()):
            stem = next((stem for stem in stems(family, part, module, layers_per_block) if stem in left), None)
            if stem is not None:
                del left[stem]
                weights[part] |= file.fitted(stem, part, module, layer)
    file.check_nothing_is_left(left, parts)
    return weights


def open_lora(path: Path, family: Family | None) -> "LoraFile":
    """Read a LoRA's file. Raise `BadInput` if it is not a LoRA, or for another family than `family`, if that is given."""
    header = read_header(path)
    settings = settings_of_peft(header)
    try:
        tensors = load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise _unreadable(path.name, error) from None
    layers = _by_stem(path.name, tensors)
    check_lora(header, family)
    return LoraFile(
        name=path.name, layers=layers, settings=settings, divided=DIVIDED.items() <= header.metadata.items()
    )


def settings_of_peft(header: Header) -> dict[str, Any]:
    """Return what diffusers wrote of PEFT's settings into the metadata, by part and name."""
    try:
        return dict(json.loads(header.metadata.get(SETTINGS, "{}")))
    except (ValueError, TypeError, RecursionError) as error:
        raise _unreadable(header.name, error) from None


def _unreadable(name: str, error: Exception) -> BadInput:
    return BadInput(f"{name} cannot be read: {error}", hint="check that it is complete, or download it again")


def _by_stem(name: str, tensors: Tensors) -> LoraWeights:
    layers: LoraWeights = {}
    strange: list[str] = []
    for key, tensor in tensors.items():
        match split_key(key):
            case (stem, role) if _can_be(role, tensor):
                layers.setdefault(stem, {})[role] = tensor
            case _:
                strange.append(key)
    if strange or not layers:
        raise BadInput(
            f"{name} is not a LoRA that training can continue from: it has {_some(strange) or 'nothing in it'}",
            hint="LoHa, (IA)³ and whole models are not supported",
        )
    return layers


def _can_be(role: WeightRole, tensor: torch.Tensor) -> bool:
    match role:
        case "down" | "up" | "lokr_w1" | "lokr_w1_a" | "lokr_w1_b" | "lokr_w2" | "lokr_w2_a" | "lokr_w2_b":
            return tensor.dim() >= 2
        case "lokr_t2":
            return tensor.dim() == 4
        case "alpha":
            return tensor.numel() == 1 and bool(torch.isfinite(tensor).all())
        case _:
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraFile:
    """A LoRA's file. `layers` are its tensors by stem and role, `settings` are PEFT's as diffusers wrote them, by part.

    `divided` says whether a DoRA's norms are in the form that `export` writes for ComfyUI and Forge.
    """

    name: str
    layers: LoraWeights
    settings: dict[str, Any]
    divided: bool

    def stem_of(self, family: Family, part: str, module: str, layers_per_block: int) -> str | None:
        """Return the stem of the weights for `module`, in any tool's naming, or None."""
        return next((stem for stem in stems(family, part, module, layers_per_block) if stem in self.layers), None)

    def merged(self, stem: str, part: str, module: str, weight: torch.Tensor) -> torch.Tensor:
        """Return `weight` with the file's update applied, in its shape and in float32."""
        found, before = self.layers[stem], weight.float()
        if self.is_product(found):
            changed = before + self._change_by_product(stem, part, module, before.shape)
        else:
            changed = before + self._change(stem, part, module, before.shape)
        norms = found.get("magnitude", found.get("dora_scale"))
        if norms is None:
            return changed
        self._check_norms_are_of_outputs(found, len(before))
        of = before if self.divided else changed
        scale = norms.float().flatten() / (of.flatten(1).norm(dim=1) + (EPSILON if self.divided else 0))
        return changed * scale.reshape(-1, *[1] * (weight.dim() - 1))

    def _change(self, stem: str, part: str, module: str, shape: torch.Size) -> torch.Tensor:
        found = self.layers[stem]
        self.check_is_complete(stem)
        down, up = (found[role].float().flatten(1) for role in ("down", "up"))
        if (up.shape[0], down.shape[1]) != (shape[0], shape[1:].numel()):
            raise self._misfit(stem, (up.shape[0], down.shape[1]), (shape[0], shape[1:].numel()))
        return (self.scale(part, module, found) * (up @ down)).reshape(shape)

    def _change_by_product(self, stem: str, part: str, module: str, shape: torch.Size) -> torch.Tensor:
        product = self.product(stem, part, module)
        try:
            return product.change(shape)
        except (ValueError, RuntimeError):
            has = (len(product.first) * len(product.second), product.first.shape[1] * product.second.shape[1])
            raise self._misfit(stem, has, (shape[0], shape[1:].numel())) from None

    def check_is_complete(self, stem: str) -> None:
        if not {"down", "up"} <= self.layers[stem].keys():
            raise BadInput(f"{self.name} is damaged: {stem} is incomplete", hint="download it again")

    @staticmethod
    def is_product(found: Mapping[WeightRole, torch.Tensor]) -> bool:
        return not found.keys().isdisjoint(KRONECKER)

    def product(self, stem: str, part: str, module: str) -> KroneckerLayer:
        """Return a layer of a LoKr. Raise `BadInput` if a tensor is missing."""
        found = self.layers[stem]
        first = "lokr_w1" in found or {"lokr_w1_a", "lokr_w1_b"} <= found.keys()
        second = "lokr_w2" in found or {"lokr_w2_a", "lokr_w2_b"} <= found.keys()
        if not (first and second):
            raise BadInput(f"{self.name} is damaged: {stem} is incomplete", hint="download it again")
        factors = {role: found[role].float() for role in KRONECKER if role in found}
        layer = KroneckerLayer(factors=factors, alpha=1.0)
        return replace(layer, alpha=self._alpha_of_product(part, module, found, layer.rank))

    def _alpha_of_product(
        self, part: str, module: str, found: Mapping[WeightRole, torch.Tensor], rank: int | None
    ) -> float:
        """Return the alpha of a layer of a LoKr, by default its rank. Where PEFT scaled factors that are whole, raise `BadInput`."""
        if "alpha" in found:
            return float(found["alpha"].reshape(-1)[0])
        alpha = self._said(part, module, "alpha", "alpha_pattern")
        said = self._said(part, module, "r", "rank_pattern")
        if not rank and alpha != said:
            raise BadInput(
                f"{self.name} scales factors that are whole, in {module}", hint="use a LoKr whose alphas are its ranks"
            )
        return float(alpha or rank or 1)

    def fitted(self, stem: str, part: str, module: str, fresh: LowRankLayer | KroneckerLayer) -> Tensors:
        """Return the layer in the shapes of `fresh`, with the effect that it had."""
        found, product = self.layers[stem], isinstance(fresh, KroneckerLayer)
        if self.is_product(found) != product:
            kind, value = ("a LoRA", "lora") if product else ("a LoKr", "lokr")
            raise BadInput(f"{self.name} is {kind}", hint=f"set algorithm to {value}")
        if isinstance(fresh, KroneckerLayer):
            return self._fitted_product(stem, part, module, fresh)
        self.check_is_complete(stem)
        rank, rank_wanted = found["down"].shape[0], fresh.down.shape[0]
        if rank > rank_wanted:
            raise self._too_high(rank, rank_wanted, wide=fresh.down.shape[2:].numel() > 1)
        factor = self.scale(part, module, found) / fresh.scale
        down, up = fresh.down.detach().clone(), torch.zeros_like(fresh.up)
        down[:rank] = self._shaped(stem, found["down"], (rank, *down.shape[1:]))
        up[:, :rank] = self._shaped(stem, found["up"], (up.shape[0], rank, *up.shape[2:])) * factor
        weights = {module + DOWN: down, module + UP: up}
        if (magnitude := self._magnitude(stem, found, fresh)) is not None:
            if self.divided:
                magnitude *= growth(replace(fresh, down=down, up=up)).to(magnitude).reshape(magnitude.shape)
            weights[module + MAGNITUDE] = magnitude
        return weights

    def _fitted_product(self, stem: str, part: str, module: str, fresh: KroneckerLayer) -> Tensors:
        """Return the layer of a LoKr in the shapes of `fresh`. What it lacks in rank begins as in `fresh`, without an effect."""
        own = self.product(stem, part, module)
        if own.first.shape != fresh.first.shape:
            rows, columns = own.first.shape
            raise BadInput(
                f"{self.name} has a first factor of {rows} × {columns} in {stem}, the job one of {tuple(fresh.first.shape)}",
                hint=f"set lokr_factor to {rows}" if rows == columns else "set lokr_factor as it was for this LoKr",
            )
        first = self._shaped(stem, own.first, tuple(fresh.first.shape)) * (own.scale / fresh.scale)
        kinds = {"lokr_w2": "full", "lokr_t2": "tucker", "lokr_w2_a": "low_rank"}
        kind, wanted = (next(kinds[role] for role in kinds if role in layer.factors) for layer in (own, fresh))
        if wanted == "full":
            whole = fresh.factors["lokr_w2"].shape
            second = self._shaped(stem, own.second, (whole[0], whole[1:].numel())).reshape(whole)
            return {f"{module}.lokr_w1": first, f"{module}.lokr_w2": second}
        if kind != wanted:
            raise BadInput(
                f"{self.name} has a second factor of the kind {kind}", hint=f"set lokr_second_factor to {kind}"
            )
        rank, rank_wanted = own.rank or 0, fresh.rank or 0
        if rank > rank_wanted:
            raise self._too_high(rank, rank_wanted, wide="lokr_t2" in own.factors)
        weights = {f"{module}.{role}": factor.detach().clone() for role, factor in fresh.factors.items()}
        if kind == "tucker":
            weights[f"{module}.lokr_t2"][:, :rank] = 0  # what is new must not act through the file's w2_b
        for role in ("lokr_w2_a", "lokr_w2_b", "lokr_t2"):
            if role in own.factors:
                to = weights[f"{module}.{role}"]
                place = _of_rank(role, kind, rank)
                to[place] = self._shaped(stem, own.factors[role], tuple(to[place].shape))
        return weights | {f"{module}.lokr_w1": first}

    def _too_high(self, rank: int, wanted: int, *, wide: bool) -> BadInput:
        setting = "conv_rank" if wide else "rank"
        return BadInput(f"{self.name} has rank {rank}, but the job has rank {wanted}", hint=f"set {setting} to {rank}")

    def scale(self, part: str, module: str, found: Mapping[WeightRole, torch.Tensor]) -> float:
        """Return alpha / rank, from the file or from PEFT's settings; 1 if neither states it."""
        rank = found["down"].shape[0]
        if "alpha" in found:
            return float(found["alpha"].reshape(-1)[0]) / rank
        said = self._said(part, module, "lora_alpha", "alpha_pattern")
        alpha = rank if said is None else said
        return alpha / (math.sqrt(rank) if self.settings.get(f"{part}.use_rslora") else rank)

    def stated_alpha(self, part: str, module: str) -> float | None:
        """Return the alpha that PEFT's settings state for a layer of a LoRA or a LoKr."""
        of_lora = self._said(part, module, "lora_alpha", "alpha_pattern")
        return self._said(part, module, "alpha", "alpha_pattern") if of_lora is None else of_lora

    def _said(self, part: str, module: str, name: str, of_layers: str) -> float | None:
        """Return a number of PEFT's settings for a layer; None if they do not have it."""
        try:
            patterns: dict[str, float] = self.settings.get(f"{part}.{of_layers}") or {}
            own = [value for pattern, value in patterns.items() if re.fullmatch(rf"(.*\.)?({pattern})", module)]
            value = own[0] if own else self.settings.get(f"{part}.{name}")
            return None if value is None and not own else float(value)  # pyright: ignore[reportArgumentType]
        except (AttributeError, TypeError, ValueError, re.error) as error:
            raise BadInput(
                f"{self.name} has no valid alpha in its metadata: {error}", hint="download it again"
            ) from None

    def _magnitude(
        self, stem: str, found: Mapping[WeightRole, torch.Tensor], fresh: LowRankLayer
    ) -> torch.Tensor | None:
        magnitude = found.get("magnitude", found.get("dora_scale"))
        if (magnitude is None) != (fresh.magnitude is None):
            has, value = ("not a DoRA", "false") if magnitude is None else ("a DoRA", "true")
            raise BadInput(f"{self.name} is {has}", hint=f"set dora to {value}")
        if magnitude is None or fresh.magnitude is None:
            return None
        self._check_norms_are_of_outputs(found, fresh.up.shape[0])
        return self._shaped(stem, magnitude, tuple(fresh.magnitude.shape)).to(fresh.magnitude)

    def _check_norms_are_of_outputs(self, found: Mapping[WeightRole, torch.Tensor], outputs: int) -> None:
        if "dora_scale" in found and found["dora_scale"].shape[0] != outputs:
            raise BadInput(
                f"{self.name} is a DoRA with a norm for each input; only those with one for each output can be used here"
            )

    def _misfit(self, stem: str, has: tuple[int, ...], needed: tuple[int, ...]) -> BadInput:
        return BadInput(
            f"{self.name} does not fit the base: {stem} is {has}, the base needs {needed}",
            hint="use a LoRA that was trained on a base of this architecture",
        )

    def _shaped(self, stem: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the tensor in `shape` and float32: some tools write a linear layer as a convolution of one pixel."""
        if [size for size in tensor.shape if size > 1] != [size for size in shape if size > 1]:
            raise self._misfit(stem, tuple(tensor.shape), shape)
        if not torch.isfinite(tensor).all():
            raise BadInput(f"{self.name} has values that are not finite, in {stem}", hint="use an earlier one")
        return tensor.float().reshape(shape)

    def check_nothing_is_left(self, left: LoraWeights, parts: Mapping[str, LoraPart]) -> None:
        if not left:
            return
        of_text = [stem for stem in left if stem.startswith(("lora_te", "text_encoder"))]
        if of_text and "text_encoder" not in parts:
            raise BadInput(
                f"{self.name} has weights for text encoders, which this job does not train",
                hint="set train_text_encoder",
            )
        targets = {target for stem in left if (target := target_of(stem))} if not of_text else set[str]()
        named = sorted(targets.difference(CONVOLUTIONS))
        hints = [f"add {', '.join(named)} to target_modules"] if named else []
        rank = max((_rank_of(found) for stem, found in left.items() if target_of(stem) in CONVOLUTIONS), default=0)
        hints += [f"set conv_rank to {rank}"] if rank else []
        raise BadInput(
            f"{self.name} has weights for modules that this job does not train: {_some(sorted(left))}",
            hint=", ".join(hints),
        )


def _rank_of(found: Mapping[WeightRole, torch.Tensor]) -> int:
    """Return the rank of a layer's tensors; 0 if they have none."""
    return next((len(found[role]) for role in ("down", "lokr_w2_b") if role in found), 0)


def _of_rank(role: str, kind: str, rank: int) -> tuple[slice, ...]:
    """Return where a tensor of this rank is within one of a higher rank."""
    first = role == "lokr_w2_b" or kind == "tucker"
    return (slice(rank), slice(rank)) if role == "lokr_t2" else (slice(rank),) if first else (slice(None), slice(rank))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
