"""A VAE in training (Kingma & Welling 2013; Rombach et al. 2021): from pictures to the loss of each, and the scale of its latents.

Shape letters: B samples, C latent channels, H W latent sides.
"""

from typing import Any, ClassVar

import torch

from gangline.core.scratch import ScratchSpec
from gangline.train.base import Base
from gangline.train.beginning import VAE, begin_vae
from gangline.train.denoiser import in_floats
from gangline.train.intake import Samples

SCALED_BY = 1024
"""So many pictures tell how far their latents spread."""
PEAK = 2.0
"""Between black and white."""


class Autoencoder(torch.nn.Module):
    """Pictures through the VAE and back."""

    measures: ClassVar[str] = "held_out_psnr"

    def __init__(self, base: Base, spec: ScratchSpec) -> None:
        super().__init__()
        base.vae = begin_vae(base, spec)
        self.parts: Any = torch.nn.ModuleDict({VAE: base.vae})
        self.vae = base.vae
        self.weigh = spec.vae_losses

    def checkpoint_gradients(self) -> None:
        self.vae.enable_gradient_checkpointing()

    def forward(self, samples: Samples, *, measured: bool = False) -> torch.Tensor:
        """(B,): the weighed sum of its errors; of `measured` ones the mean squared error alone."""
        pixels = in_floats(samples)
        posterior = self.vae.encode(pixels).latent_dist
        made = self.vae.decode(posterior.mean + posterior.std * samples.drawn).sample.float()
        squared = (made - pixels).square().mean(dim=(1, 2, 3))
        if measured:
            return squared
        absolute = (made - pixels).abs().mean(dim=(1, 2, 3))
        divergence = posterior.kl().float() / pixels[0].numel()
        return self.weigh.l1 * absolute + self.weigh.mse * squared + self.weigh.kl * divergence

    @staticmethod
    def score(values: torch.Tensor) -> torch.Tensor:
        """The peak signal-to-noise ratio of each picture, in dB; the mean of it is reported."""
        return 10 * torch.log10(PEAK**2 / values)


@torch.no_grad()
def scaling_factor(vae: Any, samples: Samples, at_a_time: int) -> float:
    """What brings latents to a standard deviation of one (Rombach et al. 2021, appendix G)."""
    count, total, squares = 0, 0.0, 0.0
    for some in samples.pieces(at_a_time):
        piece = some.each(lambda tensor: tensor.to(vae.device))
        posterior = vae.encode(in_floats(piece)).latent_dist
        drawn = (posterior.mean + posterior.std * piece.drawn).double()
        count, total, squares = count + drawn.numel(), total + drawn.sum().item(), squares + drawn.square().sum().item()
    return (squares / count - (total / count) ** 2) ** -0.5
