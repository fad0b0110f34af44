"""Rename a LoRA for other tools: kohya's names (ComfyUI, A1111, Forge), diffusers' or PEFT's. Weights stay as they are, to the bit."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import init_empty_weights
from peft import LoraConfig
from transformers import CLIPTextConfig

from gangline.core.errors import BadInput
from gangline.core.models.families import Family
from gangline.core.models.lora_file_metadata import amended
from gangline.core.models.lora_modules import Module
from gangline.train.lora.export import diffusers_file, write_safetensors
from gangline.train.lora.files.adapter_file import (
    AdapterFile,
    NewLayer,
    kohya_norms,
    open_adapter,
    write_kohya_file,
    write_whole,
)
from gangline.train.lora.files.peft_lokr import lokr_config, usual
from gangline.train.lora.updates import DOWN, MAGNITUDE, UP, LoraPart
from gangline.train.model.layouts import ENCODER_CLASSES

Form = Literal["kohya", "diffusers", "peft"]
TEXT = "text_model."
PEFT_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """`folded` is the number of layers whose scale is multiplied into their weights."""

    path: str
    form: Form
    family: str
    layers: int
    folded: int


def convert_lora(
    path: Path,
    target: Path,
    form: Form,
    *,
    dtype: torch.dtype | None = None,
    fold_alpha: bool = False,
    family: Family | None = None,
    layers_per_block: int | None = None,
) -> Converted:
    """Write the LoRA at `path` in another `form`; for PEFT into a folder, with one adapter for each model of the pipeline.

    Alphas are kept as they are: kohya's files have a tensor for each, diffusers and PEFT settings. With `fold_alpha` each layer's scale is
    multiplied into `up` instead, for tools that read neither. Raise `BadInput` if the form cannot hold a layer.
    """
    file = open_adapter(path, family, layers_per_block)
    layers = {module: _layer(file, module, form, dtype, fold_alpha=fold_alpha) for module in file.stems}
    if form == "kohya":
        write_kohya_file(target, layers, file.family, file.layers_per_block, amended(file.metadata))
    else:
        parts = _parts(file, layers)
        _write_diffusers(target, parts, file) if form == "diffusers" else _write_peft(target, parts, file.family)
    folded = sum(fold_alpha and file.scale(module) != 1 for module in file.stems if not file.is_product(module))
    return Converted(path=str(target), form=form, family=file.family.name, layers=len(layers), folded=folded)


def _layer(file: AdapterFile, module: Module, form: Form, dtype: torch.dtype | None, *, fold_alpha: bool) -> NewLayer:
    """Return a layer in the shapes of the form."""
    found = file.tensors_of(module)
    if file.is_product(module):
        return _product(file, module, form, dtype)
    alpha, scale = file.alpha(module), file.scale(module)
    down, up = found["down"], found["up"]
    if fold_alpha and scale != 1:
        up, alpha = (up.float() * scale).to(up.dtype), float(len(down))
    tensors: dict[Any, torch.Tensor] = {"down": down, "up": up}
    if (norms := file.norms(module)) is not None:
        tensors["magnitude"] = _norms(file, module, norms, form)
    return NewLayer({role: tensor.to(dtype or tensor.dtype) for role, tensor in tensors.items()}, alpha)


def _norms(file: AdapterFile, module: Module, norms: torch.Tensor, form: Form) -> torch.Tensor:
    """Return a DoRA's norms in the shape of the form. Raise `BadInput` if it would read them as others."""
    down = file.tensors_of(module)["down"]
    if form == "kohya":
        return kohya_norms(norms, down)
    if file.file.divided:
        raise BadInput(
            f"{file.name} is a DoRA with norms for ComfyUI and Forge, from which the trained ones follow only with the base",
            hint="use diffusers' file of the same job",
        )
    if norms.dim() == 2 and norms.shape[0] == 1 and norms.shape[1] > 1:
        raise BadInput(
            f"{file.name} is a DoRA with a norm for each input, and PEFT has one for each output",
            hint="merge it into its base with `gangline lora merge LORA --base BASE`",
        )
    return norms.reshape(1, -1, 1, 1) if down.dim() == 4 else norms.reshape(-1)


