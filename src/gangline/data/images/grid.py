"""Pictures side by side on one sheet, to be compared by eye."""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from gangline.core.display import printable

TILE, GAP, MARGIN, LABEL = 256, 4, 16, 30


@dataclass(frozen=True, slots=True)
class Row:
    """What its pictures have in common, and one picture for each column: None where there is none."""

    label: str
    pictures: Sequence[Image.Image | None]


def draw(rows: Sequence[Row], columns: Sequence[str]) -> Image.Image:
    """A sheet with a heading over each column and a line over each row."""
    width = 2 * MARGIN + len(columns) * (TILE + GAP) - GAP
    sheet = Image.new("RGB", (width, LABEL + len(rows) * (LABEL + TILE) + MARGIN), "white")
    pen = ImageDraw.Draw(sheet)
    for number, heading in enumerate(columns):
        _write(pen, MARGIN + number * (TILE + GAP), 8, heading, TILE, size=18, fill="black")
    for number, row in enumerate(rows):
        top = LABEL + number * (LABEL + TILE)
        _write(pen, MARGIN, top + 8, row.label, width - 2 * MARGIN, size=15, fill="#555555")
        for column, picture in enumerate(row.pictures):
            if picture is not None:
                _place(sheet, picture, MARGIN + column * (TILE + GAP), top + LABEL)
    return sheet


def _place(sheet: Image.Image, picture: Image.Image, left: int, top: int) -> None:
    """As large as its tile allows, in its middle."""
    factor = TILE / max(picture.size)
    width, height = (max(1, round(side * factor)) for side in picture.size)
    fitted = picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    sheet.paste(fitted, (left + (TILE - width) // 2, top + (TILE - height) // 2))


def _write(pen: ImageDraw.ImageDraw, left: int, top: int, text: str, width: int, *, size: int, fill: str) -> None:
    """In one line, cut where it would run into what stands beside it."""
    font = ImageFont.load_default(size)
    shown = printable(text)[:width]  # a letter has a pixel at least, and each cut measures all of it
    while pen.textlength(shown, font) > width:
        shown = f"{shown.removesuffix('…')[:-1]}…"
    pen.text((left, top), shown, fill=fill, font=font)
