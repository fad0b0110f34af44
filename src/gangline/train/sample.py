"""Pictures from a base and its LoRA, with the models that are already in memory."""

from contextlib import nullcontext
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont

from gangline.core.spec import LoraSpec
from gangline.train.adapter import Adapter
from gangline.train.base import Base
from gangline.train.denoise import sample_latents
from gangline.train.text import Embedded, Texts

TILE = 256
MARGIN = 16
LABEL = 34


@torch.no_grad()
def decode(base: Base, latents_1CHW: torch.Tensor) -> Image.Image:
    vae = base.vae
    scaled = latents_1CHW.to(vae.device, vae.dtype) / vae.config.scaling_factor
    return _picture(vae.decode(scaled).sample[0].float())


def render_comparison(
    base: Base, spec: LoraSpec, adapter: Adapter, texts: Texts, before: Embedded, after: Embedded, folder: Path
) -> Path:
    """Every prompt and seed without and with the LoRA: single pictures, and `grid.png` with both side by side.

    `before` and `after`: `texts` as the encoders say them without and with it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, list[Image.Image]]] = []
    for number, prompt in enumerate(spec.prompts_to_sample):
        pictures = []
        for name, spoken, on in (("base", before, adapter.switched_off()), ("lora", after, nullcontext())):
            words, silence = spoken[[texts.index(prompt)]], spoken[[texts.index("")]]
            with on:
                for seed in spec.sample_seeds:
                    picture = decode(base, sample_latents(base, spec, words, silence, seed))
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
