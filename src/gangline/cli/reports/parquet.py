"""Costs and reports as Parquet: typed columns for other programs, with what they are about in the file's metadata."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gangline.core.errors import BadInput
from gangline.core.reports.cost_lines import shown_rows
from gangline.core.reports.costs import CAUSES, CostsView
from gangline.core.reports.view import JobLine, ReportView
from gangline.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

DIGITS = 6
"""Of dollars: a decimal that has whole micro-dollars."""


def check_parquet() -> None:
    """Raise `BadInput` if pyarrow is not installed."""
    _arrow()


def write_costs(found: CostsView, file: Path) -> None:
    """Write the rows into a file. `key` is a date if costs are by day, else a text; `usd` and each cause, in their order, are decimals with
    six digits, so sums are exact. The metadata has `by`, `zone`, `since_ms`, `until_ms`, `cost_lacks` and `version`, all as texts.

    Raise `BadInput` if pyarrow is missing, or the file cannot be written.
    """
    pa = _arrow()
    rows, money = shown_rows(found), pa.decimal128(18, DIGITS)
    keys = [date.fromisoformat(row.key) for row in rows] if found.by == "day" else [row.key for row in rows]
    columns = {
        "key": pa.array(keys, pa.date32() if found.by == "day" else pa.string()),
        "label": pa.array([row.label for row in rows], pa.string()),
        "usd": pa.array([_dollars(row.usd) for row in rows], money),
    }
    columns |= {cause: pa.array([_dollars(row.parts.get(cause, 0)) for row in rows], money) for cause in CAUSES}
    about = {"by": found.by, "zone": found.zone, "since_ms": found.since_ms, "until_ms": found.until_ms}
    _write(columns, about | {"cost_lacks": ",".join(found.cost_lacks)}, file)


def write_report(view: ReportView, file: Path) -> None:
    """Write a row for each job of a report into a file. Moments are timestamps in UTC, and `usd` and other numbers 64-bit floats or
    integers. The metadata has `from_ms`, `until_ms`, `zone`, `cost_lacks` and `version`, all as texts. Raise `BadInput` as for costs."""
    pa = _arrow()
    moment = pa.timestamp("ms", tz="UTC")
    types: Mapping[Any, Callable[[], Any]] = {str: pa.string, int: pa.int64, float: pa.float64}
    columns = dict[str, "pa.Array"]()
    for field in fields(JobLine):
        values = [getattr(line, field.name) for line in view.lines]
        name, is_moment = field.name.removesuffix("_ms"), field.name.endswith("_ms")
        kind = float if field.type == (float | None) else field.type
        columns[name] = pa.array(values, moment if is_moment else types[kind]())
    about = {"zone": "UTC", "from_ms": view.from_ms, "until_ms": view.until_ms}
    _write(columns, about | {"cost_lacks": ",".join(view.cost_lacks)}, file)


def _write(columns: "Mapping[str, pa.Array]", about: Mapping[str, object], file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    known = {f"gangline.{name}": "" if value is None else str(value) for name, value in about.items()}
    table = pa.table(dict(columns)).replace_schema_metadata(known | {"gangline.version": VERSION})
    try:
        pq.write_table(table, file)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {(error.strerror or str(error)).lower()}") from None


def _dollars(usd: float) -> Decimal:
    return Decimal(round(usd * 10**DIGITS)).scaleb(-DIGITS)


def _arrow() -> ModuleType:
    try:
        import pyarrow as pa
    except ImportError:
        raise BadInput("Parquet needs pyarrow", hint="install it with pip install 'gangline[data]'") from None
    return pa
