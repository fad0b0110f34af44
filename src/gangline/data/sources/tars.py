"""webdataset tars: files that share a name up to its first dot are one sample: `000123.jpg`, `000123.txt`, `000123.json`."""

import json
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import SEEK_END
from itertools import groupby, islice
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa

from gangline.core.words import counted
from gangline.data.images.captions import BESIDE
from gangline.data.images.photos import SUFFIXES
from gangline.data.place import Entry, Place
from gangline.data.sources.columns import CAPTIONS, as_type, captions_in, captions_of, inferred, named_apart
from gangline.data.sources.item import Item, Shard, cut

TARS = (".tar", ".tar.gz", ".tgz")
SAMPLES = 256
TARS_LOOKED_AT = 16
BYTES_MAX = 2**28
BLOCK = 512
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TarSource:
    place: Place
    captions: tuple[str, ...]
    columns: pa.Schema
    samples_per_tar: int
    notes: tuple[str, ...] = ()
    kind: str = "tars"

    @property
    def asked(self) -> list[str]:
        return ["tars", *self.captions]

    def shards(self, entries: list[Entry], rows: int) -> list[Shard]:
        """Whole tars: they are read from the front."""
        return cut([entry.name for entry in entries], max(1, rows // max(1, self.samples_per_tar)))

    def read(self, shard: Shard) -> Iterator[Item]:
        for tar in shard.parts:
            with self.place.open(tar) as file:
                for sample in _samples(file):
                    yield self._item(tar, sample)

    def _item(self, tar: str, sample: "Sample") -> Item:
        name = f"{tar}/{sample.key}"
        if sample.problem:
            return Item(name=name, problem=sample.problem)
        image = next((sample.files[ending] for ending in SUFFIXES if ending in sample.files), None)
        if image is None:
            return Item(name=name, problem="no image in the sample")
        said = tuple(
            text for ending in BESIDE if ending in sample.files for text in captions_in(sample.files[ending], name)
        )
        details = _json(sample)
        own = {named_apart(name): value for name, value in details.items()}
        return Item(
            name=name,
            image=image,
            captions=said or tuple(text for key in self.captions for text in captions_of(details.get(key))),
            columns={field.name: as_type(own.get(field.name), field.type) for field in self.columns},
        )


@dataclass(frozen=True, slots=True)
class Sample:
    key: str
    files: dict[str, bytes]
    problem: str = ""


def tar_source(place: Place, entries: list[Entry], captions: tuple[str, ...]) -> TarSource:
    """Its columns, and how many samples a tar has, are those of the first one that has any."""
    wanted = captions or CAPTIONS
    tar, samples = _first_with_samples(place, entries)
    with place.open(tar.name) as file:
        seen, at = _bytes_of(file, SAMPLES)
    there = dict.fromkeys(name for sample in samples for name in sample)
    missing = ", ".join(name for name in captions if name not in there)
    found = f"they have {', '.join(there)}" if there else "they have no columns"
    notes = (
        (f"the first {counted(len(samples), 'sample')} of {tar.name} have no {missing}; {found}",) if missing else ()
    )
    return TarSource(place, wanted, inferred(samples, wanted), max(1, seen * tar.bytes // max(at, 1)), notes)


def _first_with_samples(place: Place, entries: list[Entry]) -> tuple[Entry, list[dict[str, Any]]]:
    for tar in entries[:TARS_LOOKED_AT]:
        with place.open(tar.name) as file:
            found = [_json(sample) for sample in islice(_samples(file), SAMPLES) if not sample.problem]
        if found:
            return tar, found
    return entries[0], []


def _samples(file: BinaryIO) -> Iterator[Sample]:
    """A tar that breaks off gives what it has, and a problem at its end."""
    end = 0
    try:
        with tarfile.open(fileobj=file, mode="r|*") as tar:
            for key, members in groupby((member for member in tar if _counts(member)), key=_key):
                found: dict[str, bytes] = {}
                for member in members:
                    if _ending(member) in found:  # another sample of the same name
                        yield Sample(key, found)
                        found = {}
                    found[_ending(member)] = _content(tar, member)
                    end = member.offset_data + member.size
                yield Sample(key, found)
        whole = file.seek(0, SEEK_END) >= -(-end // BLOCK) * BLOCK + BLOCK or _is_packed(file)
    except (tarfile.TarError, EOFError, zlib.error):
        whole = False
    if not whole:
        yield Sample("", {}, "a tar that breaks off")


def _counts(member: tarfile.TarInfo) -> bool:
    """macOS lays a `._name` before each file."""
    return member.isfile() and not PurePosixPath(member.name).name.startswith(".")


def _is_packed(file: BinaryIO) -> bool:
    """Of a packed tar the length says nothing; it has an end of its own, which was found."""
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


def _json(sample: Sample) -> dict[str, Any]:
    try:
        value = json.loads(sample.files.get(".json", b"{}"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _bytes_of(file: BinaryIO, samples: int) -> tuple[int, int]:
    """How many of the first `samples` there are, and how far into the tar they reach."""
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
