"""Captions as a table of two columns, `photo` and `caption`, in CSV."""

import csv
import io
from collections.abc import Collection, Iterator, Mapping

from gangline.core.display import table_cell, text_of_cell
from gangline.core.errors import BadInput

COLUMNS = ("photo", "caption")
CELL_MAX = 100_000


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
            raise BadInput(f"{name}, line {line}: there are {len(row)} cells, not a photo and its caption")
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
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        head = tuple(next(reader, []))
        if head != COLUMNS:
            raise BadInput(f"{name}: the first line must be `{','.join(COLUMNS)}`, not {','.join(head) or 'empty'}")
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        raise BadInput(f"{name}, line {reader.line_num}: {error}", hint="save the table as CSV with commas") from None
