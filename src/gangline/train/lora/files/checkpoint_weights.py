"""Read the layers of a checkpoint one by one, from a single file or a folder in diffusers' layout. No model is made, and nothing is mapped
into memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from diffusers import UNet2DConditionModel
from transformers import CLIPTextConfig

from gangline.core.errors import BadInput
from gangline.core.models.bases import variant_of
from gangline.core.models.families import TextEncoder
from gangline.core.models.recognition import Header, RecognisedModel
from gangline.data.bases import describe_base, read_json, single_file_of
from gangline.data.safetensors_header import read_header
from gangline.train.model import original
from gangline.train.model.layouts import ENCODER_CLASSES, as_bad_input

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


def read_tensor(path: Path, header: Header, name: str) -> torch.Tensor:
    """Return one tensor of a file. Raise `BadInput` if its numbers are of another kind, or it is cut off."""
    entry = header.tensors[name]
    dtype = DTYPES.get(entry.dtype)
    if dtype is None or prod(entry.shape) * dtype.itemsize != entry.end - entry.start:
        raise BadInput(f"{path.name} has weights in {entry.dtype}, in {name}", hint="give it in fp16, bf16 or fp32")
    with path.open("rb") as file:
        file.seek(header.data_start + entry.start)
        content = bytearray(file.read(entry.end - entry.start))
    return torch.frombuffer(content, dtype=dtype).reshape(entry.shape) if content else torch.zeros(entry.shape)


@dataclass(frozen=True)
class CheckpointWeights:
    """A checkpoint whose layers are read when asked for."""

    path: Path
    model: RecognisedModel

    @cached_property
    def headers(self) -> dict[Path, Header]:
        single = single_file_of(self.path)
        files = [single] if single else [file for part in self._parts for file in _weights_of(self.path / part)]
        return {file: read_header(file) for file in files}

    @property
    def _parts(self) -> tuple[str, ...]:
        return ("unet", *self.model.family.text_parts)

    @cached_property
    def unet_config(self) -> Mapping[str, Any]:
        if self.model.layout == "diffusers":
            return read_json(self.path / "unet" / "config.json")
        (header,) = self.headers.values()
        with as_bad_input(f"the U-Net in {self.path.name}"):
            return original.unet_config(header, self.model.family)

    def layers(self, part: str) -> dict[str, torch.Size]:
        """Return the matrices and kernels of a part with their shapes, by diffusers' names of their layers."""
        with as_bad_input(f"the {part} of {self.path.name}"), init_empty_weights():
            module = self._empty(part)
        return {
            name.removesuffix(".weight"): weight.shape
            for name, weight in module.state_dict().items()
            if name.endswith(".weight") and weight.dim() > 1
        }

    def weight(self, part: str, layer: str) -> torch.Tensor:
        """Return a layer's weight in float32, in the shape that diffusers has. Raise `BadInput` if the checkpoint lacks it."""
        if self.model.layout == "diffusers":
            return self._of_folder(part, f"{layer}.weight").float()
        source = self._source(part)(f"{layer}.weight")
        (path, header), *_ = self.headers.items()
        if source.name not in header.tensors:
            raise BadInput(f"{path.name} lacks {source.name}", hint="is it complete?")
        tensor = read_tensor(path, header, source.name)
        shape = self._shapes(part)[layer]
        return source.take(tensor, shape).float()

    def _of_folder(self, part: str, name: str) -> torch.Tensor:
        names = (name, f"text_model.{name}", name.removeprefix("text_model."))
        for path, header in self.headers.items():
            if path.parent.name == part:
                for each in names:
                    if each in header.tensors:
                        return read_tensor(path, header, each)
        raise BadInput(f"the {part} of {self.path} lacks {name}", hint="is it complete?")

    def _shapes(self, part: str) -> dict[str, torch.Size]:
        if part not in self._known_shapes:
            self._known_shapes[part] = self.layers(part)
        return self._known_shapes[part]

    @cached_property
    def _known_shapes(self) -> dict[str, dict[str, torch.Size]]:
        return {}

    def _empty(self, part: str) -> Any:
        if part == "unet":
            return UNet2DConditionModel.from_config(dict(self.unet_config))
        encoder = self._encoder(part)
        if self.model.layout == "diffusers":
            config = CLIPTextConfig.from_pretrained(self.path / part, local_files_only=True)
        else:
            (header,) = self.headers.values()
            config = CLIPTextConfig(**original.text_config(header, encoder))
        return ENCODER_CLASSES[encoder.model](config)

    def _encoder(self, part: str) -> TextEncoder:
        return next(encoder for encoder in self.model.family.text_encoders if encoder.part == part)

    def _source(self, part: str) -> Callable[[str], original.TensorSource]:
        (header,) = self.headers.values()
        if part == "unet":
            return original.unet_source(self.unet_config)
        return original.text_source(header, self._encoder(part))


def open_checkpoint(path: Path) -> CheckpointWeights:
    """Raise `BadInput` if there is no checkpoint of a family."""
    return CheckpointWeights(path, describe_base(path))


def _weights_of(folder: Path) -> Iterator[Path]:
    """Return the files of a part's weights: those of one precision, where there are several."""
    names = sorted(file.name for file in folder.glob("*.safetensors"))
    variant = variant_of(names)
    for name in names:
        if variant_of([name]) == variant:
            yield folder / name
