"""Webdataset tars: files that share a name up to its first dot are one sample: `000123.jpg`, `000123.txt`, `000123.json`.

Of several files of one kind the one with the plain ending counts (`.jpg` before `.seg.png`), or the only one there is; else the user must
give a pattern.
"""

import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from io import SEEK_END
from itertools import groupby, islice
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa

from gangline.core.datasets.roles import BESIDE, SUFFIXES
from gangline.core.errors import BadInput
from gangline.core.words import counted
from gangline.data.place import DataPlace, Entry
from gangline.data.sources.columns import CAPTIONS, NO_OBJECT, Split, captions_in, captions_of, inferred, object_in
from gangline.data.sources.item import NO_LATENTS, Item, Shard, cut_into_shards

TARS = (".tar", ".tar.gz", ".tgz")
SAMPLES = 256
TARS_LOOKED_AT = 16
BYTES_MAX = 2**28
BLOCK = 512
JSON = ".json"
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Members:
    """Patterns for the names of a sample's image and caption; empty means detected."""

    image: str = ""
    caption: str = ""


@dataclass(frozen=True, slots=True)
class TarSource:
    place: DataPlace
    captions: tuple[str, ...]
    members: Members
    columns: pa.Schema
    samples_per_tar: int
    notes: tuple[str, ...] = ()
    latents: pa.Schema = NO_LATENTS
    kind: str = "tars"

    @property
    def asked(self) -> list[str]:
        named = ("image", self.members.image), ("caption", self.members.caption)
        return ["tars", *(f"{what}: {pattern}" for what, pattern in named if pattern), *self.captions]

    def shards(self, entries: list[Entry], rows: int) -> list[Shard]:
        """Return shards of whole tars, because a tar can only be read from its start."""
        return cut_into_shards([entry.name for entry in entries], max(1, rows // max(1, self.samples_per_tar)))

    def read(self, shard: Shard) -> Iterator[Item]:
        split = Split(self.columns, self.captions)
        for tar in shard.parts:
            with self.place.open(tar) as file:
                for sample in _samples(file):
                    yield self._item(tar, sample, split)

    def _item(self, tar: str, sample: "Sample", split: Split) -> Item:
        name = f"{tar}/{sample.key}"
        if sample.problem:
            return Item(name=name, problem=sample.problem)
        images = sample.of_kind(SUFFIXES, self.members.image)
        if not images:
            return Item(name=name, problem="no image in the sample")
        if len(images) > 1:
            return Item(name=name, problem="several images in the sample (--image-member)")
        details = _details(sample)
        columns, dropped = split(details or {})
        return Item(
            name=name,
            image=images[0],
            captions=self._captions(sample, details or {}),
            columns=columns,
            dropped=dropped if details is not None else (*dropped, NO_OBJECT),
        )

    def _captions(self, sample: "Sample", details: dict[str, Any]) -> tuple[str, ...]:
        texts = sample.of_kind(("",) if self.members.caption else BESIDE, self.members.caption)
        said = tuple(caption for text in texts for caption in captions_in(text, sample.key))
        return said or tuple(text for key in self.captions for text in captions_of(details.get(key)))


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample. `files` are keyed by all that follows the first dot of their names, in lower case and with that dot."""

    key: str
    files: dict[str, bytes] = field(default_factory=dict)
    problem: str = ""

    def names(self) -> dict[str, str]:
        """Return the names of its files by their endings."""
        own = PurePosixPath(self.key).name
        return {ending: f"{own}{ending}" for ending in self.files}

    def of_kind(self, endings: tuple[str, ...], pattern: str) -> list[bytes]:
        """Return the files with these endings whose names match the pattern; without a pattern those with a plain ending, or else all."""
        found = [ending for ending in self.files if ending.endswith(endings)]
        if pattern:
            names = self.names()
            found = [ending for ending in found if fnmatchcase(names[ending].lower(), pattern.lower())]
        plain = [] if pattern else [ending for ending in endings if ending in found]
        chosen = plain[:1] if endings == SUFFIXES else plain
        return [self.files[ending] for ending in chosen or found]


def tar_source(
    place: DataPlace, entries: list[Entry], captions: tuple[str, ...], members: Members = Members()
) -> TarSource:
    """Return the source, with the columns and the samples per tar of the first tar that has samples. Raise `BadInput` if no file matches a
    pattern."""
    wanted = captions or CAPTIONS
    tar, first = _first_with_samples(place, entries)
    _check_members(tar, first, members)
    samples = [_details(sample) or {} for sample in first]
    with place.open(tar.name) as file:
        seen, at = _bytes_of(file, SAMPLES)
    there = dict.fromkeys(name for sample in samples for name in sample)
    missing = ", ".join(name for name in captions if name not in there)
    found = f"they have {', '.join(there)}" if there else "they have no columns"
    notes = (
        (f"the first {counted(len(samples), 'sample')} of {tar.name} have no {missing}; {found}",) if missing else ()
    )
    return TarSource(place, wanted, members, inferred(samples, wanted), max(1, seen * tar.bytes // max(at, 1)), notes)


def _first_with_samples(place: DataPlace, entries: list[Entry]) -> tuple[Entry, list[Sample]]:
    for tar in entries[:TARS_LOOKED_AT]:
        with place.open(tar.name) as file:
            found = [_details_alone(sample) for sample in islice(_samples(file), SAMPLES) if not sample.problem]
        if found:
            return tar, found
    return entries[0], []


def _details_alone(sample: Sample) -> Sample:
    """Return the sample without the content of other files, which may be large."""
    return replace(sample, files={name: held if name.endswith(JSON) else b"" for name, held in sample.files.items()})


def _check_members(tar: Entry, first: list[Sample], members: Members) -> None:
    """Raise `BadInput` if a pattern matches no file of these samples."""
    for pattern, endings in ((members.image, SUFFIXES), (members.caption, ("",))):
        if pattern and first and not any(sample.of_kind(endings, pattern) for sample in first):
            there = ", ".join(dict.fromkeys(name for sample in first[:1] for name in sample.names().values()))
            raise BadInput(
                f"no file of the {counted(len(first), 'sample')} at the start of {tar.name} matches {pattern}",
                hint=f"the first sample has {there}",
            )


def _details(sample: Sample) -> dict[str, Any] | None:
    """Return the object in the sample's .json file, or None if it is unusable or there are several."""
    found = sample.of_kind((JSON,), "")
    if not found:
        return {}
    return object_in(found[0]) if len(found) == 1 else None


def _samples(file: BinaryIO) -> Iterator[Sample]:
    """Yield the samples of a tar. A truncated tar yields what it has, and then a problem."""
    end = 0
    try:
        with tarfile.open(fileobj=file, mode="r|*") as tar:
            for key, members in groupby((member for member in tar if _counts(member)), key=_key):
                found: dict[str, bytes] = {}
                for member in members:
                    if _ending(member) in found:  # the next sample has the same name
                        yield Sample(key, found)
                        found = {}
                    found[_ending(member)] = _content(tar, member)
                    end = member.offset_data + member.size
                yield Sample(key, found)
        whole = file.seek(0, SEEK_END) >= -(-end // BLOCK) * BLOCK + BLOCK or _is_packed(file)
    except (tarfile.TarError, EOFError, zlib.error):
        whole = False
    if not whole:
        yield Sample("", {}, "a tar that ends early")


def _counts(member: tarfile.TarInfo) -> bool:
    """Return whether a member is a visible file: macOS adds a `._name` before each file."""
    return member.isfile() and not PurePosixPath(member.name).name.startswith(".")


def _is_packed(file: BinaryIO) -> bool:
    """Return whether the tar is compressed. Its length then does not show whether it is complete, but gzip's end marker was found."""
    file.seek(0)
    return file.read(len(GZIP)) == GZIP


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = tar.extractfile(member)
    return content.read(BYTES_MAX) if content else b""


def _key(member: tarfile.TarInfo) -> str:
    path = PurePosixPath(member.name)
    return (path.parent / path.name.partition(".")[0]).as_posix()


def _ending(member: tarfile.TarInfo) -> str:
    return "." + PurePosixPath(member.name).name.partition(".")[2].lower()


def _bytes_of(file: BinaryIO, samples: int) -> tuple[int, int]:
    """Return how many samples start near the front of a tar, at most `samples` + 1, and the bytes that they extend to."""
    keys: list[str] = []
    at = 0
    try:
        with tarfile.open(fileobj=file, mode="r|*") as tar:
            for member in tar:
                keys += [_key(member)] if not keys or keys[-1] != _key(member) else []
                at = member.offset_data + member.size
                if len(keys) > samples:
                    break
    except (tarfile.TarError, EOFError, zlib.error):
        pass
    return len(keys), at
