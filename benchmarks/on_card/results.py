"""What was found, in one file that grows by a line with each case that ends, and the table of it.

It imports nothing but Python's own library: a bare machine reads it before anything is installed.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
"""By the name of its column, which says the unit; "what" is the first one."""


@dataclass(frozen=True)
class Found:
    """A case that has ended: its rows, and why there are no more where it failed."""

    rows: list[Figures]
    because: str = ""


class Results:
    """`on` describes the machine and its libraries: figures of another one are neither shown nor counted as found."""

    def __init__(self, folder: Path, on: str) -> None:
        self.path = folder / "card.jsonl"
        self.table = folder / "card.md"
        self.on = on

    def write(self, part: str, case: str, seconds: float, *, rows: Iterable[Figures] = (), because: str = "") -> None:
        """Add one line. It begins with the line break, so that what a full disk cut off does not spoil the next one."""
        line = {"part": part, "case": case, "seconds": round(seconds, 1), "rows": list(rows), "because": because}
        with self.path.open("ab", buffering=0) as file:
            file.write(("\n" + json.dumps(line | {"on": self.on})).encode())
            os.fsync(file.fileno())

    def told(self, part: str) -> list[tuple[str, Found]]:
        """Each case that ended, in that order, also what was tried again since."""
        mine = [line for line in self._lines() if (line["on"], line["part"]) == (self.on, part)]
        return [(line["case"], Found(line["rows"], line["because"])) for line in mine]

    def of(self, part: str) -> dict[str, Found]:
        """By case, as it ended last."""
        return dict(self.told(part))

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            with suppress(json.JSONDecodeError):
                yield json.loads(line)


def table_of(rows: Sequence[Figures]) -> list[str]:
    """Return Markdown lines: a column for each name, in the order in which names appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_shown(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    head, *body = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]
    return [head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *body]


def shown(row: Figures) -> str:
    """Return a row as one line."""
    figures = (f"{name} {_shown(value)}" for name, value in row.items() if name != "what")
    return f"{row['what']}: {', '.join(figures)}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else str(value).replace("|", "/")


def rows_of(cases: Sequence[str], found: Mapping[str, Found], left_because: str) -> list[Figures]:
    """Return the rows of each case, and a row that says why where it failed or was not run."""
    rows: list[Figures] = []
    for case in cases:
        ended = found.get(case, Found([], f"not run: {left_because}"))
        rows += ended.rows
        if ended.because:
            rows.append({"what": case, "because": ended.because})
    return rows
