"""Tables of one line a row at any width: what matters less is cut, then left out."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table

from gangline.cli.output import out, table

GAP = 2
"""Cells between two columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column. `header` begins with `>` where it holds numbers. It may be cut down to `shrinks_to` cells; 0: it is never cut.
    Where that is not enough, those with the highest `goes` go first; 0: it never goes."""

    header: str
    shrinks_to: int = 0
    goes: int = 0


def one_line_each(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int) -> Table:
    """Return a table that is no wider than `width` cells, unless what never goes is."""
    shown = widths(columns, rows, width)
    made = table(*(columns[number].header for number in shown))
    for column, cells in zip(made.columns, shown.values(), strict=True):
        column.no_wrap, column.overflow, column.max_width = True, "ellipsis", cells
    for row in rows:
        made.add_row(*(row[number] for number in shown))
    return made


def print_one_line_each(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]]) -> None:
    """Print the table as wide as the terminal is, and as wide as it must be where it goes into a file or another program."""
    if not out.is_terminal:
        out.width = max(out.width, _total(_full_widths(columns, rows)))
    out.print(one_line_each(columns, rows, out.width))


def widths(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """Return the columns that are shown, by their numbers, each with its width in cells."""
    full = _full_widths(columns, rows)
    least = [min(cells, column.shrinks_to or cells) for cells, column in zip(full, columns, strict=True)]
    shown = list(range(len(columns)))
    while _total([least[number] for number in shown]) > width:
        going = max(shown, key=lambda number: (columns[number].goes, number))
        if columns[going].goes == 0:
            break
        shown.remove(going)
    found = {number: least[number] for number in shown}
    room = width - _total(list(found.values()))
    for number in shown:  # the first columns are whole before the next ones grow
        grown = min(max(room, 0), full[number] - found[number])
        found[number] += grown
        room -= grown
    return found


def _full_widths(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([cell_len(column.header.lstrip(">")), *(cell_len(row[number]) for row in rows)])
        for number, column in enumerate(columns)
    ]


def _total(cells: Sequence[int]) -> int:
    return sum(cells) + GAP * max(0, len(cells) - 1)
