"""Costs as CSV, and a forecast as a sentence."""

import csv
from io import StringIO

from gangline.core.display import safe_cell
from gangline.core.reports.costs import CostForecast, CostRow, CostsView
from gangline.core.words import usd_words


def shown_rows(found: CostsView) -> list[CostRow]:
    """Return the rows, and last the sum of those that the limit left out."""
    return [*found.rows, *([found.others] if found.others else [])]


def forecast_words(each: CostForecast) -> str:
    """Return what the current day or month has cost, what it is expected to cost, and how that was computed, without a full stop."""
    when = "today" if each.per == "day" else "this month"
    spent = f"{when}: {usd_words(each.spent_usd * 1e6)} so far"
    if each.usd is None or each.low_usd is None or each.high_usd is None:
        return f"{spent}; {each.because}"
    usd, low, high = (usd_words(amount * 1e6) for amount in (each.usd, each.low_usd, each.high_usd))
    return f"{spent}, about {usd} at its end ({low} to {high}), {each.because}"


def as_cost_lines(found: CostsView) -> str:
    """Return a line for each row, with a column for each cause, under the names of the columns."""
    into = StringIO()
    writer = csv.writer(into, lineterminator="\n")
    writer.writerow(("key", "label", "usd", *found.parts))
    for row in shown_rows(found):
        amounts = (row.usd, *(row.parts.get(cause, 0) for cause in found.parts))
        writer.writerow((safe_cell(row.key), safe_cell(row.label), *(f"{amount:.6f}" for amount in amounts)))
    return into.getvalue()
