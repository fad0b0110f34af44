"""A U-Net in training, alone or with its text encoders: from samples to the loss of each.

Shape letters: B samples, C latent channels, H W latent sides.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from gangline.core.specs.scratch import ScratchSpec
from gangline.train.model.base import LoadedBase
from gangline.train.model.loss import losses, process_of
from gangline.train.model.text import Embedded, condition, embed, with_silence
from gangline.train.run.sample_tensors import SampleTensors
from gangline.train.scratch.initial_weights import UNET, begin_text_encoders, begin_unet

SCALE = 0.18215
"""Of a VAE that does not say its own, as diffusers has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchBatch(SampleTensors):
    """B samples of a step by their `numbers` in its phase. Of each picture either `pixels` (B, H, W, 3), 8 bits, or the `posterior`
    of its latents (B, 2, C, H, W), mean and deviation, as the column has them; what is `drawn` from that (B, C, H, W) is standard
    normal, as `noise` is.

    What a U-Net is told: `sizes` (B, 6), `said` (B,), whether there are words, and either their tokens for each encoder, `ids` (B, 1, L),
    or `words`, what a column holds of them: embeddings (B, L, D) and, where the family has them, pooled ones (B, P).
    """

    numbers: torch.Tensor
    pixels: torch.Tensor | None
    posterior: torch.Tensor | None
    drawn: torch.Tensor
    noise: torch.Tensor
    timesteps: torch.Tensor
    sizes: torch.Tensor
    said: torch.Tensor
    ids: tuple[torch.Tensor, ...]
    words: tuple[torch.Tensor, ...]


class Denoiser(torch.nn.Module):
    """`parts` are trained; the base's other models stay as they are, and are asked without gradients."""

    measures: ClassVar[str] = "held_out_loss"

    def __init__(self, base: LoadedBase, spec: ScratchSpec) -> None:
        super().__init__()
        base.unet = begin_unet(base, spec)
        self.parts: Any = torch.nn.ModuleDict({UNET: base.unet})
        if spec.train_text_encoders:
            base.text_encoders = begin_text_encoders(base, spec)
            self.parts.update(dict(zip(base.family.text_parts, base.text_encoders, strict=True)))
        self.base = base
        self.spec = spec
        self.process = process_of(base, spec.min_snr_gamma)
        self.plain = process_of(base)
        config = base.layout.vae_config()
        self.shift, self.scale = config.get("shift_factor") or 0.0, config.get("scaling_factor", SCALE)

    def checkpoint_gradients(self) -> None:
        """Compute activations twice and keep few of them (Chen et al. 2016)."""
        for name, part in self.parts.items():
            if name == UNET:
                part.enable_gradient_checkpointing()
            else:
                part.gradient_checkpointing_enable({"use_reentrant": False})

    def forward(self, samples: ScratchBatch, *, measured: bool = False) -> torch.Tensor:
        """The mean squared error of each, (B,); `measured` ones are not weighed."""
        base = self.base
        clean = self._latents(samples)
        noisy = self.process.noisy(clean, samples.noise, samples.timesteps)
        told = condition(base, self._embedded(samples), samples.sizes)
        predicted = base.unet(noisy.to(base.dtype), samples.timesteps, **told).sample
        process = self.plain if measured else self.process
        return losses(process, predicted, clean, samples.noise, samples.timesteps)

    @staticmethod
    def score(values: torch.Tensor) -> torch.Tensor:
        """What is reported of held out samples: the mean of it."""
        return values

    @torch.no_grad()
    def _latents(self, samples: ScratchBatch) -> torch.Tensor:
        """Drawn from the VAE's posterior and scaled, (B, C, H, W), float32: of a column, or of pictures that are encoded now."""
        if samples.posterior is not None:
            mean, deviation = samples.posterior.float().unbind(1)
        else:
            with torch.autocast(self.base.device.type, enabled=False):
                posterior = self.base.vae.encode(in_floats(samples)).latent_dist
            mean, deviation = posterior.mean, posterior.std
        return (mean + deviation * samples.drawn - self.shift) * self.scale

    def _embedded(self, samples: ScratchBatch) -> Embedded:
        if samples.words:
            return Embedded(samples.words[0], samples.words[1] if len(samples.words) > 1 else None)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.spec.train_text_encoders):
            return with_silence(self.base, embed(self.base, samples.ids), samples.said)


def in_floats(samples: ScratchBatch) -> torch.Tensor:
    """(B, 3, H, W) in [-1, 1]."""
    assert samples.pixels is not None
    return samples.pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
