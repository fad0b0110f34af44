"""Load the parts of a base from either of its two layouts. Both classes have the same methods, read safetensors only, and use no
network."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from safetensors import SafetensorError, safe_open
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from gangline.core.errors import BadInput
from gangline.core.models.bases import INDEX, variant_of
from gangline.core.models.families import Family, TextEncoder
from gangline.core.models.recognition import UNET, Header
from gangline.core.words import counted
from gangline.data.bases import read_json, single_file_of
from gangline.data.safetensors_header import read_header, refuse_pickle
from gangline.train.model import original
from gangline.train.model.clip import clip_tokenizer

# The noise schedule of every Stable Diffusion; a folder in diffusers' layout states its own
NOISE = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
    "steps_offset": 1,
    "timestep_spacing": "leading",
}
ENCODER_CLASSES = {kind.__name__: kind for kind in (CLIPTextModel, CLIPTextModelWithProjection)}
"""The classes that families name."""
NOT_WEIGHTS = re.compile(r"position_ids$")


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """A base in diffusers' layout: one folder per part."""

    path: Path
    family: Family

    def tokenizers(self) -> tuple[Any, ...]:
        names = (each.part.replace("text_encoder", "tokenizer") for each in self.family.text_encoders)
        return tuple(self._small(CLIPTokenizer, name) for name in names)

    def text_encoders(self, dtype: torch.dtype) -> tuple[Any, ...]:
        return tuple(
            _from_folder(ENCODER_CLASSES[each.model], self.path / each.part, dtype)
            for each in self.family.text_encoders
        )

    def vae(self) -> Any:
        return _from_folder(AutoencoderKL, self.path / "vae", torch.float32)

    def unet(self, dtype: torch.dtype) -> Any:
        return _from_folder(UNet2DConditionModel, self.path / "unet", dtype)

    def noise(self) -> Any:
        return self._small(DDPMScheduler, "scheduler")

    def zeroes_empty_prompts(self) -> bool:
        return read_json(self.path / INDEX).get("force_zeros_for_empty_prompt", True)

    def vae_config(self) -> dict[str, Any]:
        return read_json(self.path / "vae" / "config.json")

    def unet_config(self) -> dict[str, Any]:
        return read_json(self.path / "unet" / "config.json")

    def _small(self, kind: Any, name: str) -> Any:
        if not (self.path / name).is_dir():
            raise BadInput(f"the base has no {name}", hint="is it complete?")
        with as_bad_input(f"the base's {name}"):
            return kind.from_pretrained(self.path, subfolder=name, local_files_only=True)


@dataclass(frozen=True, slots=True)
class SingleFile:
    """A base in the original layout: one file with all weights, and nothing but weights."""

    path: Path
    header: Header
    family: Family

    def tokenizers(self) -> tuple[Any, ...]:
        return tuple(
            clip_tokenizer(pad_id=0) if each.origin == "OpenCLIP" else clip_tokenizer()
            for each in self.family.text_encoders
        )

    def text_encoders(self, dtype: torch.dtype) -> tuple[Any, ...]:
        return tuple(self._text_encoder(each, dtype) for each in self.family.text_encoders)

    def vae(self) -> Any:
        if not self.header.has(original.VAE):
            raise BadInput(f"{self.path.name} has no VAE", hint="give one with `vae`")
        return vae_of_file(self.path, self.header, self.family)

    def unet(self, dtype: torch.dtype) -> Any:
        config = self.unet_config()
        with as_bad_input(f"the U-Net in {self.path.name}"), init_empty_weights():
            unet = UNet2DConditionModel.from_config(config)
        self._check_all_is_used(unet, original.unet_source(config))
        return fill(unet, original.unet_source(config), self.path, dtype)

    def noise(self) -> Any:
        return DDPMScheduler(**NOISE)

    def zeroes_empty_prompts(self) -> bool:
        return True

    def vae_config(self) -> dict[str, Any]:
        with as_bad_input(f"the VAE in {self.path.name}"):
            return original.vae_config(self.header, self.family)

    def unet_config(self) -> dict[str, Any]:
        with as_bad_input(f"the U-Net in {self.path.name}"):
            return original.unet_config(self.header, self.family)

    def _text_encoder(self, wanted: TextEncoder, dtype: torch.dtype) -> Any:
        with as_bad_input(f"the text encoder in {self.path.name}"), init_empty_weights():
            config = CLIPTextConfig(**original.text_config(self.header, wanted))
            encoder = ENCODER_CLASSES[wanted.model](config)
        return fill(encoder, original.text_source(self.header, wanted), self.path, dtype)

    def _check_all_is_used(self, unet: Any, source: Callable[[str], original.TensorSource]) -> None:
        used = {source(name).name for name in unet.state_dict()}
        unknown = [name for name in self.header.tensors if name.startswith(UNET) and name not in used]
        if unknown:
            raise BadInput(
                f"{self.path.name} has another architecture: its U-Net has {len(unknown)} more tensors, such as {unknown[0]}",
                hint="give it as a folder in diffusers' layout, if its authors publish one",
            )


