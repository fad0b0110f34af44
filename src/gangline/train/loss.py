"""The training objective of a diffusion model. Shape letters: B samples, C latent channels, H W latent sides."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from gangline.core.errors import BadInput
from gangline.core.spec import LoraSpec

Prediction = Literal["epsilon", "v_prediction"]


@dataclass(frozen=True, slots=True)
class Process:
    """The forward process that a base was trained with: `alphas` are the cumulated ones (Ho et al. 2020, eq. 4), float32, on the device."""

    alphas: torch.Tensor
    prediction: Prediction
    min_snr_gamma: float | None = None

    def noisy(self, clean: torch.Tensor, noise: torch.Tensor, timesteps_B: torch.Tensor) -> torch.Tensor:
        signal, spread = self._scales(timesteps_B)
        return signal * clean + spread * noise

    def target(self, clean: torch.Tensor, noise: torch.Tensor, timesteps_B: torch.Tensor) -> torch.Tensor:
        """What is to be predicted: the noise, or the velocity (Salimans & Ho 2022, §4)."""
        if self.prediction == "epsilon":
            return noise
        signal, spread = self._scales(timesteps_B)
        return signal * noise - spread * clean

    def weights(self, timesteps_B: torch.Tensor) -> torch.Tensor | None:
        """Min-SNR-γ (Hang et al. 2023, §3.4): how much each timestep counts, (B,)."""
        if self.min_snr_gamma is None:
            return None
        alphas = self.alphas[timesteps_B]
        ratio = alphas / (1 - alphas)
        bounded = ratio.clamp(max=self.min_snr_gamma)
        return bounded / (ratio if self.prediction == "epsilon" else ratio + 1)

    def _scales(self, timesteps_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        alphas = self.alphas[timesteps_B][:, None, None, None]
        return alphas.sqrt(), (1 - alphas).sqrt()


def process_of(base_noise: Any, spec: LoraSpec, device: torch.device) -> Process:
    """Raises `BadInput` where the noise is to be predicted at a step that has nothing else (Lin et al. 2023, §3.2)."""
    chosen = base_noise.config.prediction_type if spec.prediction_type == "auto" else spec.prediction_type
    if spec.zero_terminal_snr and chosen == "epsilon":
        raise BadInput("zero_terminal_snr needs a base that predicts velocity", hint="leave it out for this base")
    alphas = base_noise.alphas_cumprod.to(device, torch.float32)
    return Process(without_signal_at_the_end(alphas) if spec.zero_terminal_snr else alphas, chosen, spec.min_snr_gamma)


def without_signal_at_the_end(alphas: torch.Tensor) -> torch.Tensor:
    """Lin et al. 2023, algorithm 1: the signal's scale, shifted to zero at the last step and stretched back at the first."""
    signal = alphas.sqrt()
    stretched = (signal - signal[-1]) * signal[0] / (signal[0] - signal[-1])
    return stretched.square()


def losses(
    process: Process,
    predicted: torch.Tensor,
    clean: torch.Tensor,
    noise: torch.Tensor,
    timesteps_B: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """The mean squared error of each sample, (B,); `mask` (B, 1, H, W) says how much each place counts, of which there may be none."""
    squared = (predicted.float() - process.target(clean, noise, timesteps_B).float()).square()
    if mask is None:
        each = squared.mean(dim=(1, 2, 3))
    else:
        each = (squared.mean(dim=1, keepdim=True) * mask).sum(dim=(1, 2, 3)) / mask.sum(dim=(1, 2, 3)).clamp(min=1)
    weights = process.weights(timesteps_B)
    return each if weights is None else each * weights
