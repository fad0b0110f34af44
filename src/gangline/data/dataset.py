"""A data set: a Lance table of images and their captions, in a folder or a bucket, with metadata.

`Info` is in the table's schema metadata under `gangline`; computed columns state their origin in their own metadata
(gangline.data.columns). A version of a table never changes, so a run that pins one sees the same rows for as long as the version exists.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import lance

from gangline.core.errors import BadInput
from gangline.data.columns import KEY, TEXTS, Computed, LatentsColumn, TextsColumn, known_of
from gangline.data.place import DataPlace, errors_of, explained

FINISHED = "gangline.finished"
ENDING = ".lance"
DATA = "data"
VERSIONS = "_versions"
NEWEST = 2**64 - 1
"""A version's file is named by the difference to this number, so that the newest one is listed first."""
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """The metadata of a data set. `id` is unique to each conversion, `plan` is the digest of what was requested; `image_bytes` is the mean
    size of an image.

    `left_out` counts samples by the reason why they were skipped, `dropped` counts fields of the kept samples that no column could hold.
    """

    id: str
    plan: str
    rows: int
    image_bytes: int
    source: str
    where: tuple[str, ...] = ()
    unique: str = ""
    left_out: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    format: int = FORMAT

    @classmethod
    def of(cls, table: lance.LanceDataset) -> "Info | None":
        """Return the table's metadata, or None if Gangline did not write it."""
        stored = (table.schema.metadata or {}).get(KEY)
        if stored is None:
            return None
        try:
            value: dict[str, Any] = json.loads(stored)
        except ValueError:
            return None
        value["where"] = tuple(value["where"])
        known = {field.name for field in fields(cls)}  # a newer format may have more fields
        return cls(**{name: value[name] for name in known & value.keys()})

    def to_metadata(self) -> dict[bytes, bytes]:
        return {KEY: json.dumps(asdict(self)).encode()}


@dataclass(frozen=True, slots=True)
class DataSet:
    """One version of a data set, opened."""

    place: DataPlace
    table: lance.LanceDataset
    info: Info

    @property
    def version(self) -> int:
        return int(self.table.version)

    @property
    def rows(self) -> int:
        return self.table.count_rows()

    def files(self) -> list[str]:
        """Return all files that this version is read from, as paths below its place."""
        with errors_of(self.place):
            fragments = [fragment.metadata for fragment in self.table.get_fragments()]
            listed = {entry.name for entry in self.place.below(VERSIONS).entries()}
        manifests = [f"{name}.manifest" for name in (f"{NEWEST - self.version:020d}", f"{self.version}")]
        return sorted(
            {
                *(f"{DATA}/{file.path}" for fragment in fragments for file in fragment.files),
                *(one.deletion_file.path(one.id) for one in fragments if one.deletion_file is not None),
                *(f"{VERSIONS}/{name}" for name in manifests if name in listed),
            }
        )

    def computed(self) -> dict[str, Computed]:
        """Return how each computed column was made, by name."""
        return {column.name: known for column in self.table.schema if (known := known_of(column)) is not None}

    def latents(self, column: str) -> LatentsColumn:
        """Return how a column of latents was made. Raise `BadInput` if there is none of this name."""
        there = {name: known for name, known in self.computed().items() if isinstance(known, LatentsColumn)}
        if column not in there:
            raise BadInput(
                f"{self.place.uri} has no latents {column}; it has {', '.join(there) or 'none'}",
                hint="`gangline data encode` makes them",
            )
        return there[column]

    def texts(self) -> TextsColumn:
        """Return how the caption embeddings were made. Raise `BadInput` if there are none."""
        known = self.computed().get(TEXTS)
        if not isinstance(known, TextsColumn):
            raise BadInput(
                f"{self.place.uri} has no embeddings of its captions", hint="`gangline data encode --texts` makes them"
            )
        return known


def open_data_set(place: DataPlace, *, version: int | None = None, id: str = "") -> DataSet:
    """Open the newest version of a data set, or `version`. Raise `BadInput` if it is not a data set, unfinished, or does not have this
    `id`."""
    place.check_name()
    with errors_of(place):
        try:
            table = lance.dataset(place.uri, version=version, storage_options=place.lance_options)
        except ValueError as error:
            if "not found" not in str(error).lower():
                if explained(place, error):
                    raise
                said = str(error).partition(", /")[0]
                raise BadInput(f"{place.uri} is damaged: {said}", hint="create it again") from None
            raise BadInput(
                f"there is no data set at {place.uri}" + (f" with version {version}" if version else ""),
                hint="`gangline data ls FOLDER` shows what is where",
            ) from None
    info = Info.of(table)
    if info is None:
        raise BadInput(
            f"{place.uri} is a Lance table, but not a data set of Gangline", hint="`gangline data convert` makes one"
        )
    if info.format > FORMAT:
        raise BadInput(f"{place.uri} was made by a newer Gangline", hint="update this Gangline")
    if info.unique and FINISHED not in table.metadata:
        raise BadInput(f"the conversion to {place.uri} is not finished", hint="repeat the same `gangline data convert`")
    if id and info.id != id:
        raise BadInput(
            f"{place.uri} is another data set than before: it was created again",
            hint="submit a new job to train on the new one",
        )
    return DataSet(place, table, info)


def there(place: DataPlace) -> DataSet | None:
    """Return the data set at `place`, even if its conversion is not finished, or None."""
    try:
        with errors_of(place):
            table = lance.dataset(place.uri, storage_options=place.lance_options)
    except (BadInput, ValueError):
        return None
    info = Info.of(table)
    return DataSet(place, table, info) if info else None


def is_data(name: str) -> bool:
    """Return whether a file at a data set's place is Lance's data, complete or cut off."""
    folder, _, rest = name.partition("/")
    return folder == DATA and (rest.startswith(".tmp") or rest.endswith(ENDING))


def data_lengths(place: DataPlace) -> dict[str, int]:
    """Return the size in bytes of Lance's files, by the names that fragments use."""
    return {entry.name: entry.bytes for entry in place.below(DATA).entries()}


def is_fragment_complete(fragment: dict[str, Any], lengths: dict[str, int]) -> bool:
    """Return whether all data of a fragment is there: after a power loss its note may exist without it."""
    return all(lengths.get(file["path"]) == file["file_size_bytes"] for file in fragment["files"])


def sweep(place: DataPlace) -> None:
    """Delete data files that no version names: writers that were interrupted left them."""
    made = there(place)
    with errors_of(place):
        versions = [made.table.checkout_version(one["version"]) for one in made.table.versions()] if made else []
        fragments = [fragment for version in versions for fragment in version.get_fragments()]
        named = {f"{DATA}/{file.path}" for fragment in fragments for file in fragment.data_files()}
    place.delete([entry.name for entry in place.entries() if is_data(entry.name) and entry.name not in named])


def data_sets(place: DataPlace) -> list[DataSet]:
    """Return the data set at the place itself, or those directly below it in order of name."""
    names = place.folders()
    places = [place] if "_versions" in names else [place.below(name) for name in names]
    return [found for one in places if (found := there(one))]
