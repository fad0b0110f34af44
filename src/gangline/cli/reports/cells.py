"""A report as CSV: a line for each job. No cell is a formula, whatever the name of a job begins with."""

import csv
from collections.abc import Iterable
from dataclasses import asdict, fields
from datetime import UTC, datetime
from io import StringIO

from gangline.core.display import safe_cell
from gangline.core.reports.view import JobLine

TIMES = {"submitted_ms": "submitted", "ended_ms": "ended"}


def as_csv(lines: Iterable[JobLine]) -> str:
    """Return the lines under the names of their columns."""
    into = StringIO()
    writer = csv.writer(into, lineterminator="\n")
    writer.writerow(TIMES.get(field.name, field.name) for field in fields(JobLine))
    for line in lines:
        writer.writerow(_cell(name, value) for name, value in asdict(line).items())
    return into.getvalue()


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name in TIMES:
        at = datetime.fromtimestamp(int(str(value)) / 1000, UTC)
        return at.isoformat(timespec="seconds").replace("+00:00", "Z")
    if isinstance(value, float):
        return f"{value:.10g}"
    return safe_cell(value) if isinstance(value, str) else str(value)
