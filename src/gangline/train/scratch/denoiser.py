"""A U-Net in training, alone or with its text encoders: it turns a batch into the loss of each sample.

Shape letters: B samples, C latent channels, H W latent sides, L tokens, D width, P pooled width.
"""

from dataclasses import dataclass

import torch

from gangline.core.specs.scratch import ScratchSpec
from gangline.train.learning.network import Network
from gangline.train.model.base import LoadedBase
from gangline.train.model.loss import losses, process_of
from gangline.train.model.text import Embedded, condition, embed, with_silence
from gangline.train.run.sample_tensors import StepSamples
from gangline.train.scratch.initial_weights import UNET, begin_text_encoders, begin_unet

SCALE = 0.18215
"""The latents' scale of a VAE whose configuration states none, as in diffusers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchBatch(StepSamples):
    """B samples of a step; `numbers` (B,) are their numbers in the phase.

    An image comes either as `pixels` (B, H, W, 3), uint8, of the image's sides, or as the `posterior` of its latents (B, 2, C, H, W), mean
    and deviation, as the column has them. `drawn` (B, C, H, W) is the standard normal noise that latents are drawn from the posterior with;
    `noise` (B, C, H, W) is standard normal too, `timesteps` (B,).

    The U-Net is conditioned on `sizes` (B, 6) and on texts: `said` (B,) is False for empty ones; they come either as token ids for each
    encoder, `ids` (B, 1, L), or as `words`, a column's embeddings (B, L, D) and, if the family has them, pooled ones (B, P).
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


class Denoiser(Network):
    """The network whose `parts` are trained; the base's other models stay frozen and run without gradients."""

    def __init__(self, base: LoadedBase, spec: ScratchSpec) -> None:
        base.unet = begin_unet(base, spec)
        parts = {UNET: base.unet}
        if spec.train_text_encoders:
            base.text_encoders = begin_text_encoders(base, spec)
            parts |= dict(zip(base.family.text_parts, base.text_encoders, strict=True))
        super().__init__(parts)
        self.base = base
        self.spec = spec
        self.process = process_of(base, spec)
        self.plain = process_of(base)
        config = base.layout.vae_config()
        self.shift, self.scale = config.get("shift_factor") or 0.0, config.get("scaling_factor", SCALE)

    def checkpoint_gradients(self) -> None:
        for name, part in self.parts.items():
            if name == UNET:
                part.enable_gradient_checkpointing()
            else:
                part.gradient_checkpointing_enable({"use_reentrant": False})

    def forward(self, samples: ScratchBatch, *, measured: bool = False) -> torch.Tensor:
        """Return the loss of each sample, (B,); if `measured`, the mean squared error without Min-SNR weights."""
        base = self.base
        clean = self._latents(samples)
        noisy = self.process.noisy(clean, samples.noise, samples.timesteps)
        told = condition(base, self._embedded(samples), samples.sizes)
        predicted = base.unet(noisy.to(base.dtype), samples.timesteps, **told).sample
        process = self.plain if measured else self.process
        return losses(process, predicted, clean, samples.noise, samples.timesteps)

    @torch.no_grad()
    def _latents(self, samples: ScratchBatch) -> torch.Tensor:
        """Return scaled latents (B, C, H, W) in float32, drawn from the VAE's posterior: a column's, or that of images encoded now."""
        if samples.posterior is not None:
            mean, deviation = samples.posterior.float().unbind(1)
        else:
            with torch.autocast(self.base.device.type, enabled=False):  # the VAE stays in float32, see LoadedBase
                posterior = self.base.vae.encode(in_floats(samples)).latent_dist
            mean, deviation = posterior.mean, posterior.std
        return (mean + deviation * samples.drawn - self.shift) * self.scale

    def _embedded(self, samples: ScratchBatch) -> Embedded:
        if samples.words:
            return Embedded(samples.words[0], samples.words[1] if len(samples.words) > 1 else None)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.spec.train_text_encoders):
            return with_silence(self.base, embed(self.base, samples.ids), samples.said)


def in_floats(samples: ScratchBatch) -> torch.Tensor:
    """Return the pixels as (B, 3, H, W) float32 in [-1, 1]."""
    assert samples.pixels is not None
    return samples.pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
