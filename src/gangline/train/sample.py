"""Pictures from a base and its LoRA, with the models that are already in memory."""

from pathlib import Path
from typing import Any

import torch
from diffusers import DDIMScheduler, StableDiffusionXLPipeline
from PIL import Image, ImageDraw, ImageFont

from gangline.core.spec import LoraSpec
from gangline.train import chance
from gangline.train.base import Base

TILE = 256
MARGIN = 16
LABEL = 34


def render(base: Base, spec: LoraSpec, prompt: str, seed: int) -> Image.Image:
    """One picture by DDIM (Song et al. 2020). Its first noise comes from `chance`, so every device begins alike."""
    scheduler: Any = DDIMScheduler.from_config(base.noise.config, clip_sample=False)
    pipeline: Any = StableDiffusionXLPipeline(
        vae=base.vae,
        text_encoder=base.text_encoders[0],
        text_encoder_2=base.text_encoders[1],
        tokenizer=base.tokenizers[0],
        tokenizer_2=base.tokenizers[1],
        unet=base.unet,
        scheduler=scheduler,
    )
    pipeline.set_progress_bar_config(disable=True)
    side = spec.resolution // base.latent_factor
    noise = chance.normal(seed, "sample", 0, range(1), (base.unet.config.in_channels, side, side))
    with torch.no_grad():
        latents = pipeline(
            prompt,
            height=spec.resolution,
            width=spec.resolution,
            num_inference_steps=spec.sample_steps,
            guidance_scale=spec.guidance_scale,
            latents=noise.to(base.unet.device, base.unet.dtype),
            output_type="latent",
        ).images
        decoded = base.vae.decode(latents.float() / base.vae.config.scaling_factor).sample
    return _picture(decoded[0])


def render_comparison(base: Base, spec: LoraSpec, folder: Path) -> Path:
    """Every prompt and seed without and with the LoRA: single pictures, and `grid.png` with both side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, list[Image.Image]]] = []
    for number, prompt in enumerate(spec.prompts_to_sample):
        pictures = []
        for name, switch in (("base", base.unet.disable_adapters), ("lora", base.unet.enable_adapters)):
            switch()
            for seed in spec.sample_seeds:
                picture = render(base, spec, prompt, seed)
                picture.save(folder / f"prompt-{number:02d}-{name}-seed-{seed}.png")
                pictures.append(picture)
        rows.append((prompt, pictures))
    grid = folder / "grid.png"
    draw_grid(rows, seeds=spec.sample_seeds).save(grid)
    return grid


def draw_grid(rows: list[tuple[str, list[Image.Image]]], *, seeds: tuple[int, ...]) -> Image.Image:
    """One row for each prompt: the base's pictures by seed, a gap, the LoRA's pictures by the same seeds."""
    columns = len(seeds)
    half = columns * TILE + (columns - 1) * 4
    width = 2 * half + 3 * MARGIN
    height = LABEL + len(rows) * (LABEL + TILE) + MARGIN
    sheet = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(sheet)
    heading, text = ImageFont.load_default(20), ImageFont.load_default(16)
    for name, left in (("base", MARGIN), ("with the LoRA", half + 2 * MARGIN)):
        pen.text((left, 8), f"{name}  (seeds {', '.join(map(str, seeds))})", fill="black", font=heading)
    for number, (prompt, pictures) in enumerate(rows):
        top = LABEL + number * (LABEL + TILE)
        pen.text((MARGIN, top + 10), prompt, fill="#555555", font=text)
        for place, picture in enumerate(pictures):
            left = MARGIN + (place // columns) * (half + MARGIN) + (place % columns) * (TILE + 4)
            sheet.paste(picture.resize((TILE, TILE), Image.Resampling.LANCZOS), (left, top + LABEL))
    return sheet


def _picture(pixels_CHW: torch.Tensor) -> Image.Image:
    """From [-1, 1] to 8 bits."""
    array = (pixels_CHW.permute(1, 2, 0).clamp(-1, 1) + 1) * 127.5
    return Image.fromarray(array.round().byte().cpu().numpy())
