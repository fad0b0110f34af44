"""MDS, the format of MosaicML's `streaming`: an `index.json` that lists shards, at the top or in several folders below.

A shard is `[number of samples: u4] [start of each sample, and end of the last: (samples + 1) × u4] [columns, as JSON] [samples]`, all in
little endian; a sample is `[sizes of the columns without a fixed size: u4 each] [values]`. So each shard can be read by itself, once it is
decompressed. Nothing is ever unpickled: columns of pickles are skipped.
"""

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa
from PIL import Image

from gangline.core.errors import BadInput
from gangline.core.words import counted
from gangline.data.place import DataPlace, Entry
from gangline.data.sources.table_files import NOT_UTF8, STORED_AS, Shape, TableRange, TableRow, column_type

INDEX = "index.json"
SHARDS = ".mds"
PACKED = {".br": "brotli", ".bz2": "bz2", ".gz": "gzip", ".snappy": "snappy", ".zstd": "zstd"}
ENDINGS = (SHARDS, *(f"{SHARDS}{ending}" for ending in PACKED))
U4 = struct.Struct("<I")
PLAIN_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
BITS = 8
"""At most this many pixels fit into a byte."""
SNAPPY_SIZE = 5

SCALARS = {
    "int": ("q", pa.int64()),
    "int8": ("b", pa.int8()),
    "int16": ("h", pa.int16()),
    "int32": ("i", pa.int32()),
    "int64": ("q", pa.int64()),
    "uint8": ("B", pa.uint8()),
    "uint16": ("H", pa.uint16()),
    "uint32": ("I", pa.uint32()),
    "uint64": ("Q", pa.uint64()),
    "float16": ("e", pa.float32()),
    "float32": ("f", pa.float32()),
    "float64": ("d", pa.float64()),
}
TEXTS: dict[str, tuple[Callable[[str], Any], pa.DataType]] = {
    "str": (str, pa.string()),
    "str_int": (int, pa.int64()),
    "str_float": (float, pa.float64()),
    "str_decimal": (lambda text: float(Decimal(text)), pa.float64()),
    "json": (json.loads, pa.string()),
}
PICTURES = ("jpeg", "png", "pil")
IMAGES = ("bytes", *PICTURES)


@dataclass(frozen=True, slots=True)
class MdsColumn:
    name: str
    encoding: str
    size: int | None

    @property
    def field(self) -> pa.Field:
        """The column as a table's; of type null if a data set cannot hold its values."""
        kind = (SCALARS.get(self.encoding) or TEXTS.get(self.encoding) or ("", pa.null()))[1]
        return pa.field(
            self.name, pa.binary() if self.encoding in IMAGES else kind, metadata={STORED_AS: self.encoding}
        )

    def value(self, stored: bytes) -> Any:
        """Decode a value. Raise `ValueError` if it is damaged."""
        if self.encoding in SCALARS:
            try:
                return struct.unpack(f"<{SCALARS[self.encoding][0]}", stored)[0]
            except struct.error as error:
                raise ValueError(str(error)) from None
        if self.encoding in TEXTS:
            return TEXTS[self.encoding][0](stored.decode())
        return _as_file(stored) if self.encoding == "pil" else stored


def picture_columns(columns: pa.Schema) -> list[str]:
    """Return the lower-case names of columns that are encoded as pictures, whatever they are called."""
    return [column.name.lower() for column in columns if column_type(column) in PICTURES]


def mds_shapes(place: DataPlace, entries: list[Entry]) -> list[tuple[Entry, Shape]]:
    """Return the shards that the indexes list, each once and in order. Raise `BadInput` if one is missing: its samples would be lost."""
    there = {entry.name: entry for entry in entries}
    shards: dict[str, tuple[Entry, Shape]] = {}
    missing: list[str] = []
    for index in (name for name in there if PurePosixPath(name).name == INDEX):
        for listed, shape in _listed(place, index):
            names = [(PurePosixPath(index).parent / name).as_posix() for name in listed]
            found = next((name for name in names if name in there), "")
            if found:
                shards[names[0]] = there[found], shape  # an index of several folders repeats their own lists
            else:
                missing.append(names[-1])
    if missing:
        raise BadInput(
            f"{place.uri} lacks {counted(len(missing), 'file')} that its {INDEX} lists, such as {missing[0]}",
            hint="copy all of it, or give one of its folders alone",
        )
    return list(shards.values())


def _listed(place: DataPlace, index: str) -> Iterator[tuple[list[str], Shape]]:
    """Yield the file names of each shard: decompressed, as a reader leaves it in its cache, and compressed."""
    try:
        found = json.loads(place.read(index))
        for shard in found["shards"]:
            if (shard["version"], shard["format"]) != (2, "mds"):
                raise BadInput(
                    f"{index} lists files that are not MDS of version 2", hint="write it again with MDSWriter"
                )
            files = [shard[kind]["basename"] for kind in ("raw_data", "zip_data") if shard[kind]]
            yield files, _shape_of(shard)
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{index} is not an index of MDS", hint="download it again, or write it again") from None


