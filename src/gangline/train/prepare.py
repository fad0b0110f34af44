"""What is computed once, before the first step: latents of photos, embeddings of prompts.

Shape letters: B batch, C latent channels, H W latent sides, L tokens, D width.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gangline.core.files import File
from gangline.data.photos import crop_square, read_photo
from gangline.train.base import Base


@dataclass(frozen=True, slots=True)
class Latents:
    """The VAE's posterior of each photo, so that every step can draw from it anew: mean and deviation, (N, C, H, W)."""

    mean: torch.Tensor
    deviation: torch.Tensor

    def draw(self, chosen: list[int], noise_BCHW: torch.Tensor) -> torch.Tensor:
        return self.mean[chosen] + self.deviation[chosen] * noise_BCHW


@dataclass(frozen=True, slots=True)
class Condition:
    """What the U-Net is told besides the noisy latents: tokens (1, L, D), pooled (1, D), sizes (1, 6)."""

    tokens: torch.Tensor
    pooled: torch.Tensor
    sizes: torch.Tensor

    def batch(self, size: int) -> dict[str, object]:
        return {
            "encoder_hidden_states": self.tokens.expand(size, -1, -1),
            "added_cond_kwargs": {
                "text_embeds": self.pooled.expand(size, -1),
                "time_ids": self.sizes.expand(size, -1),
            },
        }


@torch.no_grad()
def encode_photos(base: Base, folder: Path, files: tuple[File, ...], side: int) -> Latents:
    """Latents of `files` below `folder`, cropped to squares of `side` pixels, times the VAE's scaling factor."""
    means, deviations = [], []
    for file in files:
        pixels = np.asarray(crop_square(read_photo(folder / file.path), side), dtype=np.float32)
        image_BCHW = torch.from_numpy(pixels).permute(2, 0, 1)[None].to(base.vae.device) / 127.5 - 1
        posterior = base.vae.encode(image_BCHW).latent_dist
        means.append(posterior.mean)
        deviations.append(posterior.std)
    scale = base.vae.config.scaling_factor
    return Latents(mean=torch.cat(means) * scale, deviation=torch.cat(deviations) * scale)


@torch.no_grad()
def encode_prompt(base: Base, prompt: str, side: int) -> Condition:
    """SDXL's two encoders side by side (Podell et al. 2023, §2.1) and its size conditioning (§2.2) for an uncropped square."""
    hidden = []
    pooled = None
    for tokenizer, encoder in zip(base.tokenizers, base.text_encoders, strict=True):
        ids = tokenizer(
            prompt,
            padding="max_length",
            max_length=tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        ).input_ids
        output = encoder(ids.to(encoder.device), output_hidden_states=True)
        hidden.append(output.hidden_states[-2])
        pooled = output[0]
    tokens = torch.cat(hidden, dim=-1)
    assert pooled is not None
    sizes = torch.tensor([[side, side, 0, 0, side, side]], dtype=tokens.dtype, device=tokens.device)
    return Condition(tokens, pooled, sizes)
