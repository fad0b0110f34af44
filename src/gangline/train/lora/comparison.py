"""Render pictures of a base with and without its LoRA, side by side."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from PIL import Image

from gangline.core.runs.contract import BASE, GRID, LORA, Picture, picture_name
from gangline.core.specs.lora import LoraSpec
from gangline.data.images.grid import GridRow, draw_grid
from gangline.train.lora.adapter import Adapter
from gangline.train.model.base import LoadedBase
from gangline.train.model.sample import render, write_picture
from gangline.train.model.text import Embedded, Texts


def render_comparison(
    base: LoadedBase,
    spec: LoraSpec,
    adapter: Adapter,
    texts: Texts,
    before: Embedded,
    after: Embedded,
    folder: Path,
    photos: Path,
    step: int,
) -> Iterator[Picture]:
    """Yield a picture of every prompt and seed without and with the LoRA as it is made; at last write `grid.png`, which shows them side by
    side. `step` was the last one of the training.

    The grid stands below the strip of `photos` if that file exists. `before` and `after` are `texts` as the encoders embed them without and
    with the LoRA.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = list[GridRow]()
    sides = ((BASE, 0, before, adapter.switched_off), (LORA, step, after, nullcontext))
    for number, prompt in enumerate(spec.prompts_to_sample):
        pictures = list[Image.Image]()
        for side, step, spoken, on in sides:
            for seed in spec.sample_seeds:
                with on():
                    picture = render(base, spec, texts, spoken, prompt, seed)
                pictures.append(picture)
                yield write_picture(picture, folder / picture_name(number, seed, side), base, spec, step, prompt, seed)
        rows.append(GridRow(prompt, pictures))
    columns = [f"{name}, seed {seed}" for name in ("base", "with the LoRA") for seed in spec.sample_seeds]
    draw_grid(rows, columns, Image.open(photos) if photos.is_file() else None).save(folder / GRID)
