"""A base model (SDXL, Stable Diffusion 1 or 2) from a folder in diffusers' layout or from a single file.

A part is loaded on first use: a run whose latents and embeddings are already cached reads neither the text encoders nor the VAE.
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
from gangline.core.specs.sample import TrainingSpec, previews_of
from gangline.core.specs.scratch import ScratchSpec
from gangline.data.bases import describe_base, single_file_of
from gangline.data.safetensors_header import read_header
from gangline.train.model.layouts import FolderLayout, SingleFile, vae_at

BITS: dict[str, Bits] = {"8bit": 8, "4bit": 4}


@dataclass(kw_only=True)
class LoadedBase:
    """A base model whose parts are loaded lazily, frozen, onto `device`. They are typed `Any` because their configurations have no types.

    The VAE stays in float32: SDXL's overflows in float16, bfloat16 is too coarse for training targets, and each picture is encoded only
    once. `model` describes the files as they were recognised; `prediction_type` and `zero_terminal_snr` are those that the run trains with.
    `clip_skip` is the text encoder layer to read, counted from the end, for families that do not always read the penultimate one.
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
        """Whether the embedding of an empty prompt is all zeros, as SDXL was trained, instead of the encoders' output."""
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
        """The noise schedule of the forward process. With zero terminal SNR its last step is pure noise (Lin et al. 2023, §3.1), and
        samplers start there."""
        changes = {"prediction_type": self.prediction_type, "rescale_betas_zero_snr": self.zero_terminal_snr}
        if self.zero_terminal_snr:
            changes["timestep_spacing"] = "trailing"
        return DDPMScheduler.from_config(self.layout.noise().config, **changes)

    @cached_property
    def latent_factor(self) -> int:
        """Pixels per latent along a side."""
        config = vae_at(self.own_vae, self.family)[0] if self.own_vae else self.layout.vae_config()
        return 2 ** (len(config["block_out_channels"]) - 1)

    @cached_property
    def side_unit(self) -> int:
        """The number of pixels that picture sides must be a multiple of: the U-Net halves the latents once per level except the last."""
        return self.latent_factor * 2 ** (len(self.layout.unet_config()["block_out_channels"]) - 1)

    def forget(self, *parts: str) -> None:
        """Free the memory of these parts. They are loaded again on their next use."""
        for part in parts:
            self.__dict__.pop(part, None)

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Free, at exit, the parts that were first loaded inside this context."""
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
    """Return the base at `path`, recognised; its weights are loaded later. `vae` replaces the base's VAE.

    Raise `BadInput` if it is not a base, or cannot be trained with these settings.
    """
    model = describe_base(path)
    file = single_file_of(path)
    prediction = model.prediction_type if prediction_type == "auto" else prediction_type
    zero = zero_terminal_snr or model.zero_terminal_snr
    if zero and prediction == "epsilon":
        raise BadInput(
            "zero_terminal_snr needs v-prediction: from noise alone there is no noise to predict (Lin et al. 2023, §3.2)",
            hint="set prediction_type to v_prediction, or omit zero_terminal_snr",
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
    """Return the base with the prediction type and terminal SNR that `spec` trains. Raise `BadInput` as `load_base` does."""
    return load_base(
        folder, device, dtype, prediction_type=spec.prediction_type, zero_terminal_snr=spec.zero_terminal_snr
    )


def check_previews(base: LoadedBase, spec: TrainingSpec) -> None:
    """Raise `BadInput` if `base` cannot draw a preview at its size."""
    unit = base.side_unit
    for each in previews_of(spec):
        if each.width % unit or each.height % unit:
            sides = (max(unit, round(side / unit) * unit) for side in (each.width, each.height))
            raise BadInput(
                f"sample_prompts.{each.number}: {each.width} × {each.height} pixels are not possible with this base, which needs "
                f"multiples of {unit}",
                hint="take {} × {}".format(*sides),
            )


def check_resolution(base: LoadedBase, resolution: int) -> None:
    """Raise `BadInput` if `base` cannot have pictures with sides of `resolution` pixels."""
    unit = base.side_unit
    if resolution % unit:
        raise BadInput(
            f"resolution {resolution} is not possible with this base, which needs a multiple of {unit}",
            hint=f"take {max(unit, round(resolution / unit) * unit)}",
        )
