"""Pictures from a base, and from the LoRA that is on it, with the models that are already in memory."""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from gangline.core.runs.contract import PICTURES, Picture, picture_name
from gangline.core.specs.spec import Spec
from gangline.train.model.base import Base
from gangline.train.model.denoise import sample_latents
from gangline.train.model.text import Embedded, Texts


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


def _picture(pixels_CHW: torch.Tensor) -> Image.Image:
    """From [-1, 1] to 8 bits."""
    array = (pixels_CHW.permute(1, 2, 0).clamp(-1, 1) + 1) * 127.5
    return Image.fromarray(array.round().byte().cpu().numpy())