def _shape_of(shard: dict[str, Any]) -> Shape:
    samples = shard["samples"]
    if type(samples) is not int or samples < 0:
        raise ValueError("no number of samples")
    return Shape(pa.schema([column.field for column in _columns_of(shard)]), samples)


def mds_files(entries: list[Entry]) -> list[Entry]:
    """Return indexes and shards; empty unless there are both."""
    indexes = [entry for entry in entries if PurePosixPath(entry.name).name == INDEX]
    shards = [entry for entry in entries if entry.name.lower().endswith(ENDINGS)]
    return sorted([*indexes, *shards]) if indexes and shards else []


def mds_rows(place: DataPlace, rows: TableRange, names: list[str]) -> Iterator[TableRow]:
    with _opened(place, rows.file) as shard:
        columns = _columns(shard, rows)
        shard.seek(U4.size * (1 + rows.first))
        count = rows.stop - rows.first
        offsets = struct.unpack(f"<{count + 1}I", _exactly(shard, U4.size * (count + 1), rows.file))
        shard.seek(offsets[0])
        for number, (begin, end) in enumerate(pairwise(offsets), rows.first):
            if end < begin:
                raise _damaged(rows.file)
            yield _row(f"#{number}", columns, _exactly(shard, end - begin, rows.file), names)


def _row(at: str, columns: tuple[MdsColumn, ...], sample: bytes, names: list[str]) -> TableRow:
    unsized = sum(column.size is None for column in columns)
    place = U4.size * unsized
    if place > len(sample):
        return TableRow(at, {}, "a damaged sample")
    sizes = iter(struct.unpack(f"<{unsized}I", sample[:place]))
    values: dict[str, Any] = {}
    try:
        for column in columns:
            size = next(sizes) if column.size is None else column.size
            if column.name in names:
                values[column.name] = column.value(sample[place : place + size])
            place += size
    except UnicodeDecodeError:
        return TableRow(at, {}, NOT_UTF8)
    except (ValueError, ArithmeticError, RecursionError):
        return TableRow(at, {}, "a damaged sample")
    return TableRow(at, values) if place == len(sample) else TableRow(at, {}, "a damaged sample")


def _columns(shard: BinaryIO, rows: TableRange) -> tuple[MdsColumn, ...]:
    """Return the shard's columns. Raise `BadInput` if it lacks these rows."""
    samples, first = struct.unpack("<2I", _exactly(shard, 2 * U4.size, rows.file))
    start = U4.size * (samples + 2)
    if first < start or rows.stop > samples:
        raise _damaged(rows.file)
    shard.seek(start)
    try:
        return _columns_of(json.loads(_exactly(shard, first - start, rows.file)))
    except (ValueError, KeyError, TypeError):
        raise _damaged(rows.file) from None


def _columns_of(config: dict[str, Any]) -> tuple[MdsColumn, ...]:
    listed = list(zip(config["column_names"], config["column_encodings"], config["column_sizes"], strict=True))
    for name, encoding, size in listed:
        if not (isinstance(name, str) and isinstance(encoding, str)) or not (
            size is None or (type(size) is int and size > 0)
        ):
            raise ValueError("no columns")
    return tuple(MdsColumn(*column) for column in listed)


def _exactly(shard: BinaryIO, size: int, name: str) -> bytes:
    content = shard.read(size)
    if len(content) != size:
        raise _damaged(name)
    return content


def _damaged(name: str) -> BadInput:
    return BadInput(f"{name} is damaged, or not a shard of MDS", hint="download it again")


@contextmanager
def _opened(place: DataPlace, name: str) -> Iterator[BinaryIO]:
    """Open a shard, decompressed."""
    packing = PACKED.get(PurePosixPath(name).suffix.lower())
    if packing is None:
        with place.open(name) as shard:
            yield shard
        return
    content = place.read(name)
    try:
        unpacked = _unpacked(content, packing)
    except (pa.ArrowException, OSError):
        raise _damaged(name) from None
    yield BytesIO(unpacked)


def _unpacked(content: bytes, packing: str) -> bytes:
    if packing != "snappy":
        with pa.CompressedInputStream(pa.BufferReader(content), packing) as stream:
            return stream.read()
    size = 0
    for place, byte in enumerate(content[:SNAPPY_SIZE]):  # a varint of the decompressed size: pyarrow needs it
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return pa.decompress(content, size, packing, asbytes=True)


def _as_file(stored: bytes) -> bytes:
    """Return an image in the encoding `pil`, `[width: u4] [height: u4] [length: u4] [mode] [pixels]`, as a lossless file."""
    if len(stored) < 3 * U4.size:
        raise ValueError("no picture")
    width, height, length = struct.unpack("<3I", stored[: 3 * U4.size])
    mode = stored[3 * U4.size : 3 * U4.size + length].decode()
    if not 0 < width * height <= len(stored) * BITS:
        raise ValueError("no picture")
    picture = Image.frombytes(mode, (width, height), stored[3 * U4.size + length :])
    file = BytesIO()
    try:
        picture.save(file, "PNG" if mode in PLAIN_MODES else "TIFF")
    except OSError as error:
        raise ValueError(str(error)) from None  # neither format has this mode
    return file.getvalue()
