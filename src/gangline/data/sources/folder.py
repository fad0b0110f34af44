"""A folder of images at any depth, with their captions: in a .txt, .caption or .json file beside each (as img2dataset writes them), in a
line of metadata.jsonl, metadata.csv or metadata.parquet in its folder or above (Hugging Face's `imagefolder`), or in the name of a folder
in kohya's style, `10_sks dog`. If each class has a folder, the folder's name is the image's label."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gangline.core.datasets.roles import BESIDE, SUFFIXES, is_caption, words_of_folder
from gangline.core.datasets.sidecars import sidecar_files
from gangline.core.errors import BadInput
from gangline.core.words import counted
from gangline.data.images.captions import BYTES_MAX, text_of
from gangline.data.links import refuse_link_out
from gangline.data.place import DataPlace, Entry
from gangline.data.sources.columns import CAPTIONS, NO_OBJECT, Split, captions_in, captions_of, inferred, object_in
from gangline.data.sources.item import NO_LATENTS, Item, Shard, cut_into_shards
from gangline.data.sources.table_files import damage_of

METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
NAME = "file_name"
LABEL = "label"
DETAILS = ".json"
SAMPLES = 256

Lines = dict[str, dict[str, Any]]


class Cells(dict[str, Any]):
    """A line of a CSV file: texts, and None for empty cells."""


def is_image(entry: Entry) -> bool:
    return entry.name.lower().endswith(SUFFIXES) and not PurePosixPath(entry.name).name.startswith(".")


def says_something(entry: Entry) -> bool:
    """Return whether a file has captions or metadata of images. Other files do not belong to the source, such as a data set that is made
    there."""
    path = PurePosixPath(entry.name)
    return is_caption(path) or path.name in METADATA


def about_images(entries: list[Entry]) -> list[Entry]:
    """Return the images, and the files that describe them."""
    images = [entry.name for entry in entries if is_image(entry)]
    details = set(_details(images, entries).values())
    return [entry for entry in entries if is_image(entry) or says_something(entry) or entry.name in details]


def _details(images: list[str], entries: list[Entry]) -> dict[str, str]:
    """Return the .json file of each image that has one."""
    return sidecar_files(images, (entry.name for entry in entries if entry.name.lower().endswith(DETAILS)))


@dataclass(frozen=True, slots=True)
class FolderSource:
    place: DataPlace
    captions: tuple[str, ...]
    columns: pa.Schema
    metadata: tuple[str, ...]
    labelled: bool = False
    notes: tuple[str, ...] = ()
    latents: pa.Schema = NO_LATENTS
    kind: str = "folder"

    @property
    def asked(self) -> list[str]:
        return ["folder", *self.captions]

    def shards(self, entries: list[Entry], rows: int) -> list[Shard]:
        """Cut into shards of images, each with its caption's file and its .json file, if there are any."""
        images = [entry.name for entry in entries if is_image(entry)]
        files = sidecar_files(images, (entry.name for entry in entries if entry.name.lower().endswith(BESIDE)))
        details = _details(images, entries)
        return cut_into_shards([(image, files.get(image, ""), details.get(image, "")) for image in images], rows)

    def read(self, shard: Shard) -> Iterator[Item]:
        lines, split = read_metadata(self.place, self.metadata), Split(self.columns, (*self.captions, NAME))
        for image, file, details in shard.parts:
            own = _details_in(self.place, details)
            line = _label(image) if self.labelled else lines.get(image, {}) | (own or {})
            columns, dropped = split(line)
            dropped = dropped if own is not None else (*dropped, NO_OBJECT)
            said = self._beside(file) or self._in_line(line) or captions_of(words_of_folder(image))
            yield Item(name=image, file=image, captions=said, columns=columns, dropped=dropped)

    def _beside(self, file: str) -> tuple[str, ...]:
        return captions_in(_text_of(self.place, file), file) if file else ()

    def _in_line(self, line: dict[str, Any]) -> tuple[str, ...]:
        return tuple(text for name in self.captions for text in captions_of(line.get(name)))


