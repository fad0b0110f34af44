"""The interface of all sources."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from gangline.data.place import DataPlace, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A sample before its image is decoded: the image's bytes, or the `file` below the source's place or at `s3://`, or the `url` that
    holds them.

    `name` states its origin. `dropped` names fields that `columns` cannot hold, each with the reason. If `problem` is set, a phrase that is
    counted, there is no sample.
    """

    name: str
    captions: tuple[str, ...] = ()
    image: bytes | None = None
    file: str = ""
    url: str = ""
    columns: dict[str, Any] = field(default_factory=dict)
    latents: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Shard:
    """A piece of the work; only its source knows what `parts` are."""

    number: int
    parts: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.number:06d}"


class Source(Protocol):
    """A source of samples. `columns` are its columns that are kept, `latents` those of images' latents; `notes` are shown to the user."""

    @property
    def kind(self) -> str: ...

    @property
    def place(self) -> DataPlace: ...

    @property
    def columns(self) -> pa.Schema: ...

    @property
    def latents(self) -> pa.Schema: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def asked(self) -> list[str]:
        """All options, besides `columns`, that decide what is read from its files: with other caption columns it is another source."""
        ...

    def shards(self, entries: list[Entry], rows: int) -> list[Shard]:
        """Return shards of about `rows` samples; `entries` are the source's files. They are not kept, because the source is sent with each
        shard."""
        ...

    def read(self, shard: Shard) -> Iterator[Item]: ...


BUCKET = "s3://"
NO_LATENTS = pa.schema([])


def cut_into_shards(parts: list[Any], size: int) -> list[Shard]:
    """Return shards of `size` parts; the last may have fewer."""
    return [
        Shard(number, tuple(parts[first : first + size])) for number, first in enumerate(range(0, len(parts), size))
    ]
