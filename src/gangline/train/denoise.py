"""From noise to latents, by a base as it is at the moment: its LoRA on or off."""

from typing import Any

import torch
from diffusers import DDIMScheduler

from gangline.core.spec import LoraSpec
from gangline.data.chance import stream
from gangline.train import chance
from gangline.train.base import Base
from gangline.train.text import Embedded


@torch.no_grad()
def sample_latents(
    base: Base, spec: LoraSpec, words: Embedded, silence: Embedded, seed: int, purpose: str = "sample"
) -> torch.Tensor:
    """(1, C, H, W). The first noise comes from `chance`, so every device begins alike. `words` and `silence` are of one text each."""
    scheduler: Any = DDIMScheduler.from_config(base.noise.config, clip_sample=False)
    pipeline = base.pipeline(scheduler)
    pipeline.set_progress_bar_config(disable=True)
    side = spec.resolution // base.latent_factor
    noise = chance.normal(seed, purpose, 0, range(1), (base.unet.config.in_channels, side, side))
    device, dtype = base.unet.device, base.dtype
    generator = torch.Generator("cpu").manual_seed(int(stream(seed, f"{purpose} steps").integers(2**63)))
    given = {"prompt_embeds": words.tokens, "negative_prompt_embeds": silence.tokens}
    if words.pooled is not None and silence.pooled is not None:
        given |= {"pooled_prompt_embeds": words.pooled, "negative_pooled_prompt_embeds": silence.pooled}
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        return pipeline(
            **{name: tensor.to(device, dtype) for name, tensor in given.items()},
            height=spec.resolution,
            width=spec.resolution,
            num_inference_steps=spec.sample_steps,
            guidance_scale=spec.guidance_scale,
            latents=noise.to(device, dtype),
            generator=generator,
            output_type="latent",
        ).images
