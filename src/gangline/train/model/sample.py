"""Draw pictures from a base, and from the LoRA that is on it, with the models that are already in memory."""

import hashlib
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from math import ceil
from pathlib import Path

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from gangline.core.runs.contract import PICTURES, Picture, picture_name
from gangline.core.specs.sample import TrainingSpec, previews_of
from gangline.core.specs.sections.previews import Preview
from gangline.train.model.base import LoadedBase
from gangline.train.model.denoise import drawing_of, rescale_of, sample_latents
from gangline.train.model.text import Embedded, Texts
from gangline.train.run.aside import left_out_without_memory
from gangline.train.run.digest import hashed_file
from gangline.train.run.memory import is_out_of_memory

TILES = (2, 4)
"""A picture that does not fit into memory is decoded in tiles with a half, then a quarter of its side."""


@torch.no_grad()
def decode_latents(base: LoadedBase, latents_1CHW: torch.Tensor) -> Image.Image:
    """Decode latents (1, C, H, W) as a whole or, if memory runs out, in overlapping tiles.

    Each tile has its own norms, so colours may shift a little: a picture that fits as a whole is never tiled.
    """
    scaled = latents_1CHW.to(base.device, base.vae.dtype) / base.vae.config.scaling_factor
    for pieces in (1, *TILES):
        try:
            return _picture(_decoded(base, scaled, pieces))
        except (RuntimeError, MemoryError) as error:
            if pieces == TILES[-1] or not is_out_of_memory(error):
                raise
    raise AssertionError("the last ones fit, or raise")


def _decoded(base: LoadedBase, scaled_1CHW: torch.Tensor, pieces: int) -> torch.Tensor:
    """Return pixels (3, H, W). A tile's side is a multiple of four latents, because tiles overlap by a quarter of it."""
    if pieces == 1:
        return base.vae.decode(scaled_1CHW).sample[0].float()
    side = 4 * ceil(max(scaled_1CHW.shape[2:]) / pieces / 4)
    base.vae.tile_latent_min_size, base.vae.tile_sample_min_size = side, side * base.latent_factor
    return base.vae.tiled_decode(scaled_1CHW).sample[0].float()


def render(
    base: LoadedBase, spec: TrainingSpec, texts: Texts, spoken: Embedded, preview: Preview, seed: int
) -> Image.Image:
    """Draw the picture of one seed of a preview. `spoken` are the embeddings of `texts`, which include both of its prompts."""
    words, silence = (spoken[[texts.index(text)]] for text in (preview.prompt, preview.negative_prompt))
    return decode_latents(base, sample_latents(base, drawing_of(base, spec, preview), words, silence, seed))


def render_step(
    base: LoadedBase, spec: TrainingSpec, texts: Texts, spoken: Embedded, folder: Path, step: int
) -> Iterator[Picture]:
    """Yield a picture of each prompt and seed, written into `folder` as it is made; `samples.json`, which lists them, is written last."""
    made = list[Picture]()
    for preview, seed in _asked(spec):
        made.append(_written(base, spec, texts, spoken, folder, step, preview, seed))
        yield made[-1]
    _list(folder, spec, step, made)


def show_step(base: LoadedBase, spec: TrainingSpec, texts: Texts, spoken: Embedded, folder: Path, step: int) -> None:
    """Render between two training steps like `render_step`, but let training continue if memory runs out.

    The list then names the pictures that were made and those that were left out. After one that does not fit, none that is as large is
    tried.
    """
    made, too_large = list[Picture](), math.inf
    for preview, seed in _asked(spec):
        pixels = preview.width * preview.height
        if pixels >= too_large:
            continue
        fits = False
        with left_out_without_memory(f"pictures of step {step} are"):
            made.append(_written(base, spec, texts, spoken, folder, step, preview, seed))
            fits = True
        too_large = too_large if fits else pixels
    if made:
        _list(folder, spec, step, made)


def _written(
    base: LoadedBase,
    spec: TrainingSpec,
    texts: Texts,
    spoken: Embedded,
    folder: Path,
    step: int,
    preview: Preview,
    seed: int,
) -> Picture:
    picture = render(base, spec, texts, spoken, preview, seed)
    folder.mkdir(parents=True, exist_ok=True)
    return write_picture(picture, folder / picture_name(preview.number, seed), base, spec, step, preview, seed)


def _asked(spec: TrainingSpec) -> list[tuple[Preview, int]]:
    """Return the preview and the seed of each picture."""
    return [(preview, seed) for preview in previews_of(spec) for seed in preview.seeds]


def _list(folder: Path, spec: TrainingSpec, step: int, made: list[Picture]) -> None:
    there = {one.path for one in made}
    names = (picture_name(preview.number, seed) for preview, seed in _asked(spec))
    left_out = [name for name in names if name not in there]
    told = {"step": step, "pictures": [asdict(one) for one in made]} | ({"left_out": left_out} if left_out else {})
    if files := [hashed_file(path, path.name) for path in sorted(folder.glob("*.safetensors"))]:
        told["files"] = [asdict(file) for file in files]
    partial = folder / f".{PICTURES}"
    partial.write_text(json.dumps(told, indent=1))
    partial.rename(folder / PICTURES)


def write_picture(
    image: Image.Image, path: Path, base: LoadedBase, spec: TrainingSpec, step: int, preview: Preview, seed: int
) -> Picture:
    """Write the image as PNG, with its step, prompts, seed and sampler settings as text chunks."""
    what = {
        "step": step,
        "prompt": preview.prompt,
        "seed": seed,
        "sampler": preview.sampler,
        "sampler_steps": preview.steps,
        "guidance_scale": preview.guidance_scale,
    }
    told, png = PngInfo(), io.BytesIO()
    negative, rescale = preview.negative_prompt, rescale_of(base, spec)
    also = ({"negative_prompt": negative} if negative else {}) | ({"guidance_rescale": rescale} if rescale else {})
    for name, value in (what | also).items():
        told.add_text(name, str(value))
    image.save(png, "PNG", pnginfo=told)
    content = png.getvalue()
    path.write_bytes(content)
    return Picture(
        path=path.name,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        width=image.width,
        height=image.height,
        negative_prompt=negative,
        **what,
    )


def _picture(pixels_CHW: torch.Tensor) -> Image.Image:
    """Return pixels (3, H, W) in [-1, 1] as an image of 8 bits per channel."""
    array = (pixels_CHW.permute(1, 2, 0).clamp(-1, 1) + 1) * 127.5
    return Image.fromarray(array.round().byte().cpu().numpy())
