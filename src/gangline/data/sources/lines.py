"""Tables that people write themselves: CSV, TSV, JSON lines, and JSON arrays of objects, in UTF-8 and of any length.

A file is scanned once for the number of its rows, the types of its columns, and the position of every `MARKED`-th row, from which a piece
can start to read.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from gangline.core.datasets.roles import SUFFIXES
from gangline.core.errors import BadInput
from gangline.data.images.captions import MARKS as BOMS
from gangline.data.place import DataPlace, Entry
from gangline.data.sources.columns import TYPES, wider
from gangline.data.sources.table_files import NOT_UTF8, LineMark, Shape, TableRange, TableRow, check_names

SEPARATED = {".csv": ",", ".tsv": "\t"}
LINES = (*SEPARATED, ".json", ".jsonl", ".ndjson")
MARKED = 256
LINE_BYTES_MAX = 16 << 20
CELL_BYTES_MAX = 1 << 20
CHUNK_BYTES = 1 << 16
SCANS_KEPT = 4096
WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")
BROKEN = re.compile(r"[-+]?((\d+\.\d*|\.\d+)(e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf)", re.IGNORECASE)
BETWEEN = " \t\r\n,"
LOST = re.compile("[\udc80-\udcff]")
"""Surrogates that stand for bytes that are not UTF-8."""
NESTED = pa.list_(pa.null())
"""Stands for lists and objects."""


@dataclass(frozen=True, slots=True)
class Record:
    """A row that starts at `mark`, or the `problem` why it is none."""

    mark: LineMark
    values: dict[str, Any]
    problem: str = ""


@lru_cache(SCANS_KEPT)
def line_shape(place: DataPlace, entry: Entry) -> Shape:
    """Scan a file. Raise `BadInput` if it is not such a table."""
    found: dict[str, set[Any]] = {}
    marks: list[LineMark] = []
    count, first_problem, good = 0, "", False
    typed = _cell_type if _delimiter(entry.name) else type
    with place.open(entry.name) as file:
        for record in _records(file, entry.name, LineMark()):
            if count % MARKED == 0:
                marks.append(record.mark)
            count += 1
            if record.problem:
                first_problem = first_problem or f"line {record.mark.line} is {record.problem}"
                continue
            good = True
            for name, value in record.values.items():
                types = found.get(name)
                if types is None:
                    types = found[name] = set()
                if value is not None and str not in types:
                    types.add(typed(value))
    if count and not good:
        raise BadInput(f"{entry.name} is not a table: {first_problem}", hint=_what(entry.name))
    return Shape(pa.schema([(name, _widest(types)) for name, types in found.items()]), count, tuple(marks))


def _widest(types: set[Any]) -> pa.DataType:
    """Return the type of a column with values of these types."""
    widest = pa.null()
    for kind in types:
        widest = _together(widest, TYPES.get(kind, NESTED))
    return widest


def line_rows(place: DataPlace, rows: TableRange, names: list[str]) -> Iterator[TableRow]:
    """Yield rows with all their fields: those that are not in `names` are counted as dropped."""
    with place.open(rows.file) as file:
        records = _records(file, rows.file, rows.mark)
        for record in islice(records, rows.first - rows.mark.row, rows.stop - rows.mark.row):
            yield TableRow(f":{record.mark.line}", record.values, record.problem)


def lines_together(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the columns of all schemas, each with the widest of its types: a table may lack columns of another one."""
    types: dict[str, pa.DataType] = {}
    for schema in schemas:
        for field in schema:
            types[field.name] = _together(types.get(field.name, pa.null()), field.type)
    return pa.schema([(name, pa.string() if kind == pa.null() else kind) for name, kind in types.items()])


