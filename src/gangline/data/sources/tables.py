"""Tables that contain images, their URLs (like LAION's), or paths of their files.

The formats are Parquet, Arrow, MosaicML's MDS, and those that people write themselves: CSV, TSV, JSON and JSON lines.
"""

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from gangline.core.errors import BadInput
from gangline.core.files import is_safe_path
from gangline.data.place import DataPlace, Entry, name_in_messages
from gangline.data.sources.columns import CAPTIONS, Split, captions_of, dropped_column, named_apart
from gangline.data.sources.drawn import IMAGES as LATENTS
from gangline.data.sources.drawn import Drawn, Unusable, notes_on
from gangline.data.sources.item import BUCKET, Item, Shard, cut_into_shards
from gangline.data.sources.lines import line_rows, line_shape, lines_together
from gangline.data.sources.mds import mds_rows, mds_shapes, picture_columns
from gangline.data.sources.table_files import (
    LineMark,
    Shape,
    TableRange,
    TableRow,
    arrow_rows,
    arrow_shape,
    column_type,
)

IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp", "bytes", "image_bytes", "content")
URLS = ("url", "image_url", "img_url", "uri")
PATHS = ("file_name", "filename", "file_path", "filepath", "path", "file", "image_path", "img_path", *IMAGES[:6])
TABLES = (".parquet", ".arrow")
ELSEWHERE = "a path that leads elsewhere"
READERS: dict[str, Callable[[DataPlace, TableRange, list[str]], Iterator[TableRow]]] = {
    "tables": arrow_rows,
    "lines": line_rows,
    "mds": mds_rows,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedColumns:
    """Columns that the user named. `uncaptioned` means that no captions are needed."""

    captions: tuple[str, ...] = ()
    image: str = ""
    url: str = ""
    uncaptioned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The columns' roles: exactly one of the first three has a name."""

    images: str = ""
    urls: str = ""
    paths: str = ""
    captions: tuple[str, ...] = ()

    @property
    def read(self) -> tuple[str, ...]:
        """Columns that are not kept as columns of the data set; URLs and paths are, because they state an image's origin."""
        return (*filter(None, [self.images]), *self.captions)


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table. `kept` are the source's names of `columns`, `left` the names and types of columns that are skipped, `files` the files with
    their numbers of rows, and `drawn` the latents that are kept."""

    place: DataPlace
    roles: Roles
    kept: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    columns: pa.Schema
    files: tuple[tuple[str, int], ...]
    kind: str = "tables"
    drawn: tuple[Drawn, ...] = ()

    @property
    def asked(self) -> list[str]:
        paths = [f"paths: {self.roles.paths}"] if self.roles.paths else []
        latents = [drawn.asked for drawn in self.drawn]
        return ["tables", self.roles.images, self.roles.urls, *paths, *self.roles.captions, *latents]

    @property
    def notes(self) -> tuple[str, ...]:
        names = [name for name, _ in self.left]
        why = "columns that are neither numbers nor texts, or whose names are too much alike, are left out"
        return (f"{why}: {', '.join(names)}", *notes_on(names)) if names else ()

    @property
    def latents(self) -> pa.Schema:
        return pa.schema([drawn.field for drawn in self.drawn])

    def latent_columns(self) -> list[str]:
        """Return the columns with latents of images, by name and type."""
        return [
            name for name, kind in self.left if LATENTS.fullmatch(name) and kind in ("bytes", "binary", "large_binary")
        ]

    def with_latents(self, drawn: tuple[Drawn, ...]) -> "TableSource":
        taken = {one.name for one in drawn}
        return replace(self, drawn=drawn, left=tuple((name, kind) for name, kind in self.left if name not in taken))

    def shards(self, entries: list[Entry], rows: int) -> list[Shard]:
        """Return shards with rows of one file each; of MDS, whose files may be small, with several whole files."""
        marks = {entry.name: line_shape(self.place, entry).marks for entry in entries} if self.kind == "lines" else {}
        parts = [
            TableRange(file, first, min(first + rows, count), _before(marks.get(file, ()), first))
            for file, count in self.files
            for first in range(0, count, rows)
        ]
        return _together_of(parts, rows) if self.kind == "mds" else cut_into_shards(parts, 1)

    def read(self, shard: Shard) -> Iterator[Item]:
        names = list(dict.fromkeys((*self.roles.read, *self.kept, *(drawn.name for drawn in self.drawn))))
        lost = (
            () if self.kind == "lines" else tuple(dropped_column(*column) for column in self.left)
        )  # rows of text files hold all fields, so `split` counts them
        split = Split(self.columns, (*self.roles.read, *(drawn.name for drawn in self.drawn)))
        for rows in shard.parts:
            for row in READERS[self.kind](self.place, rows, names):
                name = f"{rows.file}{row.at}"
                yield self._item(name, rows.file, row, split, lost)

    def _item(self, name: str, file: str, found: TableRow, split: Split, lost: tuple[str, ...]) -> Item:
        if found.problem:
            return Item(name=name, problem=found.problem)
        row = found.values
        try:
            latents = {drawn.column: drawn.read(row.get(drawn.name)) for drawn in self.drawn}
        except Unusable as error:
            return Item(name=name, problem=str(error))
        columns, dropped = split(row)
        said = tuple(text for column in self.roles.captions for text in captions_of(row.get(column)))
        common: dict[str, Any] = {
            "name": name,
            "captions": said,
            "columns": columns,
            "latents": latents,
            "dropped": (*lost, *dropped),
        }
        if self.roles.urls:
            url = row.get(self.roles.urls)
            own = self.kind == "lines" and str(url).startswith(
                BUCKET
            )  # a Parquet file or MDS may be someone else's, and gets no access with the user's key
            return Item(**{"file" if own else "url": str(url)}, **common) if url else Item(name=name, problem="no URL")
        if self.roles.paths:
            return _at_path(self.place, file, row.get(self.roles.paths), common)
        image = row.get(self.roles.images)
        if isinstance(image, dict):  # Hugging Face's `Image`: bytes, or the path of a file beside the table
            path = image.get("path") or ""
            image = image.get("bytes")
            if image is None and path:
                return Item(file=path, **common) if is_safe_path(path) else Item(name=name, problem=ELSEWHERE)
        return Item(image=image, **common) if image else Item(name=name, problem="no image in the row")


def _at_path(place: DataPlace, file: str, path: Any, common: dict[str, Any]) -> Item:
    """Return the image at a path relative to the table's folder. `..` and absolute paths are followed, because the table is the user's own,
    but a table in a bucket may not name paths of this machine."""
    if not path or not isinstance(path, str):
        return Item(name=common["name"], problem="no path")
    if "://" in path:
        return Item(**{"file" if path.startswith(BUCKET) else "url": path}, **common)
    if place.is_remote and path.startswith("/"):
        return Item(name=common["name"], problem=ELSEWHERE)
    below = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
    if place.is_remote and below.startswith(".."):
        bucket, _, prefix = place.uri.removeprefix(BUCKET).partition("/")
        below = f"{BUCKET}{bucket}{posixpath.normpath(f'/{prefix}/{below}')}"
    return Item(file=below, **common)


def _before(marks: tuple[LineMark, ...], row: int) -> LineMark:
    """Return the last mark at or before that row."""
    place = bisect_right(marks, row, key=lambda mark: mark.row)
    return marks[place - 1] if place else LineMark()


def _together_of(parts: list[TableRange], rows: int) -> list[Shard]:
    """Combine consecutive parts into shards of at most `rows` rows."""
    shards: list[list[TableRange]] = []
    room = 0
    for part in parts:
        count = part.stop - part.first
        if count > room or not shards:
            shards.append([])
            room = rows
        shards[-1].append(part)
        room -= count
    return [Shard(number, tuple(own)) for number, own in enumerate(shards)]


def table_source(
    place: DataPlace, kind: str, entries: list[Entry], given: NamedColumns = NamedColumns()
) -> TableSource:
    """Return the source, with columns found by name or as given. Raise `BadInput` that lists the columns."""
    shapes = _shapes(place, kind, entries)
    if not any(shape.rows for _, shape in shapes):
        raise BadInput(f"{name_in_messages(place, entries)} has no rows", hint="give a table with rows")
    schema = _schema(kind, shapes)
    roles = _roles(place, kind, schema, given)
    apart = {named_apart(field.name): field.name for field in reversed(list(schema)) if _is_scalar(field.type)}
    kept = tuple(name for name in schema.names if name in apart.values() and name not in (roles.urls, *roles.read))
    left = sorted(set(schema.names) - {roles.urls, *roles.read, *kept})
    columns = pa.schema([pa.field(named_apart(name), _plain(schema.field(name).type)) for name in kept])
    if roles.urls:  # keeps the origin of each image
        kept, columns = (*kept, roles.urls), columns.append(pa.field(named_apart(roles.urls), pa.string()))
    files = tuple((entry.name, shape.rows) for entry, shape in shapes)
    named = tuple((name, _why_left(schema.field(name))) for name in left)
    return TableSource(place, roles, kept, named, columns, files, kind)


def _shapes(place: DataPlace, kind: str, entries: list[Entry]) -> list[tuple[Entry, Shape]]:
    if kind == "mds":
        return mds_shapes(place, entries)
    shape = line_shape if kind == "lines" else arrow_shape
    return [(entry, shape(place, entry)) for entry in entries]


def _schema(kind: str, shapes: list[tuple[Entry, Shape]]) -> pa.Schema:
    """Return the columns of all files. Raise `BadInput` if a file's columns differ from the first one's, except for tables that people
    write."""
    if kind == "lines":
        return lines_together(shape.columns for _, shape in shapes)
    schema = shapes[0][1].columns
    for entry, shape in shapes[1:]:
        if shape.columns != schema:
            schema = _together(schema, shape.columns, f"{entry.name} has other columns than {shapes[0][0].name}")
    return schema


def _roles(place: DataPlace, kind: str, schema: pa.Schema, given: NamedColumns) -> Roles:
    """Choose the columns by name. Raise `BadInput` if none is known to hold images, or captions that are needed."""
    if given.image and given.url:
        raise BadInput("--image-column and --url-column are both given", hint="give one of them")
    images = urls = paths = ""
    if kind == "lines":
        urls = "" if given.image else _chosen(schema, given.url, URLS, "URL", _is_text)
        paths = "" if urls else _chosen(schema, given.image, PATHS, "path", _is_text)
    else:
        known = (*IMAGES, *picture_columns(schema)[:1])
        images = "" if given.url else _chosen(schema, given.image, known, "image", _holds_image)
        urls = "" if images else _chosen(schema, given.url, URLS, "URL", _is_text)
    if not images and not urls and not paths:
        what = "URLs nor one of paths" if kind == "lines" else "images nor one of URLs"
        raise BadInput(
            f"{place.uri} has neither a column of {what}: {_list(schema.names)}",
            hint="name it with --image-column or --url-column",
        )
    said = _captions(schema, given.captions, needed=not given.uncaptioned)
    return Roles(images=images, urls=urls, paths=paths, captions=said)


def _why_left(column: pa.Field) -> str:
    return "too similar to another name" if _is_scalar(column.type) else column_type(column)


def _together(one: pa.Schema, other: pa.Schema, told: str) -> pa.Schema:
    """Return the columns of both, in any order, with numbers as the wider of two types. Raise `BadInput` if they differ otherwise."""
    apart = set(one.names) ^ set(other.names)
    try:
        if not apart:
            return pa.unify_schemas([one, other], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        apart = {name for name in one.names if one.field(name).type != other.field(name).type}
    raise BadInput(f"{told}: {_list(apart)}", hint="convert them separately, and train on both")


def _captions(schema: pa.Schema, given: tuple[str, ...], *, needed: bool) -> tuple[str, ...]:
    """Return the given columns, else the first whose name is known, else none if none is needed."""
    missing = [name for name in given if name not in schema.names]
    if missing:
        raise BadInput(f"there is no column {_list(missing)}", hint=f"the columns are {_list(schema.names)}")
    if given:
        return given
    by_lower = {name.lower(): name for name in reversed(schema.names)}
    found = next((by_lower[name] for name in CAPTIONS if name in by_lower), "")
    if not found and needed:
        raise BadInput(
            f"no column has a known name for captions: {_list(schema.names)}",
            hint="name it with --caption-column, or keep images without captions with --keep-uncaptioned",
        )
    return (found,) if found else ()


def _chosen(schema: pa.Schema, given: str, known: tuple[str, ...], what: str, fits: Any) -> str:
    if given:
        if given not in schema.names:
            raise BadInput(f"there is no column {given}", hint=f"the columns are {_list(schema.names)}")
        if not fits(schema.field(given).type):
            raise BadInput(
                f"column {given} holds no {what}: its type is {column_type(schema.field(given))}",
                hint="name another one",
            )
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


def _list(names: Any) -> str:
    return ", ".join(sorted(names) if isinstance(names, set) else names)
