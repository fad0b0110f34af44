"""Parquet files, and the Arrow files of Hugging Face's `save_to_disk`: with images in them, or with the addresses of images on the
web, as LAION has them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from gangline.core.errors import BadInput
from gangline.core.files import is_safe_path
from gangline.data.place import Entry, Place
from gangline.data.sources.columns import CAPTIONS, captions_of, named_apart
from gangline.data.sources.item import Item, Shard, cut

IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp", "bytes", "image_bytes", "content")
URLS = ("url", "image_url", "img_url", "uri")
TABLES = (".parquet", ".arrow")
BATCH = 256
IN_ARROW = 10_000


@dataclass(frozen=True, slots=True)
class Rows:
    """A part of a shard: rows of one file."""

    file: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class TableSource:
    """`images` and `urls` name the column that is used, one of the two is empty; `kept` are the source's names for `columns`."""

    place: Place
    captions: tuple[str, ...]
    images: str
    urls: str
    kept: tuple[str, ...]
    columns: pa.Schema
    files: tuple[tuple[str, int], ...]
    notes: tuple[str, ...] = ()
    kind: str = "tables"

    @property
    def asked(self) -> list[str]:
        return ["tables", self.images, self.urls, *self.captions]

    def shards(self, entries: list[Entry], rows: int) -> list[Shard]:
        parts = [
            Rows(file, first, min(first + rows, count)) for file, count in self.files for first in range(0, count, rows)
        ]
        return cut(parts, 1)

    def read(self, shard: Shard) -> Iterator[Item]:
        names = list(dict.fromkeys((*filter(None, (self.images, self.urls)), *self.captions, *self.kept)))
        for rows in shard.parts:
            at = rows.first
            for batch in _batches(self.place, rows, names):
                for row in batch.to_pylist():
                    yield self._item(f"{rows.file}#{at}", row)
                    at += 1

    def _item(self, name: str, row: dict[str, Any]) -> Item:
        columns = {field.name: row[given] for field, given in zip(self.columns, self.kept, strict=True)}
        said = tuple(text for column in self.captions for text in captions_of(row[column]))
        common: dict[str, Any] = {"name": name, "captions": said, "columns": columns}
        if self.urls:
            url = row[self.urls]
            return Item(url=url, **common) if url else Item(name=name, problem="no URL")
        image = row[self.images]
        if isinstance(image, dict):  # Hugging Face's `Image`: bytes, or the path of a file beside
            path = image.get("path") or ""
            image = image.get("bytes")
            if image is None and path:
                return (
                    Item(file=path, **common)
                    if is_safe_path(path)
                    else Item(name=name, problem="a path that leads elsewhere")
                )
        return Item(image=image, **common) if image else Item(name=name, problem="no image in the row")


def table_source(
    place: Place, entries: list[Entry], captions: tuple[str, ...], image: str = "", url: str = ""
) -> TableSource:
    """Columns are found by their names, or are those given. Raises `BadInput` that lists what there is."""
    names = [entry.name for entry in entries]
    files: list[tuple[str, int]] = []
    schema: pa.Schema | None = None
    for name in names:
        found, count = _shape(place, name)
        if schema is not None and found.names != schema.names:
            raise BadInput(
                f"{name} has other columns than {names[0]}: {_list(set(found.names) ^ set(schema.names))}",
                hint="convert them apart, and train on both",
            )
        schema = schema or found
        files.append((name, count))
    assert schema is not None
    images = _chosen(schema, image, IMAGES, "image", _holds_image)
    urls = "" if images else _chosen(schema, url, URLS, "URL", pa.types.is_string)
    if not images and not urls:
        raise BadInput(
            f"{place.uri} has neither a column of images nor one of URLs: {_list(schema.names)}",
            hint="name it: --image-column or --url-column",
        )
    said = _captions(schema, captions)
    kept = tuple(field.name for field in schema if _is_scalar(field.type) and field.name not in (images, urls, *said))
    left = sorted(set(schema.names) - {images, urls, *said, *kept})
    columns = pa.schema([pa.field(named_apart(name), _plain(schema.field(name).type)) for name in kept])
    if urls:  # where an image came from stays with it
        kept, columns = (*kept, urls), columns.append(pa.field(named_apart(urls), pa.string()))
    notes = (f"columns that are neither numbers nor texts are left out: {_list(left)}",) if left else ()
    return TableSource(place, said, images, urls, kept, columns, tuple(files), notes)


def _captions(schema: pa.Schema, given: tuple[str, ...]) -> tuple[str, ...]:
    """Those given; else the first whose name says so."""
    missing = [name for name in given if name not in schema.names]
    if missing:
        raise BadInput(f"there is no column {_list(missing)}", hint=f"there are {_list(schema.names)}")
    if given:
        return given
    by_lower = {name.lower(): name for name in reversed(schema.names)}
    found = next((by_lower[name] for name in CAPTIONS if name in by_lower), "")
    if not found:
        raise BadInput(f"no column is known to hold captions: {_list(schema.names)}", hint="name it: --caption-column")
    return (found,)


def _chosen(schema: pa.Schema, given: str, known: tuple[str, ...], what: str, fits: Any) -> str:
    if given:
        if given not in schema.names:
            raise BadInput(f"there is no column {given}", hint=f"there are {_list(schema.names)}")
        if not fits(schema.field(given).type):
            raise BadInput(f"column {given} holds no {what}: it is {schema.field(given).type}", hint="name another one")
        return given
    by_lower = {field.name.lower(): field.name for field in schema if fits(field.type)}
    return next((by_lower[name] for name in known if name in by_lower), "")


def _holds_image(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(kind.field(number).name == "bytes" for number in range(kind.num_fields))
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_scalar(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_boolean,
            pa.types.is_string,
            pa.types.is_large_string,
        )
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) else kind


def _shape(place: Place, name: str) -> tuple[pa.Schema, int]:
    """Its columns and how many rows there are. Raises `BadInput` where it is no such file."""
    try:
        with place.open(name) as file:
            if name.endswith(".parquet"):
                table = pq.ParquetFile(_for_arrow(file))
                return table.schema_arrow, table.metadata.num_rows
            reader = _arrow(file)
            return reader.schema, sum(batch.num_rows for batch in reader)
    except pa.ArrowInvalid as error:
        raise BadInput(f"{name} is damaged, or no table: {error}", hint="take it out, or fetch it again") from None


def _batches(place: Place, rows: Rows, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Exactly these rows."""
    with place.open(rows.file) as file, _reader(file, rows, columns) as (batches, start):
        at = start
        for batch in batches:
            first, stop = max(rows.first - at, 0), min(rows.stop - at, batch.num_rows)
            if first < stop:
                yield batch.slice(first, stop - first)
            at += batch.num_rows
            if at >= rows.stop:
                return


@contextmanager
def _reader(file: BinaryIO, rows: Rows, columns: list[str]) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
    """Batches that hold `rows`, and the number of their first row: of a Parquet file only the row groups that are needed."""
    if not rows.file.endswith(".parquet"):
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


def _arrow(file: BinaryIO) -> Any:
    return pa.ipc.open_stream(_for_arrow(file))


def _for_arrow(file: Any) -> Any:
    return pa.PythonFile(file, mode="r")


def _list(names: Any) -> str:
    return ", ".join(sorted(names) if isinstance(names, set) else names)
