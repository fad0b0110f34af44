"""A VAE in training (Kingma & Welling 2013; Rombach et al. 2021): the loss of each picture, and the scale of the latents.

Shape letters: B samples, C latent channels, H W latent sides.
"""

from typing import Any, ClassVar

import torch

from gangline.core.specs.scratch import ScratchSpec
from gangline.train.learning.network import Network
from gangline.train.model.base import LoadedBase
from gangline.train.scratch.denoiser import ScratchBatch, in_floats
from gangline.train.scratch.initial_weights import VAE, begin_vae

SCALED_BY = 1024
"""The number of pictures that the standard deviation of latents is measured on."""
PEAK = 2.0
"""The difference between black and white."""


class VaeModel(Network):
    """The VAE, trained to reconstruct pictures."""

    measures: ClassVar[str] = "held_out_psnr"
    higher_is_better: ClassVar[bool] = True

    def __init__(self, base: LoadedBase, spec: ScratchSpec) -> None:
        base.vae = begin_vae(base, spec)
        super().__init__({VAE: base.vae})
        self.vae = base.vae
        self.weigh = spec.vae_losses

    def checkpoint_gradients(self) -> None:
        self.vae.enable_gradient_checkpointing()

    def forward(self, samples: ScratchBatch, *, measured: bool = False) -> torch.Tensor:
        """Return the weighted sum of L1, squared error and KL divergence of each picture, (B,); if `measured`, only the mean squared
        error."""
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
        """Return the peak signal-to-noise ratio of each picture in dB, (B,), whose mean is reported."""
        return 10 * torch.log10(PEAK**2 / values)


@torch.no_grad()
def standardise(vae: Any, samples: ScratchBatch, at_a_time: int, *, by_channel: bool) -> None:
    """Bring the latents of these pictures to a standard deviation of one by the VAE's `scaling_factor` (Rombach et al. 2021, appendix G).

    `by_channel` brings each channel to mean zero and deviation one, like the noise that sampling starts from (EDM2, Karras et al. 2023), by
    changing the weights of the two 1 × 1 convolutions on both sides of the latents: reconstructions stay the same. The factor is then one,
    and every pipeline of the family can use the VAE. A VAE without these convolutions gets only the factor.
    """
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for some in samples.pieces(at_a_time):
        piece = some.each(lambda tensor: tensor.to(vae.device))
        posterior = vae.encode(in_floats(piece)).latent_dist
        drawn = (posterior.mean + posterior.std * piece.drawn).double()
        count += drawn.numel() // drawn.shape[1]
        total, squares = total + drawn.sum(dim=(0, 2, 3)), squares + drawn.square().sum(dim=(0, 2, 3))
    mean_C, square_C = total / count, squares / count
    if by_channel and vae.quant_conv is not None and vae.post_quant_conv is not None:
        _fold(vae, mean_C, (square_C - mean_C.square()).sqrt())
        vae.register_to_config(scaling_factor=1.0)
    else:
        vae.register_to_config(scaling_factor=(square_C.mean() - mean_C.mean() ** 2).item() ** -0.5)


def _fold(vae: Any, mean_C: torch.Tensor, deviation_C: torch.Tensor) -> None:
    """Replace z by (z - mean) / deviation where it leaves the encoder, and restore z where it enters the decoder."""
    channels = len(mean_C)
    to, back = vae.quant_conv, vae.post_quant_conv
    mean_C, deviation_C = mean_C.to(to.weight), deviation_C.to(to.weight)
    to.weight[:channels] /= deviation_C[:, None, None, None]
    to.bias[:channels] = (to.bias[:channels] - mean_C) / deviation_C
    # The other half of the channels is the logarithm of the variance.
    to.bias[channels:] -= 2 * deviation_C.log()
    # The bias first: it needs the weights before they are scaled.
    back.bias += back.weight[:, :, 0, 0] @ mean_C
    back.weight *= deviation_C[None, :, None, None]
