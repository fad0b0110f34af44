"""The training objective of a diffusion model. Shape letters: B samples, C latent channels, H W latent sides."""

from dataclasses import dataclass

import torch

from gangline.core.specs.fields import Prediction
from gangline.train.model.base import LoadedBase


@dataclass(frozen=True, slots=True)
class Process:
    """The forward process that a base was trained with. `alphas` (T,) is ᾱ, the cumulative product (Ho et al. 2020, eq. 4), float32, on the
    device."""

    alphas: torch.Tensor
    prediction: Prediction
    min_snr_gamma: float | None = None

    def noisy(self, clean: torch.Tensor, noise: torch.Tensor, timesteps_B: torch.Tensor) -> torch.Tensor:
        """Return x_t of x_0 = `clean` (Ho et al. 2020, eq. 4), (B, C, H, W)."""
        signal, spread = self._scales(timesteps_B)
        return signal * clean + spread * noise

    def target(self, clean: torch.Tensor, noise: torch.Tensor, timesteps_B: torch.Tensor) -> torch.Tensor:
        """Return what the network has to predict, (B, C, H, W): the noise, or the velocity (Salimans & Ho 2022, §4)."""
        if self.prediction == "epsilon":
            return noise
        signal, spread = self._scales(timesteps_B)
        return signal * noise - spread * clean

    def weights(self, timesteps_B: torch.Tensor) -> torch.Tensor | None:
        """Return the loss weight of each timestep by Min-SNR-γ (Hang et al. 2023, §3.4), (B,), or None without γ."""
        if self.min_snr_gamma is None:
            return None
        alphas = self.alphas[timesteps_B]
        ratio = alphas / (1 - alphas)
        bounded = ratio.clamp(max=self.min_snr_gamma)
        return bounded / (ratio if self.prediction == "epsilon" else ratio + 1)

    def _scales(self, timesteps_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        alphas = self.alphas[timesteps_B][:, None, None, None]
        return alphas.sqrt(), (1 - alphas).sqrt()


def process_of(base: LoadedBase, min_snr_gamma: float | None = None) -> Process:
    """Return the base's forward process on its device."""
    alphas = base.noise.alphas_cumprod.to(base.device, torch.float32)
    return Process(alphas, base.prediction_type, min_snr_gamma)


def losses(
    process: Process,
    predicted: torch.Tensor,
    clean: torch.Tensor,
    noise: torch.Tensor,
    timesteps_B: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mean squared error of each sample, weighted by timestep, (B,).

    `mask` (B, 1, H, W) weighs each position; it may be zero everywhere, and the loss of that sample is then zero.
    """
    squared = (predicted.float() - process.target(clean, noise, timesteps_B).float()).square()
    if mask is None:
        each = squared.mean(dim=(1, 2, 3))
    else:
        each = (squared.mean(dim=1, keepdim=True) * mask).sum(dim=(1, 2, 3)) / mask.sum(dim=(1, 2, 3)).clamp(min=1)
    weights = process.weights(timesteps_B)
    return each if weights is None else each * weights
