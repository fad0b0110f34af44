"""Denoise latents with a base in its current state: with its LoRA switched on or off."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
)

from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.sections.previews import Preview
from gangline.core.specs.sections.shared import RESCALE_OF_ZERO_SNR
from gangline.train.model.base import LoadedBase
from gangline.train.model.replay import Replayed
from gangline.train.model.text import Embedded, condition
from gangline.train.run import chance
from gangline.train.run.memory import is_out_of_memory

SAMPLERS: dict[str, Any] = {
    "ddim": DDIMScheduler,  # Song et al. 2020
    "euler": EulerDiscreteScheduler,  # Karras et al. 2022, algorithm 2 without churn
    "euler_a": EulerAncestralDiscreteScheduler,
    "dpm++": DPMSolverMultistepScheduler,  # Lu et al. 2022, DPM-Solver++(2M)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The settings for drawing a picture; its sizes are in pixels. `guidance_rescale` is φ of Lin et al. 2023, §3.4."""

    width: int
    height: int
    sampler: str
    steps: int
    guidance_scale: float
    guidance_rescale: float


def drawing_of(base: LoadedBase, spec: TrainingSpec, preview: Preview) -> Drawing:
    """Return the settings for preview pictures."""
    return Drawing(
        width=preview.width,
        height=preview.height,
        sampler=preview.sampler,
        steps=preview.steps,
        guidance_scale=preview.guidance_scale,
        guidance_rescale=rescale_of(base, spec),
    )


def rescale_of(base: LoadedBase, spec: TrainingSpec) -> float:
    """Return the share of guidance's contrast that preview pictures do without."""
    return _rescale_of_base(base) if spec.guidance_rescale is None else spec.guidance_rescale


def class_drawing_of(base: LoadedBase, spec: LoraSpec) -> Drawing:
    """Return the settings for class images, which are trained on."""
    return Drawing(
        width=spec.resolution,
        height=spec.resolution,
        sampler=spec.class_sampler,
        steps=spec.class_sample_steps,
        guidance_scale=spec.class_guidance_scale,
        guidance_rescale=_rescale_of_base(base),
    )


def _rescale_of_base(base: LoadedBase) -> float:
    return RESCALE_OF_ZERO_SNR if base.zero_terminal_snr else 0.0


@torch.no_grad()
def sample_latents(
    base: LoadedBase, drawing: Drawing, words: Embedded, silence: Embedded, seed: int, purpose: str = "sample"
) -> torch.Tensor:
    """Return latents (1, C, H, W) in float32, drawn for the texts `words` and away from those of `silence`, one embedding each.

    All randomness comes from `chance`, on the CPU: every device starts from the same noise, and training's random state is not touched.
    """
    device = base.device
    scheduler = sampler_of(base, drawing.sampler)
    scheduler.set_timesteps(drawing.steps, device=device)
    height, width = drawing.height // base.latent_factor, drawing.width // base.latent_factor
    noise = chance.normal(seed, purpose, 0, range(1), (base.unet.config.in_channels, height, width))
    latents = noise.to(device) * scheduler.init_noise_sigma
    generator = chance.generator(seed, f"{purpose} steps")
    guided = _Guided(base, _told(base, drawing, words, silence), drawing)
    for timestep in scheduler.timesteps:
        seen = scheduler.scale_model_input(latents, timestep).to(base.dtype)
        latents = scheduler.step(guided(seen, timestep), timestep, latents, generator=generator).prev_sample
    return latents


def sampler_of(base: LoadedBase, kind: str) -> Any:
    """Return a sampler over the noise schedule of training. If that ends in pure noise, sampling starts there (Lin et al. 2023, §3.3)."""
    settings = {"clip_sample": False} if kind == "ddim" else {}
    return SAMPLERS[kind].from_config(base.noise.config, **settings)


def _told(base: LoadedBase, drawing: Drawing, words: Embedded, silence: Embedded) -> dict[str, Any]:
    """Return the U-Net's conditioning on the prompt and, with guidance, on the negative prompt that it leads away from (Ho & Salimans
    2022)."""
    both = [words, silence] if drawing.guidance_scale > 1 else [words]
    pooled = [one.pooled for one in both if one.pooled is not None]
    embedded = Embedded(torch.cat([one.tokens for one in both]), torch.cat(pooled) if pooled else None)
    size = [drawing.height, drawing.width]
    sizes = torch.tensor([[*size, 0, 0, *size]] * len(both), device=base.device)
    return condition(base, embedded.to(base.device), sizes)


class _Guided:
    """A U-Net with classifier-free guidance: prompt and negative prompt go through it in one pass or, once memory ran out for that, in one
    pass each. On a GPU a pass is a CUDA graph."""

    def __init__(self, base: LoadedBase, told: dict[str, Any], drawing: Drawing) -> None:
        self._base = base
        self._told = told
        self._drawing = drawing
        self._passes = [self._pass(told)]

    def __call__(self, seen_1CHW: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        predicted = self._predicted(seen_1CHW, timestep)
        if len(predicted) == 1:
            return predicted
        towards, away = predicted.chunk(2)
        guided = away + self._drawing.guidance_scale * (towards - away)
        return rescaled(guided, towards, self._drawing.guidance_rescale)

    def _predicted(self, seen_1CHW: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        while True:
            try:
                return torch.cat([predict(seen_1CHW, timestep) for predict in self._passes])
            except (RuntimeError, MemoryError) as error:
                apart = len(self._passes) == len(self._told["encoder_hidden_states"])
                if apart or not is_out_of_memory(error):
                    raise
            self._passes = [self._pass(_only(self._told, slice(number, number + 1))) for number in range(2)]

    def _pass(self, told: dict[str, Any]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        """Return the prediction for these texts as a function of latents and timestep. It has its own autocast context: weights that one
        casts are freed at its end, and so must not be part of a graph."""
        base, count = self._base, len(told["encoder_hidden_states"])

        def predict(seen_1CHW: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
            with torch.autocast(base.device.type, base.dtype, enabled=base.dtype != torch.float32):
                return base.unet(seen_1CHW.expand(count, -1, -1, -1), timestep, **told).sample.float()

        return Replayed(predict) if base.device.type == "cuda" else predict


def rescaled(guided: torch.Tensor, towards: torch.Tensor, by: float) -> torch.Tensor:
    """Pull the guided prediction towards the standard deviation of the prompt's own one; `by` is φ (Lin et al. 2023, eq. 15 and 16).

    All tensors are (N, …); the deviation is taken over everything but N.
    """
    if not by:
        return guided
    rest = tuple(range(1, guided.ndim))
    alike = guided * (towards.std(dim=rest, keepdim=True) / guided.std(dim=rest, keepdim=True))
    return by * alike + (1 - by) * guided


def _only(told: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {name: _only(value, rows) if isinstance(value, dict) else value[rows] for name, value in told.items()}