def _product(file: AdapterFile, module: Module, form: Form, dtype: torch.dtype | None) -> NewLayer:
    product = file.product(module)
    if file.norms(module) is not None:
        raise BadInput(f"{file.name} is a LoKr with DoRA, which no other form has")
    if form == "kohya":
        own = file.tensors_of(module) if "lokr_t2" not in product.factors else product.without_core().factors
    else:
        own = file.tensors_of(module)
    tensors = {role: tensor.to(dtype or tensor.dtype) for role, tensor in own.items() if role != "alpha"}
    return NewLayer(tensors, product.alpha)  # pyright: ignore[reportArgumentType]


def _parts(file: AdapterFile, layers: Mapping[Module, NewLayer]) -> dict[str, LoraPart]:
    """Return the layers as PEFT has them, by part of the pipeline."""
    parts = dict.fromkeys(module.part for module in layers)
    return {
        part: _part(file, {_path(module): layer for module, layer in layers.items() if module.part == part})
        for part in parts
    }


def _path(module: Module) -> str:
    """Return the module's name in settings: without what only some versions of transformers have before it."""
    return module.path.removeprefix(TEXT)


def _part(file: AdapterFile, layers: Mapping[str, NewLayer]) -> LoraPart:
    products = [path for path, layer in layers.items() if "down" not in layer.tensors]
    if products and len(products) < len(layers):
        raise BadInput(f"{file.name} has layers of a LoRA and of a LoKr, which PEFT puts into two adapters")
    if not products:
        return _part_of_lora(file, layers)
    weights = {f"{path}.{role}": tensor for path, layer in layers.items() for role, tensor in layer.tensors.items()}
    return LoraPart(weights=weights, config=lokr_config(file.name, layers))


def _part_of_lora(file: AdapterFile, layers: Mapping[str, NewLayer]) -> LoraPart:
    doras = [path for path, layer in layers.items() if "magnitude" in layer.tensors]
    if doras and len(doras) < len(layers):
        raise BadInput(f"{file.name} is a DoRA in some layers only, and PEFT has it in all of a model or in none")
    names = {"down": DOWN, "up": UP, "magnitude": MAGNITUDE}
    weights = {path + names[role]: tensor for path, layer in layers.items() for role, tensor in layer.tensors.items()}
    ranks = {path: len(layer.tensors["down"]) for path, layer in layers.items()}
    alphas = {path: layer.alpha for path, layer in layers.items()}
    rank, alpha = usual(ranks), usual(alphas)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # pyright: ignore[reportArgumentType]
        rank_pattern={path: own for path, own in ranks.items() if own != rank},
        alpha_pattern={path: own for path, own in alphas.items() if own != alpha},  # pyright: ignore[reportArgumentType]
        use_dora=bool(doras),
        target_modules=sorted(layers),
    )
    return LoraPart(weights=weights, config=config)


def _write_diffusers(target: Path, parts: Mapping[str, LoraPart], file: AdapterFile) -> None:
    tensors, settings = diffusers_file(parts)
    write_whole(target, tensors, amended(file.metadata) | settings)


def _write_peft(target: Path, parts: Mapping[str, LoraPart], family: Family) -> None:
    """Write a folder with a PEFT adapter for each part, which `PeftModel.from_pretrained` reads. It gets its name once it is complete."""
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for part, trained in parts.items():
        folder = partial / part
        folder.mkdir(parents=True)
        config: Any = trained.config
        config.inference_mode = True
        config.save_pretrained(folder)
        before = PEFT_PREFIX + _name_before(family, part)
        weights = {before + name: tensor for name, tensor in trained.weights.items()}
        write_safetensors(folder / "adapter_model.safetensors", weights, {"format": "pt"})
    shutil.rmtree(target, ignore_errors=True)
    partial.replace(target)


def _name_before(family: Family, part: str) -> str:
    """Return what a text encoder of this machine's transformers has before its layers' names: `text_model.`, or nothing."""
    encoder = next((encoder for encoder in family.text_encoders if encoder.part == part), None)
    if encoder is None:
        return ""
    with init_empty_weights():
        names = ENCODER_CLASSES[encoder.model](CLIPTextConfig(num_hidden_layers=1)).state_dict()
    return TEXT if any(name.startswith(TEXT) for name in names) else ""