def vae_at(path: Path, family: Family) -> tuple[dict[str, Any], Callable[[], Any]]:
    """Return the configuration of a separate VAE, and a function that loads it: from its folder, from a whole base, or from a file."""
    folder = next((folder for folder in (path, path / "vae") if (folder / "config.json").is_file()), None)
    if folder:
        return read_json(folder / "config.json"), lambda: _from_folder(AutoencoderKL, folder, torch.float32)
    file = single_file_of(path)
    if file is None:
        raise BadInput("the VAE has no vae/config.json", hint="is it complete?")
    header = read_header(file)
    with as_bad_input(f"the VAE in {file.name}"):
        return original.vae_config(header, family), lambda: vae_of_file(file, header, family)


def vae_of_file(path: Path, header: Header, family: Family) -> Any:
    with as_bad_input(f"the VAE in {path.name}"), init_empty_weights():
        config = original.vae_config(header, family)
        vae = AutoencoderKL.from_config(config)
    return fill(vae, original.vae_source(original.vae_prefix(header), config), path, torch.float32)


def fill(module: Any, source: Callable[[str], original.TensorSource], path: Path, dtype: torch.dtype) -> Any:
    """Load the weights in `path` into a module on the meta device, each from the tensor that `source` names."""
    wanted = module.state_dict()
    with as_bad_input(path.name), safe_open(path, framework="pt") as file:
        there = set(file.keys())
        missing = [name for name in wanted if source(name).name not in there]
        if missing:
            what = f"{len(missing)} of {len(wanted)} tensors of a {type(module).__name__}"
            raise BadInput(f"{path.name} lacks {what}, such as {source(missing[0]).name}", hint="is it complete?")
        tensors = {name: _taken(file, source(name), tensor.shape, dtype) for name, tensor in wanted.items()}
        module.load_state_dict(tensors, assign=True)
    return module


def _taken(file: Any, source: original.TensorSource, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    return source.take(file.get_tensor(source.name), shape).to(dtype, copy=True)


def _from_folder(kind: Any, folder: Path, dtype: torch.dtype) -> Any:
    """Load a module with every weight from its file. diffusers and transformers would initialise missing weights at random and only
    warn."""
    name = folder.name
    if not (folder / "config.json").is_file():
        raise BadInput(f"the base has no {name}", hint="is it complete?")
    weights = [file.name for file in folder.glob("*.safetensors")]
    if not weights:
        for file in sorted(folder.iterdir()):
            refuse_pickle(file)
        raise BadInput(f"the base's {name} has no weights", hint="is it complete?")
    with as_bad_input(f"the base's {name}"):
        module, found = kind.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            variant=variant_of(weights),
            output_loading_info=True,
            **({"torch_dtype": dtype} if kind.__module__.startswith("diffusers") else {"dtype": dtype}),
        )
    missing = sorted(key for key in found["missing_keys"] if not NOT_WEIGHTS.search(key))
    if missing:
        raise BadInput(
            f"the base's {name} lacks {counted(len(missing), 'tensor')}, such as {missing[0]}", hint="is it complete?"
        )
    return module


@contextmanager
def as_bad_input(what: str) -> Iterator[None]:
    """Turn the errors that libraries raise for broken files into `BadInput`, in one sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, StopIteration, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(
            f"{what} cannot be loaded: {reason}", hint="check that it is complete, and in safetensors"
        ) from None
