"""Files that hold a table; read schema and rows of Parquet and Arrow files (Hugging Face's `save_to_disk`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from gangline.core.errors import BadInput
from gangline.data.place import DataPlace, Entry

BATCH = 256
STORED_AS = b"stored as"
NOT_UTF8 = "a text that is not UTF-8"


@dataclass(frozen=True, slots=True)
class LineMark:
    """The position of a row in a text file: its number, the number of its line from 1, and its byte offset."""

    row: int = 0
    line: int = 1
    byte: int = 0


@dataclass(frozen=True, slots=True)
class TableRange:
    """A part of a shard: rows `first` to `stop` of one file. `mark` is the last known position at or before them."""

    file: str
    first: int
    stop: int
    mark: LineMark = LineMark()


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns and number of rows of a file. `marks` are positions of rows at intervals, for formats without an index."""

    columns: pa.Schema
    rows: int
    marks: tuple[LineMark, ...] = ()


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row. `at` is its position in the file: `#12`, or line `:13` of a text file. If `problem` is set, there are no values."""

    at: str
    values: dict[str, Any]
    problem: str = ""


def column_type(column: pa.Field) -> str:
    """Return the column's type in the terms of its file format."""
    return (column.metadata or {}).get(STORED_AS, str(column.type).encode()).decode()


@contextmanager
def damage_of(name: str) -> Iterator[None]:
    """Turn Arrow's errors about a file's content into `BadInput` that names the file. Only the system's I/O errors have an `errno`."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        said = str(error).partition("\n")[0]
        raise BadInput(f"{name} is damaged, or not a table: {said}", hint="remove it, or download it again") from None


def arrow_shape(place: DataPlace, entry: Entry) -> Shape:
    """Return columns and number of rows. Raise `BadInput` if it is not such a file."""
    with damage_of(entry.name), place.open(entry.name) as file:
        if _is_parquet(entry.name):
            table = pq.ParquetFile(_for_arrow(file))
            schema, rows = table.schema_arrow, table.metadata.num_rows
        else:
            reader = _arrow(file)
            schema, rows = reader.schema, sum(batch.num_rows for batch in reader)
    check_names(entry.name, schema.names)
    return Shape(schema, rows)


def check_names(file: str, names: list[str]) -> None:
    """Raise `BadInput` if several columns have the same name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{file} has several columns with the same name: {', '.join(twice)}", hint="rename them")


def arrow_rows(place: DataPlace, rows: TableRange, columns: list[str]) -> Iterator[TableRow]:
    at = rows.first
    for batch in _batches(place, rows, columns):
        for values in _of_batch(batch):
            yield TableRow(f"#{at}", values) if values is not None else TableRow(f"#{at}", {}, NOT_UTF8)
            at += 1


def _of_batch(batch: pa.RecordBatch) -> list[dict[str, Any] | None]:
    """Return the rows of a batch, with None for each that contains text that is not UTF-8."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        return (
            [None]
            if batch.num_rows == 1
            else [row for at in range(batch.num_rows) for row in _of_batch(batch.slice(at, 1))]
        )


def _batches(place: DataPlace, rows: TableRange, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield exactly these rows."""
    with damage_of(rows.file), place.open(rows.file) as file, _reader(file, rows, columns) as (batches, start):
        at = start
        for batch in batches:
            first, stop = max(rows.first - at, 0), min(rows.stop - at, batch.num_rows)
            if first < stop:
                yield batch.slice(first, stop - first)
            at += batch.num_rows
            if at >= rows.stop:
                return


@contextmanager
def _reader(file: BinaryIO, rows: TableRange, columns: list[str]) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
    """Yield batches that contain `rows`, and the number of their first row. Of a Parquet file only the needed row groups are read."""
    if not _is_parquet(rows.file):
        yield (batch.select(columns) for batch in _arrow(file)), 0
        return
    table = pq.ParquetFile(_for_arrow(file))
    groups, at, start = [], 0, 0
    for number in range(table.num_row_groups):
        count = table.metadata.row_group(number).num_rows
        if at < rows.stop and rows.first < at + count:
            start = start if groups else at
            groups.append(number)
        at += count
    yield table.iter_batches(BATCH, row_groups=groups, columns=columns), start


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet")


def _arrow(file: BinaryIO) -> Any:
    return pa.ipc.open_stream(_for_arrow(file))


def _for_arrow(file: Any) -> Any:
    return pa.PythonFile(file, mode="r")
