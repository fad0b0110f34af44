"""Draw pictures side by side on one sheet, to compare them by eye."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from gangline.core.display import printable

TILE, GAP, MARGIN, LABEL = 256, 4, 16, 30
STRIP, STRIP_MAX = 128, 8
"""The side of each photo in a strip in pixels, and the number of photos at most."""


@dataclass(frozen=True, slots=True)
class GridRow:
    """A row of pictures, one for each column or None, under a label that they share."""

    label: str
    pictures: Sequence[Image.Image | None]


def draw_grid(rows: Sequence[GridRow], columns: Sequence[str], photos: Image.Image | None = None) -> Image.Image:
    """Draw a sheet with a heading over each column and a label over each row, below the strip of `photos` that were trained on."""
    width = 2 * MARGIN + len(columns) * (TILE + GAP) - GAP
    width = max(width, 2 * MARGIN + photos.width) if photos else width
    above = LABEL + photos.height if photos else 0
    sheet = Image.new("RGB", (width, above + LABEL + len(rows) * (LABEL + TILE) + MARGIN), "white")
    pen = ImageDraw.Draw(sheet)
    if photos:
        _write(pen, MARGIN, 8, "trained on", width - 2 * MARGIN, size=18, fill="black")
        sheet.paste(photos, (MARGIN, LABEL))
    for number, heading in enumerate(columns):
        _write(pen, MARGIN + number * (TILE + GAP), above + 8, heading, TILE, size=18, fill="black")
    for number, row in enumerate(rows):
        top = above + LABEL + number * (LABEL + TILE)
        _write(pen, MARGIN, top + 8, row.label, width - 2 * MARGIN, size=15, fill="#555555")
        for column, picture in enumerate(row.pictures):
            if picture is not None:
                _place(sheet, picture, MARGIN + column * (TILE + GAP), top + LABEL)
    return sheet


def strip(pictures: Iterable[Image.Image]) -> Image.Image:
    """Draw small pictures in one row."""
    found = list(pictures)
    sheet = Image.new("RGB", (len(found) * (STRIP + GAP) - GAP, STRIP), "white")
    for number, picture in enumerate(found):
        _place(sheet, picture, number * (STRIP + GAP), 0, STRIP)
    return sheet


def spread(count: int) -> list[int]:
    """Return the indices of the pictures for a strip of `count` pictures: the first, the last, and others evenly spaced."""
    if count <= STRIP_MAX:
        return list(range(count))
    return [round(number * (count - 1) / (STRIP_MAX - 1)) for number in range(STRIP_MAX)]


def _place(sheet: Image.Image, picture: Image.Image, left: int, top: int, side: int = TILE) -> None:
    """Paste the picture centred, as large as its tile allows."""
    factor = side / max(picture.size)
    width, height = (max(1, round(each * factor)) for each in picture.size)
    fitted = picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    sheet.paste(fitted, (left + (side - width) // 2, top + (side - height) // 2))


def _write(pen: ImageDraw.ImageDraw, left: int, top: int, text: str, width: int, *, size: int, fill: str) -> None:
    """Write one line of text, cut at `width` pixels."""
    font = ImageFont.load_default(size)
    shown = printable(text)[:width]  # each letter has at least a pixel, and the loop measures the whole text each time
    while pen.textlength(shown, font) > width:
        shown = f"{shown.removesuffix('…')[:-1]}…"
    pen.text((left, top), shown, fill=fill, font=font)
