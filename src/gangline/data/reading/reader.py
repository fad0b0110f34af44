"""Read one data set in blocks: cut it into blocks, and load a block into memory with retries."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import lance
import numpy as np
import pyarrow as pa

from gangline.core.errors import BadInput, Unreachable
from gangline.data.dataset import DataSet
from gangline.data.place import errors_of, explained
from gangline.data.reading.block_cache import BlockCache
from gangline.data.reading.shuffle import LANES, SampleNumbers, Shuffle, cut_into_blocks
from gangline.data.where import enclosed, on_one_line, reason

BLOCK_BYTES = 2 << 20
BLOCK_ROWS_MAX = 8192
TEXT_BYTES = 200
TRIES = 5
WAIT_S = 0.5

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrder:
    """Which columns of a data set to read, and in which order; `where` selects rows. A `block_rows` of 0 is derived from the mean size of a
    row."""

    columns: tuple[str, ...]
    seed: int
    where: str = ""
    block_rows: int = 0
    lanes: int = LANES


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that are read together: `rows` are their positions in a fragment, not counting deleted rows."""

    fragment: int
    rows: SampleNumbers | range


class BlockRows:
    """Rows of a block in memory. `places` are their sorted positions in the block; None means all rows."""

    def __init__(self, table: pa.Table, places: SampleNumbers | None = None) -> None:
        self._columns = {name: _column(table.column(name)) for name in table.column_names}
        self._places = places

    def value(self, name: str, row: int) -> Any:
        at = row if self._places is None else int(np.searchsorted(self._places, row))
        return self._columns[name](at)


class DataReader:
    """One data set in blocks that can be read. Raises `BadInput` if it lacks a column, or has no rows that are selected."""

    def __init__(
        self, data: DataSet, reading: ReadOrder, *, cache: BlockCache | None = None, wait_s: float = WAIT_S
    ) -> None:
        self.data = data
        self.reading = reading
        self._cache = cache if data.place.is_remote else None
        self._wait_s = wait_s
        self._fragments = {one.fragment_id: one for one in data.table.get_fragments()}
        check_columns(data, reading.columns, reading.where)
        self.blocks = self._cut(reading.block_rows or block_rows(data, reading.columns))
        self.shuffle = Shuffle(reading.seed, [len(block.rows) for block in self.blocks], reading.lanes)

    def read(self, block: int, places: SampleNumbers) -> BlockRows:
        """Return these rows of a block, or the whole block if they are more than half of it. Raise `BadInput` or `Unreachable` after
        retries."""
        if 2 * len(places) > len(self.blocks[block].rows):
            return BlockRows(self._cached(block))
        own = np.sort(places)
        return BlockRows(self._take(block, own.tolist()), own)

    def _cached(self, block: int) -> pa.Table:
        every = range(len(self.blocks[block].rows))
        if self._cache is None:
            return self._take(block, every)
        own = self.blocks[block]
        rows = f"{own.rows[0]}-{own.rows[-1]}-{len(own.rows)}-{self.reading.where}"
        key = "/".join((self.data.info.id, str(self.data.version), str(own.fragment), rows, *self.reading.columns))
        return self._cache.get(key, lambda: self._take(block, every))

    def _take(self, block: int, places: Sequence[int]) -> pa.Table:
        own = self.blocks[block]
        chosen = [int(own.rows[place]) for place in places]
        return self._retried(lambda: self._fragments[own.fragment].take(chosen, columns=list(self.reading.columns)))

    def _retried(self, read: Callable[[], Value]) -> Value:
        """Retry for a while what the store's client gave up on, but not what the store refused."""
        for number in range(1, TRIES + 1):
            try:
                return read()
            except Exception as error:
                told = explained(self.data.place, error)
                if isinstance(told, BadInput):
                    raise told from error
                if number == TRIES:
                    raise told or _damaged(self.data, error) from error
                threading.Event().wait(self._wait_s * 2 ** (number - 1))
        raise AssertionError("the last try returns or raises")

    def _cut(self, size: int) -> list[Block]:
        return [
            Block(number, rows[part.start : part.stop])
            for number, fragment in self._fragments.items()
            for rows in (self._wanted(fragment),)
            for part in cut_into_blocks(len(rows), size)
        ]

    def _wanted(self, fragment: lance.LanceFragment) -> SampleNumbers | range:
        if not self.reading.where:
            return range(fragment.count_rows())
        every = fragment.scanner(columns=[], with_row_address=True)
        some = fragment.scanner(columns=[], with_row_address=True, filter=enclosed(self.reading.where))
        with _condition(self.data, self.reading.where):
            addresses, kept = (scan.to_table()["_rowaddr"].to_numpy() for scan in (every, some))
        return np.flatnonzero(np.isin(addresses, kept)).astype(np.int64)


def block_rows(data: DataSet, columns: tuple[str, ...]) -> int:
    """Return the power of two of rows whose size in these columns is nearest to `BLOCK_BYTES`."""
    row = sum(_bytes_of(data, data.table.schema.field(name)) for name in columns)
    return max(1, min(BLOCK_ROWS_MAX, 1 << max(0, round(math.log2(BLOCK_BYTES / max(row, 1))))))


def _bytes_of(data: DataSet, column: pa.Field) -> int:
    if column.name == "image":
        return data.info.image_bytes
    if pa.types.is_fixed_size_list(column.type):
        return column.type.list_size * column.type.value_type.bit_width // 8
    return 8 if pa.types.is_primitive(column.type) else TEXT_BYTES


def _column(chunks: pa.ChunkedArray) -> Callable[[int], Any]:
    """Return a function from row to value: an array if every row has equally many numbers. A single chunk, as blocks have, is not
    copied."""
    values = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
    if pa.types.is_fixed_size_list(values.type):
        return values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), -1).__getitem__
    if pa.types.is_list(values.type):
        return values.to_pylist().__getitem__
    return lambda row: values[row].as_py()


def check_columns(data: DataSet, columns: tuple[str, ...], where: str) -> None:
    """Raise `BadInput` if the data set lacks a column, the condition is invalid, or it selects no row. Searches for one row only."""
    there = data.table.schema.names
    missing = [name for name in columns if name not in there]
    if missing:
        raise BadInput(f"{data.place.uri} has no column {', '.join(missing)}", hint=f"it has {', '.join(there)}")
    if not data.rows:
        raise BadInput(f"{data.place.uri} has no rows", hint="convert images into it")
    if where:
        with _condition(data, where):
            found = data.table.scanner(columns=[], filter=enclosed(where), limit=1, with_row_address=True).to_table()
        if not len(found):
            raise BadInput(f"no row of {data.place.uri} matches {on_one_line(where)}", hint="relax the condition")


@contextmanager
def _condition(data: DataSet, where: str) -> Iterator[None]:
    try:
        with errors_of(data.place):
            yield
    except ValueError as error:
        said = reason(error, enclosed(where))
        raise BadInput(
            f"the condition {on_one_line(where)} cannot be used: {said}",
            hint="`gangline data inspect` shows the columns",
        ) from None


def _damaged(data: DataSet, error: Exception) -> Unreachable:
    said = str(error).partition(", /")[0]
    return Unreachable(
        f"{data.place.uri} cannot be read: {said}",
        hint="check whether another program has changed it, or it is damaged",
    )
