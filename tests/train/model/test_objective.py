"""What is minimised, beside the field's own code for it."""

from typing import Any

import pytest
import torch
from diffusers import DDPMScheduler
from diffusers.training_utils import compute_snr

from gangline.core.specs.fields import Prediction
from gangline.train.model.loss import Process, losses

TIMESTEPS = torch.tensor([0, 17, 500, 998])


def scheduler(**changes: Any) -> Any:
    return DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", **changes)


def process(prediction: Prediction = "epsilon", gamma: float | None = None, **changes: Any) -> Process:
    return Process(scheduler(**changes).alphas_cumprod, prediction, gamma)


def latents(seed: int) -> torch.Tensor:
    return torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_noise_is_added_as_the_scheduler_adds_it() -> None:
    clean, noise = latents(0), latents(1)
    ours = process().noisy(clean, noise, TIMESTEPS)
    assert torch.allclose(ours, scheduler().add_noise(clean, noise, TIMESTEPS), atol=1e-6)


def test_velocity_is_the_schedulers() -> None:
    clean, noise = latents(0), latents(1)
    ours = process("v_prediction").target(clean, noise, TIMESTEPS)
    assert torch.allclose(ours, scheduler().get_velocity(clean, noise, TIMESTEPS), atol=1e-6)


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_min_snr_weighs_each_timestep_as_diffusers_does(prediction: Prediction) -> None:
    ratio = compute_snr(scheduler(), TIMESTEPS)
    expected = ratio.clamp(max=5) / (ratio if prediction == "epsilon" else ratio + 1)
    weights = process(prediction, 5.0).weights(TIMESTEPS)
    assert weights is not None and torch.allclose(weights, expected, rtol=1e-4)


def test_with_zero_terminal_snr_nothing_is_left_of_the_picture_at_the_last_step() -> None:
    last = torch.tensor([999] * 4)
    noisy = process("v_prediction", rescale_betas_zero_snr=True).noisy(latents(0), latents(1), last)
    assert torch.equal(noisy, latents(1))


def test_each_samples_loss_is_the_mean_squared_error() -> None:
    clean, noise, predicted = latents(0), latents(1), latents(2)
    each = losses(process(), predicted, clean, noise, TIMESTEPS)
    assert torch.allclose(each.mean(), torch.nn.functional.mse_loss(predicted, noise))


def test_where_the_mask_is_black_nothing_is_learned() -> None:
    clean, noise = latents(0), latents(1)
    predicted = latents(2).requires_grad_()
    mask = torch.zeros(4, 1, 8, 8)
    mask[:, :, :4] = 1
    losses(process(), predicted, clean, noise, TIMESTEPS, mask).sum().backward()
    assert predicted.grad is not None
    assert (predicted.grad[:, :, 4:] == 0).all() and (predicted.grad[:, :, :4] != 0).all()
    half = losses(process(), predicted[:, :, :4], clean[:, :, :4], noise[:, :, :4], TIMESTEPS)
    assert torch.allclose(losses(process(), predicted, clean, noise, TIMESTEPS, mask), half)


def test_a_photo_that_counts_nowhere_has_no_loss_and_harms_none() -> None:
    none = losses(process(), latents(2), latents(0), latents(1), TIMESTEPS, torch.zeros(4, 1, 8, 8))
    assert (none == 0).all()
