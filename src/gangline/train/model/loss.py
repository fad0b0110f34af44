"""The training objective of a diffusion model. Shape letters: B samples, C latent channels, H W latent sides."""

from dataclasses import dataclass

import torch

from gangline.core.specs.fields import Prediction
from gangline.core.specs.sections.objective import ObjectiveSettings
from gangline.train.model.base import LoadedBase


@dataclass(frozen=True, slots=True)
class Process:
    """The forward process that a base was trained with. `alphas` (T,) is ᾱ, the cumulative product (Ho et al. 2020, eq. 4), float32, on the
    device. `deltas` (T,) are those of the pseudo-Huber loss, None for the squared error."""

    alphas: torch.Tensor
    prediction: Prediction
    min_snr_gamma: float | None = None
    deltas: torch.Tensor | None = None

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

    def loss(self, error: torch.Tensor, timesteps_B: torch.Tensor) -> torch.Tensor:
        """Return the loss of each element of `error` (B, C, H, W): its square, or the pseudo-Huber loss for the timestep's δ."""
        if self.deltas is None:
            return error.square()
        return pseudo_huber(error, self.deltas[timesteps_B][:, None, None, None])

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


def process_of(base: LoadedBase, objective: ObjectiveSettings | None = None) -> Process:
    """Return the base's forward process on its device, with the loss of `objective`, or else with the plain squared error."""
    alphas = base.noise.alphas_cumprod.to(base.device, torch.float32)
    if objective is None:
        return Process(alphas, base.prediction_type)
    deltas = deltas_of(alphas, objective) if objective.loss_type == "huber" else None
    return Process(alphas, base.prediction_type, objective.min_snr_gamma, deltas)


def deltas_of(alphas: torch.Tensor, objective: ObjectiveSettings) -> torch.Tensor:
    """Return the δ of each timestep t of T, (T,), where c is `huber_c` and σ² = (1 - ᾱ) / ᾱ is the inverse of the signal-to-noise ratio.

    They fall from 1 to c as noise grows: `exponential` is c^(t / T) (Khrapov et al. 2024), `snr` is (1 - c) / (1 + σ)² + c, as in kohya's
    sd-scripts; `constant` is c.
    """
    least, count = objective.huber_c, len(alphas)
    match objective.huber_schedule:
        case "constant":
            return torch.full_like(alphas, least)
        case "exponential":
            return least ** (torch.arange(count, device=alphas.device, dtype=alphas.dtype) / count)
        case "snr":
            sigmas = ((1 - alphas) / alphas).sqrt()
            return (1 - least) / (1 + sigmas).square() + least


def pseudo_huber(error: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """Return 2δ·(√(x² + δ²) - δ) for each element x of `error`: about x² where |x| is far below δ, about 2δ·|x| far above.

    It is twice the H_δ of Khrapov et al. 2024, and kohya's `huber`. The difference of the two nearly equal numbers is computed as
    x² / (√(x² + δ²) + δ), which loses no digits.
    """
    squared = error.square()
    return 2 * delta * squared / ((squared + delta.square()).sqrt() + delta)


def losses(
    process: Process,
    predicted: torch.Tensor,
    clean: torch.Tensor,
    noise: torch.Tensor,
    timesteps_B: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mean loss of each sample's elements, weighted by timestep, (B,).

    `mask` (B, 1, H, W) weighs each position; it may be zero everywhere, and the loss of that sample is then zero.
    """
    elements = process.loss(predicted.float() - process.target(clean, noise, timesteps_B).float(), timesteps_B)
    if mask is None:
        each = elements.mean(dim=(1, 2, 3))
    else:
        each = (elements.mean(dim=1, keepdim=True) * mask).sum(dim=(1, 2, 3)) / mask.sum(dim=(1, 2, 3)).clamp(min=1)
    weights = process.weights(timesteps_B)
    return each if weights is None else each * weights
