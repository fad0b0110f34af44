"""Draw a contact sheet: a table of pictures with a label for each row and a heading for each column, to compare results by eye."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from gangline.core.display import printable

TILE_MAX, TILE_MIN, GAP, MARGIN = 256, 96, 8, 24
LABEL_WIDTH, LINES_MAX = 232, 4
SIDE_MAX = 6000
"""The most pixels of a side: a larger sheet would help nobody. Tiles become smaller first, then rows are left out."""
INK, QUIET, EMPTY, PAPER = "#1c1c1e", "#6b6b70", "#efeff1", "white"


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetCell:
    """A picture, or the word that stands where there is none."""

    picture: Image.Image | None = None
    word: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetRow:
    """A row: the lines of its label, of which the first stands out, and a cell for each column."""

    label: Sequence[str]
    cells: Sequence[SheetCell]


def tile_side(rows: int, columns: int) -> int:
    """Return the side of a picture in pixels: as large as the bounds of a sheet allow."""
    wide = (SIDE_MAX - LABEL_WIDTH - 2 * MARGIN) // max(1, columns) - GAP
    high = (SIDE_MAX - 4 * MARGIN - 120) // max(1, rows) - GAP
    return max(TILE_MIN, min(TILE_MAX, wide, high))


def most_rows() -> int:
    """Return how many rows fit into a sheet of the smallest pictures."""
    return (SIDE_MAX - 4 * MARGIN - 120) // (TILE_MIN + GAP)


def most_columns() -> int:
    """Return how many columns fit into a sheet of the smallest pictures."""
    return (SIDE_MAX - LABEL_WIDTH - 2 * MARGIN) // (TILE_MIN + GAP)


def as_tile(picture: Image.Image) -> Image.Image:
    """Return a picture no larger than a sheet shows it, so that the pictures of many jobs fit into memory."""
    small = picture.convert("RGB")
    small.thumbnail((TILE_MAX, TILE_MAX), Image.Resampling.LANCZOS)
    return small


def draw_contact_sheet(title: str, headings: Sequence[str], rows: Sequence[SheetRow]) -> Image.Image:
    """Draw the sheet below its title. Labels and headings are wrapped, and cut after a few lines."""
    side = tile_side(len(rows), len(headings))
    big, strong, plain = (_font(size) for size in (22, 15, 14))
    over = [_wrapped(heading, plain, side) for heading in headings]
    top = 2 * MARGIN + 26 + max((len(lines) for lines in over), default=0) * 18
    width = 2 * MARGIN + LABEL_WIDTH + len(headings) * (side + GAP) - GAP
    sheet = Image.new("RGB", (width, top + len(rows) * (side + GAP) - GAP + MARGIN), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, MARGIN - 4), _cut(title, big, width - 2 * MARGIN), fill=INK, font=big)
    for column, lines in enumerate(over):
        left = MARGIN + LABEL_WIDTH + column * (side + GAP)
        _write_lines(pen, left, top - 6 - 18 * len(lines), lines, plain, QUIET, 18)
    for number, row in enumerate(rows):
        upper = top + number * (side + GAP)
        _draw_label(pen, upper, row.label, (strong, plain), side)
        for column, cell in enumerate(row.cells):
            _draw_cell(sheet, pen, MARGIN + LABEL_WIDTH + column * (side + GAP), upper, side, cell)
    return sheet


def _font(size: int) -> ImageFont.FreeTypeFont:
    found = ImageFont.load_default(size)
    assert isinstance(found, ImageFont.FreeTypeFont), "Pillow is built with FreeType, as every wheel of it is"
    return found


def _draw_label(
    pen: ImageDraw.ImageDraw,
    top: int,
    label: Sequence[str],
    fonts: tuple[ImageFont.FreeTypeFont, ImageFont.FreeTypeFont],
    side: int,
) -> None:
    strong, plain = fonts
    room, drawn = side // 19, 0
    for number, line in enumerate(label):
        font, fill = (strong, INK) if number == 0 else (plain, QUIET)
        lines = _wrapped(line, font, LABEL_WIDTH - 16)[: max(0, room - drawn)]
        _write_lines(pen, MARGIN, top + 4 + drawn * 19, lines, font, fill, 19)
        drawn += len(lines)


def _draw_cell(sheet: Image.Image, pen: ImageDraw.ImageDraw, left: int, top: int, side: int, cell: SheetCell) -> None:
    if cell.picture is None:
        font = _font(14)
        pen.rectangle((left, top, left + side - 1, top + side - 1), fill=EMPTY)
        lines = _wrapped(cell.word, font, side - 16)
        for number, line in enumerate(lines):
            wide = pen.textlength(line, font)
            at = top + side / 2 - len(lines) * 9 + number * 18
            pen.text((left + (side - wide) / 2, at), line, fill=QUIET, font=font)
        return
    factor = side / max(cell.picture.size)
    width, height = (max(1, round(each * factor)) for each in cell.picture.size)
    resample = Image.Resampling.LANCZOS if factor < 1 else Image.Resampling.NEAREST
    fitted = cell.picture.convert("RGB").resize((width, height), resample)
    sheet.paste(fitted, (left + (side - width) // 2, top + (side - height) // 2))


def _write_lines(
    pen: ImageDraw.ImageDraw,
    left: int,
    top: int,
    lines: Sequence[str],
    font: ImageFont.FreeTypeFont,
    fill: str,
    step: int,
) -> None:
    for number, line in enumerate(lines):
        pen.text((left, top + number * step), line, fill=fill, font=font)


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Return the text in lines of at most `width` pixels, broken at spaces where there are some, and cut after a few lines."""
    lines, line = list[str](), ""
    for word in printable(text)[: width * LINES_MAX].split():  # each letter has at least a pixel
        longer = f"{line} {word}".strip()
        if font.getlength(longer[:width]) <= width and len(longer) <= width:
            line = longer
            continue
        lines += [line] if line else []
        line = word
        while len(lines) <= LINES_MAX and (fits := _fitting(line, font, width)) < len(line):
            lines, line = [*lines, line[:fits]], line[fits:]
        if len(lines) > LINES_MAX:
            break
    lines += [line] if line else []
    if len(lines) > LINES_MAX:
        lines = [*lines[: LINES_MAX - 1], _cut(f"{lines[LINES_MAX - 1]}…", font, width)]
    return lines


def _cut(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """Return one line of text, cut at `width` pixels."""
    shown = printable(text)
    fits = _fitting(shown, font, width)
    return shown if fits == len(shown) else f"{shown[: max(0, _fitting(shown, font, width - 16))]}…"


def _fitting(text: str, font: ImageFont.FreeTypeFont, width: int) -> int:
    """Return how many characters of a text fit into `width` pixels, at least one."""
    found = bisect_right(range(1, min(len(text), width) + 1), width, key=lambda count: font.getlength(text[:count]))
    return max(found, min(1, len(text)))
