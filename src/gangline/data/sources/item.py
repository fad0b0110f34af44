"""What every source gives."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from gangline.data.place import DataPlace, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A sample before anybody looked at it: its image's bytes, or the `file` below the source's place, or `s3://` anywhere, or the `url`
    that holds them.

    `name` says where it comes from. `dropped` names what its source says of it and `columns` cannot hold, each with the reason. With a
    `problem`, a few words that are counted, there is no sample at all.
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
    """A piece of the work; what `parts` are, its source knows."""

    number: int
    parts: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.number:06d}"


class Source(Protocol):
    """`columns` are those of its own that are kept, `latents` what it has of its images' latents; `notes` are told to the user."""

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
        """All that decides what is read of its files, besides `columns`: captions of another column are of another source."""
        ...

    def shards(self, entries: list[Entry], rows: int) -> list[Shard]:
        """Of about `rows` samples each; `entries` are the files that the source was found to be. It does not keep them: a source is
        sent with each shard."""
        ...

    def read(self, shard: Shard) -> Iterator[Item]: ...


BUCKET = "s3://"
NO_LATENTS = pa.schema([])


def cut_into_shards(parts: list[Any], size: int) -> list[Shard]:
    """`size` parts to a shard."""
    return [
        Shard(number, tuple(parts[first : first + size])) for number, first in enumerate(range(0, len(parts), size))
    ]
