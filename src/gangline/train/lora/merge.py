"""Merge a LoRA into its base, as one file in the original layout: for tools that compute a LoRA differently, or not at all."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from gangline.core.errors import BadInput
from gangline.core.models.families import Family, TextEncoder
from gangline.core.models.recognition import V_MARK, ZERO_SNR_MARK, Header, TensorHeader
from gangline.train.lora.init_lora import open_lora
from gangline.train.model import original
from gangline.train.model.base import LoadedBase, load_base
from gangline.train.model.layouts import FolderLayout, SingleFile
from gangline.train.tensors import Tensors

Names = Callable[[str], original.TensorSource]
READ_FROM_SHAPES = ("attention_head_dim", "transformer_layers_per_block", "layers_per_block", "block_out_channels")
"""Settings of a U-Net that a single file does not contain: tools derive them from the family and from shapes, as `original` does."""


@dataclass(frozen=True, slots=True)
class Merged:
    path: Path
    family: str
    layers: int
    """The number of layers whose weights differ from the base's."""


def merge_loras(loras: Sequence[tuple[Path, float]], base: Path, target: Path, dtype: torch.dtype) -> Merged:
    """Write the model at `base` with all `loras` merged into it to `target`, each times its weight, as a UI applies them at these
    strengths: a DoRA's change of a weight is the one at strength 1 times its weight. Sums are computed in float32 and written in `dtype`.

    Raise `BadInput` if a LoRA does not fit the base, or if no tool could read the base's architecture from a single file.
    """
    model = load_base(base, torch.device("cpu"), torch.float32)
    files = [(open_lora(lora, model.family), weight) for lora, weight in loras]
    left = [dict(file.layers) for file, _ in files]
    tensors, changed = _whole(model, dtype), 0
    for part, load, names in _parts(model):
        module = load()
        for name, layer in _layers(module):
            before = now = layer.weight.data
            for (file, weight), remaining in zip(files, left, strict=True):
                stem = file.stem_of(model.family, part, name, model.layout.unet_config()["layers_per_block"])
                if stem in remaining:
                    merged = file.merged(stem, part, name, before)
                    now = merged if now is before and weight == 1 else now + weight * (merged - before)
                    del remaining[stem]
            if now is not before:
                layer.weight.data = now
                changed += 1
        _put(tensors, in_original_layout(module, names), dtype)
    if isinstance(model.layout, FolderLayout):
        tensors |= _layers_left_out(model.family, tensors)
    for (lora, _), remaining in zip(loras, left, strict=True):
        if remaining:
            raise BadInput(
                f"{lora.name} has weights for {len(remaining)} modules that {base.name} lacks, such as {next(iter(remaining))}",
                hint="use the base that it was trained on",
            )
    _check_can_be_read(model, tensors)
    _write(target, tensors, {"modelspec.merged_from": ", ".join([base.name, *(lora.name for lora, _ in loras)])})
    return Merged(target, model.family.words, changed)


def in_original_layout(module: Any, names: Names) -> Tensors:
    """Return the tensors of `module` with the original code's names and shapes; tensors that it stores as one are joined."""
    whole: Tensors = {}
    thirds: dict[str, list[torch.Tensor]] = {}
    for name, tensor in module.state_dict().items():
        source = names(name)
        if source.third is not None:
            thirds.setdefault(source.name, [tensor] * 3)[source.third] = tensor
        else:
            whole[source.name] = tensor.T if source.transposed else tensor
    return whole | {name: torch.cat(parts) for name, parts in thirds.items()}


def _parts(base: LoadedBase) -> Iterator[tuple[str, Callable[[], Any], Names]]:
    """Yield what a LoRA may change, with a loader and its tensors' original names: the U-Net, and each text encoder."""
    yield "unet", lambda: base.layout.unet(torch.float32), original.unet_source(base.layout.unet_config())
    for number, encoder in enumerate(base.family.text_encoders):
        yield encoder.part, lambda number=number: base.text_encoders[number], _names_of(base, encoder)


def _layers(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers that can have a LoRA: those with a matrix or a convolution."""
    for name, layer in module.named_modules():
        if isinstance(getattr(layer, "weight", None), torch.Tensor) and layer.weight.dim() > 1:
            yield name, layer


def _layers_left_out(family: Family, tensors: Tensors) -> Tensors:
    """Return a substitute for an encoder's last layer, which nothing reads and diffusers leaves out: a copy of its first, so that tools
    count right."""
    copies: Tensors = {}
    for encoder in family.text_encoders:
        below = f"{encoder.prefixes[0]}transformer.resblocks."
        if encoder.without_last:
            last = len({name.removeprefix(below).split(".")[0] for name in tensors if name.startswith(below)})
            first = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{below}0.")}
            copies |= {name.replace(f"{below}0.", f"{below}{last}."): tensor for name, tensor in first.items()}
    return copies


def _names_of(base: LoadedBase, encoder: TextEncoder) -> Names:
    if isinstance(base.layout, SingleFile):
        return original.text_source(base.layout.header, encoder)
    return original.text_source_of(encoder)


def _whole(base: LoadedBase, dtype: torch.dtype) -> Tensors:
    """Return all tensors of a single file, or those of a folder that no LoRA changes."""
    tensors: Tensors = {}
    marks = {V_MARK: base.prediction_type == "v_prediction", ZERO_SNR_MARK: base.zero_terminal_snr}
    marked: Tensors = {name: torch.zeros(0) for name, is_so in marks.items() if is_so}
    if isinstance(base.layout, SingleFile):
        _put(tensors, marked | load_file(base.layout.path), dtype)
        return tensors
    vae = in_original_layout(base.layout.vae(), original.vae_source(original.VAE, base.layout.vae_config()))
    _put(tensors, {name: _as_convolution(name, tensor) for name, tensor in vae.items()}, dtype)
    return tensors | marked


def _as_convolution(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as the original VAE's attention has it: as a 1 × 1 convolution where diffusers has a linear layer."""
    return tensor[:, :, None, None] if ".attn_1." in name and tensor.dim() == 2 else tensor


def _put(tensors: Tensors, new: Tensors, dtype: torch.dtype) -> None:
    for name, tensor in new.items():
        kept = tensor.detach().to(dtype if tensor.is_floating_point() else tensor.dtype)
        tensors[name] = kept.reshape(tensors[name].shape if name in tensors else kept.shape).contiguous()


def _check_can_be_read(base: LoadedBase, tensors: Tensors) -> None:
    """Raise `BadInput` if a tool that reads shapes would mistake the U-Net for another architecture."""
    entries = {
        name: TensorHeader(dtype="F32", shape=tuple(tensor.shape), start=0, end=0) for name, tensor in tensors.items()
    }
    found = original.unet_config(Header(name="", data_start=0, tensors=entries, metadata={}), base.family)
    own = base.layout.unet_config()
    levels = len(found["block_out_channels"])
    for name in READ_FROM_SHAPES:
        ours, theirs = _for_each_level(own.get(name, 1), levels), _for_each_level(found[name], levels)
        if ours != theirs:
            raise BadInput(
                f"the base cannot be written as one file: its U-Net's {name} is {ours}, but tools would infer {theirs} from its shapes",
                hint="load the base and the LoRA with diffusers",
            )


def _for_each_level(value: Any, levels: int) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value] * levels


def _write(target: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Write the file atomically: it gets its name once it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}")
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, partial, metadata)
    partial.replace(target)
