"""A base model: SDXL, Stable Diffusion 1 or 2, from a folder in diffusers' layout or from a single file.

A part is loaded when it is first asked for: a run whose latents and embeddings are there already never reads the text
encoders, nor the VAE.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from diffusers import DDPMScheduler

from gangline.core.errors import BadInput
from gangline.core.models.families import Bits, Family, check_clip_skip
from gangline.core.models.recognition import RecognisedModel
from gangline.core.specs.fields import Prediction
from gangline.core.specs.scratch import ScratchSpec
from gangline.data.bases import describe_base, single_file_of
from gangline.data.safetensors_header import read_header
from gangline.train.model.layouts import FolderLayout, SingleFile, vae_at

BITS: dict[str, Bits] = {"8bit": 8, "4bit": 4}


@dataclass(kw_only=True)
class LoadedBase:
    """The parts are `Any`, as their configurations have no types. All of them are frozen, and on `device`.

    The VAE stays in float32: SDXL's overflows in float16, bfloat16 is too coarse for what is learned from, and each picture
    is encoded only once. `prediction_type` and `zero_terminal_snr` are as the run trains it, `model` is what was found.
    `clip_skip`: which layer of a text encoder is read, from the end, where it is not always the last but one.
    """

    path: Path
    model: RecognisedModel
    layout: FolderLayout | SingleFile
    device: torch.device
    dtype: torch.dtype
    own_vae: Path | None
    prediction_type: Prediction
    zero_terminal_snr: bool
    bits: Bits | None
    clip_skip: int = 1

    @property
    def family(self) -> Family:
        return self.model.family

    @property
    def zero_empty(self) -> bool:
        """Whether the embedding of an empty prompt is zeros, as SDXL was trained, and not what the encoders say."""
        return self.family.zero_empty and self.layout.zeroes_empty_prompts()

    @cached_property
    def tokenizers(self) -> tuple[Any, ...]:
        return self.layout.tokenizers()

    @cached_property
    def text_encoders(self) -> tuple[Any, ...]:
        return tuple(self._placed(encoder) for encoder in self.layout.text_encoders(self.dtype))

    @cached_property
    def vae(self) -> Any:
        load = vae_at(self.own_vae, self.family)[1] if self.own_vae else self.layout.vae
        return self._placed(load())

    @cached_property
    def unet(self) -> Any:
        unet = self.layout.unet(self.dtype)
        if self.bits:
            from gangline.train.model.quantise import quantise  # bitsandbytes takes a second to import

            quantise(unet, self.bits, self.device)
        return self._placed(unet)

    @cached_property
    def noise(self) -> Any:
        """The forward process. With zero terminal SNR its last step is noise alone (Lin et al. 2023, §3.1), and samplers begin there."""
        changes = {"prediction_type": self.prediction_type, "rescale_betas_zero_snr": self.zero_terminal_snr}
        if self.zero_terminal_snr:
            changes["timestep_spacing"] = "trailing"
        return DDPMScheduler.from_config(self.layout.noise().config, **changes)

    @cached_property
    def latent_factor(self) -> int:
        """Pixels of a side for one latent."""
        config = vae_at(self.own_vae, self.family)[0] if self.own_vae else self.layout.vae_config()
        return 2 ** (len(config["block_out_channels"]) - 1)

    @cached_property
    def side_unit(self) -> int:
        """Sides of pictures are multiples of it: the U-Net halves the latents once for each level but one."""
        return self.latent_factor * 2 ** (len(self.layout.unet_config()["block_out_channels"]) - 1)

    def forget(self, *parts: str) -> None:
        """Give the memory of parts back; they are read again when they are asked for."""
        for part in parts:
            self.__dict__.pop(part, None)

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Give the memory of those parts back that come meanwhile."""
        before = set(self.__dict__)
        try:
            yield
        finally:
            self.forget(*({"vae", "unet", "text_encoders"} - before))

    def _placed(self, module: Any) -> Any:
        return module.requires_grad_(False).to(self.device).eval()


def load_base(
    path: Path,
    device: torch.device,
    dtype: torch.dtype,
    *,
    vae: Path | None = None,
    prediction_type: Literal["auto", Prediction] = "auto",
    zero_terminal_snr: bool = False,
    base_precision: Literal["full", "8bit", "4bit"] = "full",
    clip_skip: int = 1,
) -> LoadedBase:
    """What is at `path`, recognised; its weights are read later. `vae` goes in the place of its own.

    Raises `BadInput` where it is no base that can be trained so.
    """
    model = describe_base(path)
    file = single_file_of(path)
    prediction = model.prediction_type if prediction_type == "auto" else prediction_type
    zero = zero_terminal_snr or model.zero_terminal_snr
    if zero and prediction == "epsilon":
        raise BadInput(
            "zero_terminal_snr needs v-prediction: from noise alone there is no noise to predict (Lin et al. 2023, §3.2)",
            hint="set prediction_type to v_prediction, or leave zero_terminal_snr out",
        )
    check_clip_skip(model.family, clip_skip)
    return LoadedBase(
        path=path,
        model=model,
        layout=SingleFile(file, read_header(file), model.family) if file else FolderLayout(path, model.family),
        device=device,
        dtype=dtype,
        own_vae=vae,
        prediction_type=prediction,
        zero_terminal_snr=zero,
        bits=BITS.get(base_precision),
        clip_skip=clip_skip,
    )


def base_at(folder: Path, spec: ScratchSpec, device: torch.device, dtype: torch.dtype) -> LoadedBase:
    """As `spec` has it trained. Raises `BadInput`."""
    return load_base(
        folder, device, dtype, prediction_type=spec.prediction_type, zero_terminal_snr=spec.zero_terminal_snr
    )


def check_resolution(base: LoadedBase, resolution: int) -> None:
    """Raise `BadInput` where `base` cannot have pictures of this many pixels a side."""
    unit = base.side_unit
    if resolution % unit:
        raise BadInput(
            f"resolution {resolution} does not suit this base, which needs a multiple of {unit}",
            hint=f"take {max(unit, round(resolution / unit) * unit)}",
        )
