"""Render pictures of a base with and without its LoRA, side by side."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from PIL import Image

from gangline.core.runs.contract import BASE, GRID, LORA, Picture, picture_name
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import previews_of
from gangline.core.specs.sections.previews import Preview
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
    previews = previews_of(spec)
    most = max(len(preview.seeds) for preview in previews)
    for preview in previews:
        pictures = list[Image.Image | None]()
        for side, step, spoken, on in sides:
            for seed in preview.seeds:
                with on():
                    picture = render(base, spec, texts, spoken, preview, seed)
                pictures.append(picture)
                path = folder / picture_name(preview.number, seed, side)
                yield write_picture(picture, path, base, spec, step, preview, seed)
            pictures += [None] * (most - len(preview.seeds))
        rows.append(GridRow(_label(preview, previews), pictures))
    draw_grid(rows, _columns(previews, most), Image.open(photos) if photos.is_file() else None).save(folder / GRID)


def _columns(previews: Sequence[Preview], most: int) -> list[str]:
    """Return headings, with the seeds if all previews have the same; else the labels of rows have them."""
    of_seeds = [f", seed {seed}" for seed in previews[0].seeds] if _seeds_are_equal(previews) else [""] * most
    return [f"{name}{seed}" for name in ("base", "with the LoRA") for seed in of_seeds]


def _label(preview: Preview, previews: Sequence[Preview]) -> str:
    seeds = ", ".join(map(str, preview.seeds))
    return preview.prompt if _seeds_are_equal(previews) else f"{preview.prompt}  (seed {seeds})"


def _seeds_are_equal(previews: Sequence[Preview]) -> bool:
    return len({preview.seeds for preview in previews}) == 1