def _together(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the wider type; nulls, lists and objects give way to any other."""
    for kind in (pa.null(), NESTED):
        if kind in (one, other):
            return other if one == kind else one
    return wider(one, other)


def _cell_type(text: str) -> type:
    """Return the type of the number that a cell looks like. One with a leading zero, or with too many digits, is text."""
    if WHOLE.fullmatch(text):
        return int
    return float if BROKEN.fullmatch(text) else str


def _delimiter(name: str) -> str:
    return SEPARATED.get(name[name.rfind(".") :].lower(), "")


def _what(name: str) -> str:
    if _delimiter(name):
        return "its first line must have the names of the columns, and each line as many cells"
    return "it must be an array of objects, or have one object on each line"


def _records(file: BinaryIO, name: str, mark: LineMark) -> Iterator[Record]:
    """Yield the records from a mark on, or all. Raise `BadInput` if the file is not in UTF-8."""
    start = file.read(CHUNK_BYTES)
    bom = next((bom for bom in BOMS if start.startswith(bom)), b"")
    if BOMS.get(bom, "utf-8") != "utf-8":
        raise BadInput(f"{name} is not in UTF-8", hint="save it in UTF-8")
    top = LineMark(byte=len(bom))
    if _delimiter(name):
        return _separated(file, name, top, mark)
    if name.lower().endswith(".json") and start[len(bom) :].lstrip().startswith(b"["):
        return _array(file, name, mark if mark.row else LineMark(byte=start.index(b"[") + 1))
    return _objects(file, name, mark if mark.row else top)


class _Lines:
    """The lines of a file, with the position of the next one. `bad` (not UTF-8) and `quotes` cover the lines since the caller reset
    them."""

    def __init__(self, file: BinaryIO, name: str, mark: LineMark) -> None:
        file.seek(mark.byte)
        self.file, self.name, self.line, self.byte = file, name, mark.line, mark.byte
        self.bad, self.quotes = False, 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        content = self.file.readline(LINE_BYTES_MAX)
        if not content:
            raise StopIteration
        if len(content) == LINE_BYTES_MAX:
            raise BadInput(
                f"line {self.line} of {self.name} is longer than {LINE_BYTES_MAX >> 20} MB", hint=_what(self.name)
            )
        self.byte += len(content)
        self.line += 1
        self.quotes += content.count(b'"')
        try:
            return content.decode()
        except UnicodeDecodeError:
            self.bad = True
            return content.decode(errors="replace")


def _separated(file: BinaryIO, name: str, top: LineMark, mark: LineMark) -> Iterator[Record]:
    lines, delimiter = _Lines(file, name, top), _delimiter(name)
    header = next(_cells(lines, delimiter), None)
    if header is None:
        return
    names = _header(name, header[1])
    if mark.row:
        lines = _Lines(file, name, mark)
    for begin, cells in _cells(lines, delimiter, mark.row):
        if lines.bad:
            yield Record(begin, {}, NOT_UTF8)
        elif any(cells[len(names) :]):
            yield Record(begin, {}, "a line with more cells than there are columns")
        else:
            yield Record(begin, {name: cell or None for name, cell in zip(names, cells, strict=False) if name})


def _cells(lines: _Lines, delimiter: str, row: int = 0) -> Iterator[tuple[LineMark, list[str]]]:
    """Yield mark and cells of each row that is not empty. A quoted cell may contain line breaks, so a row may have several lines."""
    csv.field_size_limit(CELL_BYTES_MAX)
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        mark = LineMark(row, lines.line, lines.byte)
        lines.bad, lines.quotes = False, 0
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BadInput(
                f"line {mark.line} of {lines.name} cannot be read: {error}",
                hint="check for a quote that is opened there and never closed",
            ) from None
        if lines.quotes % 2 and lines.line > mark.line + 1 and not lines.file.peek(1):  # pyright: ignore[reportAttributeAccessIssue]
            raise BadInput(f"a quote that line {mark.line} of {lines.name} opens is never closed", hint="close it")
        if cells:
            yield mark, cells
            row += 1


def _header(name: str, cells: list[str]) -> list[str]:
    """Return the column names. Raise `BadInput` if the first line does not hold names."""
    names = [cell.strip() for cell in cells]
    data = next(
        (cell for cell in names if "://" in cell or cell.lower().endswith(SUFFIXES) or _cell_type(cell) is not str),
        "",
    )
    if data:
        raise BadInput(
            f"the first line of {name} has {data[:100]} where the name of a column should be",
            hint="write a line of names above it, such as url,caption",
        )
    check_names(name, [cell for cell in names if cell])
    return names


def _objects(file: BinaryIO, name: str, begin: LineMark) -> Iterator[Record]:
    lines, row = _Lines(file, name, begin), begin.row
    while True:
        mark = LineMark(row, lines.line, lines.byte)
        lines.bad = False
        line = next(lines, None)
        if line is None:
            return
        if line.strip():
            yield Record(mark, {}, NOT_UTF8) if lines.bad else _object(mark, line)
            row += 1


def _object(mark: LineMark, text: str) -> Record:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Record(mark, {}, "not JSON")
    return Record(mark, value) if isinstance(value, dict) else Record(mark, {}, "not a JSON object")


def _array(file: BinaryIO, name: str, begin: LineMark) -> Iterator[Record]:
    """Yield the values between commas, up to the bracket that closes the array."""
    text, decoder, row = _Growing(file, begin), json.JSONDecoder(), begin.row
    while not text.skip("]"):
        mark = LineMark(row, text.line, text.byte)
        while True:
            try:
                value, end = decoder.raw_decode(text.held)
                break
            except (ValueError, RecursionError):
                if len(text.held) > LINE_BYTES_MAX or not text.grow():
                    raise BadInput(
                        f"{name} is not JSON from line {mark.line} on, or ends early", hint=_what(name)
                    ) from None
        if not text.take(end):
            yield Record(mark, {}, NOT_UTF8)
        else:
            yield Record(mark, value) if isinstance(value, dict) else Record(mark, {}, "not a JSON object")
        row += 1


class _Growing:
    """The text of a file from one position on: `held` starts at `line` and `byte`, and grows on request."""

    def __init__(self, file: BinaryIO, mark: LineMark) -> None:
        file.seek(mark.byte)
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.held, self.line, self.byte = "", mark.line, mark.byte

    def grow(self) -> bool:
        """Read as much again, so that parsing a long value is not retried too often. Return False at the end of the file."""
        content = self._file.read(max(CHUNK_BYTES, len(self.held)))
        self.held += self._decoder.decode(content, final=not content)
        return bool(content)

    def take(self, end: int) -> bool:
        """Drop the text before `end`. Return False if it is not UTF-8."""
        piece = self.held[:end]
        self.held = self.held[end:]
        self.line += piece.count("\n")
        self.byte += len(piece.encode(errors="surrogateescape"))
        return not LOST.search(piece)

    def skip(self, end: str) -> bool:
        """Move to the next value. Return True if `end` is there instead."""
        while True:
            self.take(len(self.held) - len(self.held.lstrip(BETWEEN)))
            if self.held or not self.grow():
                return self.held.startswith(end)
