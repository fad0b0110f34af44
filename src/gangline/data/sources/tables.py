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
from gangline.data.place import Entry, Place, called
from gangline.data.sources.columns import CAPTIONS, as_type, captions_of, named_apart
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
                for row in _rows(batch):
                    name = f"{rows.file}#{at}"
                    yield self._item(name, row) if row else Item(name=name, problem="a text that is not UTF-8")
                    at += 1

    def _item(self, name: str, row: dict[str, Any]) -> Item:
        given = zip(self.columns, self.kept, strict=True)
        columns = {field.name: as_type(row[name], field.type) for field, name in given}
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
    place: Place,
    entries: list[Entry],
    captions: tuple[str, ...],
    *,
    image: str = "",
    url: str = "",
    uncaptioned: bool = False,
) -> TableSource:
    """Columns are found by their names, or are those given. Raises `BadInput` that lists what there is."""
    names = [entry.name for entry in entries]
    files: list[tuple[str, int]] = []
    schema: pa.Schema | None = None
    for name in names:
        found, count = _shape(place, name)
        schema = found if schema is None else _together(schema, found, f"{name} has other columns than {names[0]}")
        files.append((name, count))
    assert schema is not None
    if not any(count for _, count in files):
        raise BadInput(f"{called(place, entries)} has no rows", hint="give a table that has some")
    if image and url:
        raise BadInput("--image-column and --url-column are both given", hint="give one of them")
    images = "" if url else _chosen(schema, image, IMAGES, "image", _holds_image)
    urls = "" if images else _chosen(schema, url, URLS, "URL", _is_text)
    if not images and not urls:
        raise BadInput(
            f"{place.uri} has neither a column of images nor one of URLs: {_list(schema.names)}",
            hint="name it: --image-column or --url-column",
        )
    said = _captions(schema, captions, needed=not uncaptioned)
    apart = {named_apart(field.name): field.name for field in reversed(list(schema)) if _is_scalar(field.type)}
    kept = tuple(name for name in schema.names if name in apart.values() and name not in (images, urls, *said))
    left = sorted(set(schema.names) - {images, urls, *said, *kept})
    columns = pa.schema([pa.field(named_apart(name), _plain(schema.field(name).type)) for name in kept])
    if urls:  # where an image came from stays with it
        kept, columns = (*kept, urls), columns.append(pa.field(named_apart(urls), pa.string()))
    why = "columns that are neither numbers nor texts, or whose names are too much alike, are left out"
    notes = (f"{why}: {_list(left)}",) if left else ()
    return TableSource(place, said, images, urls, kept, columns, tuple(files), notes)


def _together(one: pa.Schema, other: pa.Schema, told: str) -> pa.Schema:
    """The columns of both, in any order; numbers as the wider of two types. Raises `BadInput`."""
    apart = set(one.names) ^ set(other.names)
    try:
        if not apart:
            return pa.unify_schemas([one, other], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        apart = {name for name in one.names if one.field(name).type != other.field(name).type}
    raise BadInput(f"{told}: {_list(apart)}", hint="convert them apart, and train on both")


def _captions(schema: pa.Schema, given: tuple[str, ...], *, needed: bool) -> tuple[str, ...]:
    """Those given; else the first whose name says so; else none, where none is needed."""
    missing = [name for name in given if name not in schema.names]
    if missing:
        raise BadInput(f"there is no column {_list(missing)}", hint=f"there are {_list(schema.names)}")
    if given:
        return given
    by_lower = {name.lower(): name for name in reversed(schema.names)}
    found = next((by_lower[name] for name in CAPTIONS if name in by_lower), "")
    if not found and needed:
        raise BadInput(
            f"no column is known to hold captions: {_list(schema.names)}",
            hint="name it: --caption-column; or take images without captions: --keep-uncaptioned",
        )
    return (found,) if found else ()


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
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _is_scalar(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if _is_text(kind) else kind


def _shape(place: Place, name: str) -> tuple[pa.Schema, int]:
    """Its columns and how many rows there are. Raises `BadInput` where it is no such file."""
    with damage_of(name), place.open(name) as file:
        if _is_parquet(name):
            table = pq.ParquetFile(_for_arrow(file))
            schema, rows = table.schema_arrow, table.metadata.num_rows
        else:
            reader = _arrow(file)
            schema, rows = reader.schema, sum(batch.num_rows for batch in reader)
    twice = {column for column in schema.names if schema.names.count(column) > 1}
    if twice:
        raise BadInput(f"{name} has several columns of one name: {_list(twice)}", hint="rename them")
    return schema, rows


@contextmanager
def damage_of(name: str) -> Iterator[None]:
    """What Arrow says of a file's content is told of the file; its own I/O errors have no number of the system's."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        said = str(error).partition("\n")[0]
        raise BadInput(f"{name} is damaged, or no table: {said}", hint="take it out, or fetch it again") from None


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any] | None]:
    """None for one that has a text which is none."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        return (
            [None]
            if batch.num_rows == 1
            else [row for at in range(batch.num_rows) for row in _rows(batch.slice(at, 1))]
        )


def _batches(place: Place, rows: Rows, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Exactly these rows."""
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
def _reader(file: BinaryIO, rows: Rows, columns: list[str]) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
    """Batches that hold `rows`, and the number of their first row: of a Parquet file only the row groups that are needed."""
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


def _list(names: Any) -> str:
    return ", ".join(sorted(names) if isinstance(names, set) else names)
