"""Pictures from a base and its LoRA, with the models that are already in memory."""

import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from gangline.core.contract import BASE, GRID, LORA, PICTURES, Picture, picture_name
from gangline.core.lora_spec import LoraSpec
from gangline.core.spec import Spec
from gangline.data.grid import Row, draw
from gangline.train.adapter import Adapter
from gangline.train.base import Base
from gangline.train.denoise import sample_latents
from gangline.train.text import Embedded, Texts


@torch.no_grad()
def decode(base: Base, latents_1CHW: torch.Tensor) -> Image.Image:
    vae = base.vae
    scaled = latents_1CHW.to(base.device, vae.dtype) / vae.config.scaling_factor
    return _picture(vae.decode(scaled).sample[0].float())


def render(base: Base, spec: Spec, texts: Texts, spoken: Embedded, prompt: str, seed: int) -> Image.Image:
    words, silence = spoken[[texts.index(prompt)]], spoken[[texts.index("")]]
    return decode(base, sample_latents(base, spec, words, silence, seed))


def render_step(base: Base, spec: Spec, texts: Texts, spoken: Embedded, folder: Path, step: int) -> Iterator[Picture]:
    """A picture of each prompt and seed, written into `folder` as it is made; `samples.json`, which lists them, comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    made = list[Picture]()
    for number, prompt in enumerate(spec.prompts_to_sample):
        for seed in spec.sample_seeds:
            picture = render(base, spec, texts, spoken, prompt, seed)
            made.append(write_picture(picture, folder / picture_name(number, seed), spec, step, prompt, seed))
            yield made[-1]
    partial = folder / f".{PICTURES}"
    partial.write_text(json.dumps({"step": step, "pictures": [asdict(one) for one in made]}, indent=1))
    partial.rename(folder / PICTURES)


def write_picture(image: Image.Image, path: Path, spec: Spec, step: int, prompt: str, seed: int) -> Picture:
    """As PNG, which says of itself what it shows."""
    what = {
        "step": step,
        "prompt": prompt,
        "seed": seed,
        "sampler": spec.sample_sampler,
        "sampler_steps": spec.sample_steps,
        "guidance_scale": spec.guidance_scale,
    }
    told, png = PngInfo(), io.BytesIO()
    for name, value in what.items():
        told.add_text(name, str(value))
    image.save(png, "PNG", pnginfo=told)
    content = png.getvalue()
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    return Picture(path=path.name, bytes=len(content), sha256=sha256, width=image.width, height=image.height, **what)


def render_comparison(
    base: Base, spec: LoraSpec, adapter: Adapter, texts: Texts, before: Embedded, after: Embedded, folder: Path
) -> Iterator[Picture]:
    """Every prompt and seed without and with the LoRA: single pictures as they are made, and at last `grid.png`, both side by side.

    `before` and `after`: `texts` as the encoders say them without and with it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = list[Row]()
    sides = ((BASE, 0, before, adapter.switched_off), (LORA, spec.steps, after, nullcontext))
    for number, prompt in enumerate(spec.prompts_to_sample):
        pictures = list[Image.Image]()
        for side, step, spoken, on in sides:
            for seed in spec.sample_seeds:
                with on():
                    picture = render(base, spec, texts, spoken, prompt, seed)
                pictures.append(picture)
                yield write_picture(picture, folder / picture_name(number, seed, side), spec, step, prompt, seed)
        rows.append(Row(prompt, pictures))
    draw(rows, [f"{name}, seed {seed}" for name in ("base", "with the LoRA") for seed in spec.sample_seeds]).save(
        folder / GRID
    )


def _picture(pixels_CHW: torch.Tensor) -> Image.Image:
    """From [-1, 1] to 8 bits."""
    array = (pixels_CHW.permute(1, 2, 0).clamp(-1, 1) + 1) * 127.5
    return Image.fromarray(array.round().byte().cpu().numpy())
