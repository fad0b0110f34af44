"""Captions as a table of two columns, `photo` and `caption`, in CSV.

It is written with commas. Where a comma is the decimal mark, spreadsheets save it with semicolons, and some save it with tabs.
"""

import csv
import io
from collections.abc import Collection, Iterator, Mapping

from gangline.core.display import table_cell, text_of_cell
from gangline.core.errors import BadInput
from gangline.core.words import counted

COLUMNS = ("photo", "caption")
CELL_MAX = 100_000
SEPARATORS = (",", ";", "\t")


def write_table(captions: Mapping[str, str]) -> str:
    """Return the table. A spreadsheet takes no caption for a formula."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows([table_cell(photo), table_cell(caption)] for photo, caption in captions.items())
    return text.getvalue()


def read_table(text: str, photos: Collection[str], name: str) -> dict[str, str]:
    """Return the captions of a table; a photo that it does not name keeps its own.

    Raise `BadInput` that names the line of what is not in `photos`, is there twice, or cannot be read as a table.
    """
    found: dict[str, str] = {}
    for line, row in _rows(text, name):
        if len(row) != len(COLUMNS):
            raise BadInput(f"{name}, line {line}: it has {counted(len(row), 'cell')}, not a photo and its caption")
        photo, caption = map(text_of_cell, row)
        if photo in found:
            raise BadInput(f"{name}, line {line}: {photo} is in the table twice", hint="keep one of the two lines")
        if photo not in photos:
            raise BadInput(
                f"{name}, line {line}: there is no photo {photo}",
                hint="write the photo's path as `gangline captions export` does",
            )
        found[photo] = " ".join(caption.split())
    return found


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(CELL_MAX)
    text = text.removeprefix("\ufeff")
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        head = tuple(next(reader, []))
        if head != COLUMNS:
            found = separator.join(head) or "empty"
            raise BadInput(
                f"{name}: the first line must be `{','.join(COLUMNS)}`, not {found}",
                hint="commas, semicolons and tabs separate cells",
            )
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        raise BadInput(
            f"{name}, line {reader.line_num}: {error}", hint="save the table as CSV with commas, semicolons or tabs"
        ) from None


def _separator(text: str) -> str:
    """Return what separates the cells of the first line; a comma if that line is not the expected one."""
    head = next(iter(text.splitlines()), "").replace('"', "")
    return next((each for each in SEPARATORS if head == each.join(COLUMNS)), ",")
