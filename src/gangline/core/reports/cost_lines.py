"""Costs as CSV."""

import csv
from io import StringIO

from gangline.core.display import safe_cell
from gangline.core.reports.costs import CostRow, CostsView


def shown_rows(found: CostsView) -> list[CostRow]:
    """Return the rows, and last the sum of those that the limit left out."""
    return [*found.rows, *([found.others] if found.others else [])]


def as_cost_lines(found: CostsView) -> str:
    """Return a line for each row, with a column for each cause, under the names of the columns."""
    into = StringIO()
    writer = csv.writer(into, lineterminator="\n")
    writer.writerow(("key", "label", "usd", *found.parts))
    for row in shown_rows(found):
        amounts = (row.usd, *(row.parts.get(cause, 0) for cause in found.parts))
        writer.writerow((safe_cell(row.key), safe_cell(row.label), *(f"{amount:.6f}" for amount in amounts)))
    return into.getvalue()
