"""The training objective of a diffusion model."""

import torch
from torch.nn import functional

from gangline.train import chance
from gangline.train.base import Base
from gangline.train.prepare import Condition, Latents


def denoising_loss(
    base: Base,
    latents_BCHW: torch.Tensor,
    noise_BCHW: torch.Tensor,
    timesteps_B: torch.Tensor,
    condition: Condition,
) -> torch.Tensor:
    """Mean squared error of what the base predicts: the noise (Ho et al. 2020, eq. 14) or the velocity (Salimans & Ho 2022)."""
    noisy = base.noise.add_noise(latents_BCHW, noise_BCHW, timesteps_B)
    predicted = base.unet(noisy, timesteps_B, **condition.batch(len(noisy))).sample
    if base.noise.config.prediction_type == "v_prediction":
        target = base.noise.get_velocity(latents_BCHW, noise_BCHW, timesteps_B)
    else:
        target = noise_BCHW
    return functional.mse_loss(predicted.float(), target.float())


@torch.no_grad()
def held_out_losses(base: Base, latents: Latents, condition: Condition, seed: int, draws: int = 64) -> list[float]:
    """For each photo its loss at `draws` fixed pairs of noise and timestep, the same before and after training."""
    count = base.noise.config.num_train_timesteps
    shape = tuple(latents.mean.shape[1:])
    device = latents.mean.device
    timesteps = torch.arange(draws) * count // draws + count // (2 * draws)
    noise = chance.normal(seed, "held-out noise", 0, range(draws), shape).to(device)
    losses = []
    for mean in latents.mean:
        found = [
            denoising_loss(base, mean.expand(1, -1, -1, -1), noise[[i]], timesteps[[i]].to(device), condition).item()
            for i in range(draws)
        ]
        losses.append(sum(found) / draws)
    return losses
