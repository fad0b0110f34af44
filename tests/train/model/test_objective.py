"""What is minimised, beside the field's own code for it."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import DDPMScheduler
from diffusers.training_utils import compute_snr

from gangline.core.specs.fields import Prediction
from gangline.core.specs.sections.objective import ObjectiveSettings
from gangline.train.model.loss import Process, losses, process_of

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


def of_objective(prediction: Prediction = "epsilon", *, zero_snr: bool = False, **objective: Any) -> Process:
    base: Any = SimpleNamespace(
        noise=scheduler(rescale_betas_zero_snr=zero_snr), device=torch.device("cpu"), prediction_type=prediction
    )
    return process_of(base, ObjectiveSettings(**objective) if objective else None)


def delta(schedule: str, c: float, timestep: int, alpha: float, timesteps: int = 1000) -> float:
    """The schedules as they are published, one timestep at a time: Khrapov et al. 2024, and kohya's `snr`."""
    if schedule == "constant":
        return c
    if schedule == "exponential":
        return math.exp(math.log(c) * timestep / timesteps)
    sigma = math.inf if alpha == 0 else math.sqrt((1 - alpha) / alpha)
    return (1 - c) / (1 + sigma) ** 2 + c


def huber_of(error: torch.Tensor, deltas: list[float]) -> torch.Tensor:
    """2δ(√(x² + δ²) - δ) of each element, in float64."""
    d = torch.tensor(deltas, dtype=torch.float64)[:, None, None, None]
    return 2 * d * ((error.double().square() + d**2).sqrt() - d)


@pytest.mark.parametrize("schedule", ["constant", "exponential", "snr"])
@pytest.mark.parametrize("zero_snr", [False, True])
@pytest.mark.parametrize("c", [0.1, 0.003, 1.0])
def test_the_huber_loss_is_the_published_one_at_each_timestep(schedule: Any, zero_snr: bool, c: float) -> None:
    clean, noise, predicted = latents(0), latents(1), latents(2)
    timesteps = torch.tensor([0, 17, 500, 999])
    alphas = scheduler(rescale_betas_zero_snr=zero_snr).alphas_cumprod.double()
    deltas = [delta(schedule, c, int(step), float(alphas[step])) for step in timesteps]
    huber = of_objective(zero_snr=zero_snr, loss_type="huber", huber_c=c, huber_schedule=schedule)
    found = losses(huber, predicted, clean, noise, timesteps)
    assert torch.allclose(found.double(), huber_of(predicted - noise, deltas).mean(dim=(1, 2, 3)), rtol=1e-5)


def test_small_errors_have_the_squared_errors_loss_and_large_ones_grow_linearly() -> None:
    clean, noise, constant = latents(0), latents(1), {"loss_type": "huber", "huber_schedule": "constant"}
    small = losses(of_objective(**constant, huber_c=1.0), noise + 2**-10, clean, noise, TIMESTEPS)
    assert torch.allclose(small.double(), huber_of(torch.full_like(noise, 2**-10), [1.0] * 4).mean(dim=(1, 2, 3)))
    assert torch.allclose(small, losses(process(), noise + 2**-10, clean, noise, TIMESTEPS), rtol=1e-5)
    one, two = (losses(of_objective(**constant), noise + far, clean, noise, TIMESTEPS) for far in (1e3, 2e3))
    assert torch.allclose(two - one, torch.full((4,), 2 * 0.1 * 1e3), rtol=1e-3)


def test_the_huber_loss_counts_where_the_mask_does_and_is_weighed_by_min_snr() -> None:
    clean, noise, predicted = latents(0), latents(1), latents(2)
    mask = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    huber = of_objective("v_prediction", loss_type="huber", min_snr_gamma=5.0)
    alphas = scheduler().alphas_cumprod.double()[TIMESTEPS]
    signal, spread = alphas.sqrt()[:, None, None, None], (1 - alphas).sqrt()[:, None, None, None]
    error = predicted.double() - (signal * noise.double() - spread * clean.double())
    deltas = [delta("snr", 0.1, int(step), float(alpha)) for step, alpha in zip(TIMESTEPS, alphas, strict=True)]
    each = (huber_of(error, deltas).mean(dim=1, keepdim=True) * mask).sum(dim=(1, 2, 3)) / mask.double().sum(
        dim=(1, 2, 3)
    )
    ratio = alphas / (1 - alphas)
    expected = each * ratio.clamp(max=5) / (ratio + 1)
    assert torch.allclose(losses(huber, predicted, clean, noise, TIMESTEPS, mask).double(), expected, rtol=1e-4)


def test_the_loss_is_the_squared_error_unless_a_job_asks_for_another() -> None:
    assert of_objective().deltas is None and of_objective(min_snr_gamma=5.0).deltas is None
    assert of_objective(loss_type="huber").deltas is not None
