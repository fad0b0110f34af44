"""A contact sheet has a bounded size and a place for everything, whatever it is called."""

import pytest
from PIL import Image

from gangline.data.images.contact_sheet import (
    EMPTY,
    GAP,
    LABEL_WIDTH,
    MARGIN,
    SIDE_MAX,
    TILE_MAX,
    SheetCell,
    SheetRow,
    as_tile,
    draw_contact_sheet,
    most_columns,
    most_rows,
)

RED = SheetCell(picture=Image.new("RGB", (64, 64), "red"))


def test_each_picture_is_in_its_cell_and_a_word_is_where_there_is_none() -> None:
    rows = [SheetRow(label=["a"], cells=[RED, SheetCell(word="failed")])]
    sheet = draw_contact_sheet("title", ["x", "y"], rows)
    left, middle = MARGIN + LABEL_WIDTH, sheet.height - MARGIN - TILE_MAX // 2
    assert sheet.getpixel((left + TILE_MAX // 2, middle)) == (255, 0, 0)
    second = left + TILE_MAX + GAP
    assert sheet.getpixel((second + 4, middle + TILE_MAX // 2 - 4)) == Image.new("RGB", (1, 1), EMPTY).getpixel((0, 0))
    word = sheet.crop((second, middle - 20, second + TILE_MAX, middle + 20)).convert("L")
    assert word.getextrema()[0] < 160  # the letters of the word


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (most_rows(), 1), (1, most_columns()), (40, 30)])
def test_a_sheet_is_no_larger_than_its_bounds(rows: int, columns: int) -> None:
    row = SheetRow(label=["rank = 8"], cells=[RED] * columns)
    sheet = draw_contact_sheet("t", ["h"] * columns, [row] * rows)
    assert max(sheet.size) <= SIDE_MAX


@pytest.mark.parametrize(
    "text",
    [
        "",
        "word " * 500,
        "x" * 5000,
        "\x1b[2J\u202e\nforged",
        "ДОМ 犬 🐕",
        "a_very_long_setting_name_without_a_space = 1",
    ],
)
def test_any_text_fits_into_its_place(text: str) -> None:
    rows = [SheetRow(label=[text] * 9, cells=[RED, SheetCell(word=text)])]
    plain = draw_contact_sheet("t", ["", ""], [SheetRow(label=[""], cells=[RED, RED])])
    sheet = draw_contact_sheet(text, [text, text], rows)
    assert sheet.width == plain.width and sheet.height <= plain.height + 4 * 18


def test_a_tile_keeps_its_shape_and_is_no_larger_than_a_sheet_shows_it() -> None:
    assert as_tile(Image.new("RGBA", (1024, 512))).size == (TILE_MAX, TILE_MAX // 2)
    assert as_tile(Image.new("L", (64, 64))).size == (64, 64)