def folder_source(
    place: DataPlace, entries: list[Entry], captions: tuple[str, ...], passed_over: list[str] | None = None
) -> FolderSource:
    """Return the source. `passed_over` are tables beside the images, which the user gets a note about."""
    names = {entry.name for entry in entries}
    metadata = tuple(sorted(name for name in names if PurePosixPath(name).name in METADATA))
    images = [entry.name for entry in entries if is_image(entry)]
    details = _details(images, entries)
    labels = {} if metadata or details else _labels(images)
    lines = labels or read_metadata(place, metadata)
    first = [_details_in(place, file) or {} for file in islice(details.values(), SAMPLES)]
    if captions:
        _check_there(place, captions, [*lines.values(), *first])
    wanted = captions or CAPTIONS
    sample = [*map(_typed, islice(lines.values(), SAMPLES)), *first]
    columns = inferred(sample, (*wanted, NAME))
    missing = sorted(lines.keys() - names)
    notes = []
    if missing:
        notes.append(f"there is no image for {counted(len(missing), 'line')} of metadata, such as {missing[0]}")
    if passed_over:
        notes.append(f"{', '.join(passed_over[:3])}: not read; give the file alone to read its images and captions")
    return FolderSource(place, wanted, columns, metadata, bool(labels), tuple(notes))


def _labels(images: list[str]) -> Lines:
    """Return the label of each image if all images are at one depth in several folders, like ImageNet's classes."""
    folders = {PurePosixPath(image).parent for image in images}
    by_class = len(folders) > 1 and len({len(folder.parts) for folder in folders}) == 1
    return {image: _label(image) for image in images} if by_class else {}


def _label(image: str) -> dict[str, Any]:
    return {LABEL: PurePosixPath(image).parent.name}


def _check_there(place: DataPlace, captions: tuple[str, ...], lines: list[dict[str, Any]]) -> None:
    """Raise `BadInput` if a caption column is given that no line has."""
    there = dict.fromkeys(name for line in lines for name in line if name != NAME)
    missing = [name for name in captions if name not in there]
    if missing:
        hint = f"the columns are {', '.join(there)}" if there else f"columns come from {' or '.join(METADATA)}"
        raise BadInput(f"{place.uri} has no column {', '.join(missing)}", hint=hint)


def _details_in(place: DataPlace, file: str) -> dict[str, Any] | None:
    return object_in(_text_of(place, file)) if file else {}


@cache
def read_metadata(place: DataPlace, files: tuple[str, ...]) -> Lines:
    """Return the fields of each image that these files describe, by its path below the place. Raise `BadInput` that names a wrong line."""
    found: Lines = {}
    named: dict[str, str] = {}
    for file in files:
        for number, row in enumerate(_lines(place, file), 1):
            name = row.get(NAME)
            if not isinstance(name, str) or not name:
                raise BadInput(
                    f"line {number} of {file} does not name an image",
                    hint='each needs a "file_name", relative to the folder of the file',
                )
            image, here = (PurePosixPath(file).parent / name).as_posix(), f"line {number} of {file}"
            if image in found:
                raise BadInput(f"{named[image]} and {here} are both about {image}", hint="keep one of them")
            found[image], named[image] = row, here
    return found


def _lines(place: DataPlace, file: str) -> Iterator[dict[str, Any]]:
    content = _text_of(place, file)
    if file.endswith(".parquet"):
        with damage_of(file):
            return iter(pq.read_table(io.BytesIO(content)).to_pylist())
    text = text_of(content, file)
    return _cells(text, file) if file.endswith(".csv") else _json_lines(text, file)


def _text_of(place: DataPlace, file: str) -> bytes:
    if not place.is_remote:
        refuse_link_out(Path(place.uri), file, linked_folders=True)
    return place.read(file)


def _json_lines(text: str, file: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadInput(
                    f"line {number} of {file} is not JSON: {error}", hint="write an object on each line"
                ) from None
            if not isinstance(row, dict):
                raise BadInput(
                    f"line {number} of {file} is not an object",
                    hint='write it like {"file_name": "a.jpg", "text": "…"}',
                )
            yield row


def _cells(text: str, file: str) -> Iterator[Cells]:
    csv.field_size_limit(BYTES_MAX)
    try:
        for row in csv.DictReader(io.StringIO(text, newline="")):
            yield Cells({name: value or None for name, value in row.items() if name is not None})
    except csv.Error as error:
        raise BadInput(f"{file} is not a table: {error}", hint="save it as CSV again") from None


def _typed(line: dict[str, Any]) -> dict[str, Any]:
    """Parse cells of a CSV file that look like numbers. A column that has other cells too still becomes text, by `inferred`."""
    return {name: _number(value) for name, value in line.items()} if isinstance(line, Cells) else line


def _number(text: Any) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text
