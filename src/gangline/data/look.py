"""Show a data set, in numbers and as a sheet of pictures."""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image

from gangline.data.chance import stream
from gangline.data.columns import Computed, LatentsColumn
from gangline.data.dataset import DataSet
from gangline.data.images.grid import GridRow, draw_grid
from gangline.data.images.pixels import as_seen, loaded
from gangline.data.place import errors_of

SHOWN = 24
ACROSS = 6
SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    name: str
    type: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSummary:
    """A data set in numbers. `short_side` and `aspect` are the minimum, the 10th, 50th and 90th percentile, and the maximum."""

    place: str
    rows: int
    version: int
    short_side: str
    aspect: str
    captions: str
    columns: list[ColumnSummary]


def summarise(data: DataSet) -> DataSummary:
    """Summarise a data set from its narrow columns, without reading images."""
    with errors_of(data.place):
        found = data.table.to_table(columns=["width", "height", "captions"])
    width, height = (found[name].to_numpy().astype(np.float64) for name in ("width", "height"))
    lengths = [len(text) for texts in found["captions"].to_pylist() for text in texts]
    each = len(lengths) / max(len(width), 1)
    long = f"{np.mean(lengths):.0f} characters on average, {max(lengths)} at most" if lengths else "none"
    known = data.computed()
    return DataSummary(
        place=data.place.uri,
        rows=len(width),
        version=data.version,
        short_side=_shares(np.minimum(width, height), 0),
        aspect=_shares(width / height, 2),
        captions=f"{each:.2f} per image, {long}",
        columns=[
            ColumnSummary(
                field.name, str(field.type).replace("fixed_size_list<item: ", "list<"), _what(known.get(field.name))
            )
            for field in data.table.schema
        ],
    )


def sheet(data: DataSet, seed: int) -> Image.Image:
    """Draw random pictures, each with its first caption."""
    chosen = sorted(stream(seed, "look").choice(data.rows, min(SHOWN, data.rows), replace=False).tolist())
    with errors_of(data.place):
        rows = data.table.take(chosen, columns=["image", "captions"]).to_pylist()
    lines = [rows[first : first + ACROSS] for first in range(0, len(rows), ACROSS)]
    drawn = [
        draw_grid([GridRow("", [_picture(row["image"]) for row in line])], [_caption(row["captions"]) for row in line])
        for line in lines
    ]
    whole = Image.new("RGB", (max(one.width for one in drawn), sum(one.height for one in drawn)), "white")
    for number, one in enumerate(drawn):
        whole.paste(one, (0, number * drawn[0].height))
    return whole


def _caption(captions: list[str]) -> str:
    return captions[0] if captions else "–"


def _picture(content: bytes) -> Image.Image:
    with loaded(BytesIO(content)) as image:
        return as_seen(image)


def _shares(values: np.ndarray, digits: int) -> str:
    return " · ".join(f"{value:.{digits}f}" for value in np.quantile(values, SHARES)) if len(values) else "–"


def _what(known: Computed | None) -> str:
    match known:
        case None:
            return ""
        case LatentsColumn():
            computed = f", computed in {known.compute_precision}" if known.compute_precision else ""
            return (
                f"latents of {known.resolution} × {known.resolution} ({known.crop}): "
                f"{'drawn once' if known.drawn else 'mean and deviation'}, "
                f"{known.channels} × {known.side} × {known.side}, scale {known.scale}, VAE {known.vae[:12]}{computed}"
            )
        case _:
            return f"{known.tokens} tokens × {known.width}, pooled {known.pooled}, encoders {known.encoders[:12]}"
