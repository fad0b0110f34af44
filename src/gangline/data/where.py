"""Select samples by SQL conditions on columns: `width >= 512 and aspect <= 2 and pwatermark < 0.5`.

The language is Lance's (DataFusion's SQL), for conversion as for reading a data set, so there is only one to know.
"""

import re
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa

from gangline.core.errors import BadInput

MEMORY = "memory://where"
PLACE = re.compile(r" at Line: \d+, Column: \d+")
OPENINGS = (
    "Invalid user input: ",
    "External error: ",
    "Query Execution error: ",
    "Error applying filter expression to batch: ",
    "Arrow error: ",
    "LanceError(Arrow): ",
    "sql parser error: ",
)


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions that must all hold; one that is null for a sample (say, without a score) does not hold."""

    conditions: tuple[str, ...] = ()

    def split(self, early: pa.Schema, late: pa.Schema) -> "tuple[Where, Where]":
        """Split into the conditions that need only columns of `early`, and the rest, which need `late`. Raise `BadInput` if one fits
        neither."""
        soon = tuple(text for text in self.conditions if _problem(text, early) is None)
        rest = tuple(text for text in self.conditions if text not in soon)
        for text in rest:
            check_condition(text, late)
        return Where(soon), Where(rest)

    def kept(self, rows: list[dict[str, Any]], schema: pa.Schema) -> list[bool]:
        """Return for each row whether it is selected. Raise `BadInput` if a condition cannot be computed."""
        if not self.conditions or not rows:
            return [True] * len(rows)
        try:
            table = lance.write_dataset(pa.Table.from_pylist(rows, schema=_some(schema)), MEMORY)
            scan = table.scanner(columns=[], filter=self.text, with_row_address=True)
            wanted = set(scan.to_table()["_rowaddr"].to_pylist())
        except (OSError, ValueError) as error:
            told = " and ".join(map(on_one_line, self.conditions))
            raise BadInput(
                f"the condition {told} fails: {reason(error, self.text)}", hint="correct the condition"
            ) from None
        return [row in wanted for row in range(len(rows))]

    @property
    def text(self) -> str:
        return " and ".join(map(enclosed, self.conditions))


def check_condition(text: str, schema: pa.Schema, *, instead: str = "") -> None:
    """Raise `BadInput` if the text is not a condition on these columns. `instead` tells the hint how to give another one."""
    problem = _problem(text, schema)
    if problem is not None:
        columns = f"columns are {', '.join(schema.names)}"
        raise BadInput(
            f"the condition {on_one_line(text)} cannot be used: {problem}",
            hint=f"{instead}; {columns}" if instead else columns,
        )


def enclosed(text: str) -> str:
    """Enclose a condition so that Lance must read all of it; it would ignore text after a complete one. The newline ends a `-- comment`."""
    return f"({text}\n)"


def on_one_line(text: str) -> str:
    """Return a condition as messages show it, on one line."""
    return f"`{' '.join(text.split())}`"


def reason(error: Exception, asked: str) -> str:
    """Return Lance's message on one line, without the position in Lance's source and without the statement that it repeats."""
    said = _opened(str(error).partition(", /")[0])
    before, found, after = said.partition(asked)
    if found and before.startswith("Error "):
        said = after.lstrip(": ")
        said = _opened(said[1:].removesuffix(")") if said.startswith("(") else said)
    return " ".join(PLACE.sub("", said).partition(" Valid fields")[0].split()).rstrip(". ")


def _opened(said: str) -> str:
    for opening in OPENINGS:
        said = said.removeprefix(opening)
    return said


def _some(schema: pa.Schema) -> pa.Schema:
    """Add a column to an empty schema: a table without columns has no rows either."""
    return schema if len(schema) else pa.schema([pa.field("", pa.null())])


def _problem(text: str, schema: pa.Schema) -> str | None:
    """Return why the text is not a condition on these columns, or None."""
    if not text.strip():
        return "it is empty"
    for asked in (
        text,
        enclosed(text),
    ):  # first without brackets, so that the parser's message is about what the user wrote
        said = _refusal(asked, schema)
        if said is not None:
            return said if asked == text else said.replace("Expected: ), found", "Expected: the end, found")
    if _refusal(f"{enclosed(text)} and (", schema) is None:
        return "it closes a bracket that it did not open"
    return None


def _refusal(asked: str, schema: pa.Schema) -> str | None:
    """Return Lance's message on one line if it refuses the condition."""
    try:
        table = lance.write_dataset(_some(schema).empty_table(), MEMORY)
        table.scanner(columns=[], filter=asked, with_row_id=True).to_table()
    except (OSError, ValueError) as error:
        return reason(error, asked)
    return None
