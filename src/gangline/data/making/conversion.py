"""All that decides what a data set will be, and what came of each of its pieces."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from gangline.core.canonical import digest
from gangline.data.making.row import OWN, Storing
from gangline.data.place import DataPlace, Entry, printable_name
from gangline.data.sources import Source
from gangline.data.where import Where

DROPPED_MAX = 100
OTHERS = "other fields"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """All that decides what the data set will be. `rows` is how many samples a piece has, about."""

    source: Source
    target: DataPlace
    where: Where = field(default_factory=Where)
    unique: str = ""
    storing: Storing = field(default_factory=Storing)
    keep_uncaptioned: bool = False
    rows: int = 8192

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*OWN, *self.source.columns, *self.source.latents])

    @property
    def work(self) -> DataPlace:
        return self.target.beside(".converting")

    def digest(self, entries: list[Entry]) -> str:
        """Of what is asked for and of the files that it is asked of: another conversion has another one."""
        asked = asdict(replace(self, source=None, target=None))  # pyright: ignore[reportArgumentType]
        of = [self.source.place.uri, self.source.columns.to_string(), self.source.asked]
        return digest([asked, of, [(printable_name(entry.name), entry.bytes, entry.mark) for entry in entries]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedPiece:
    """What came of a piece of the conversion with this `plan`. `left_out` counts samples by the reason; `examples` has the names of
    some of them. `dropped` counts what the columns cannot hold of samples that were kept."""

    plan: str
    shard: str
    rows: int
    seen: int
    image_bytes: int
    left_out: dict[str, int]
    examples: dict[str, list[str]]
    fragments: list[dict[str, Any]] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionProgress:
    """Pieces and samples done so far, those of an earlier try apart: a rate counts what this one did."""

    shards: int
    shards_done: int
    shards_before: int
    seen: int
    seen_before: int
    rows: int
    left_out: dict[str, int]


TellProgress = Callable[[ConversionProgress], None]


def left_out_counts(done: Iterable[ConvertedPiece]) -> dict[str, int]:
    """How many for each reason, the most frequent first."""
    return dict(sum((Counter(one.left_out) for one in done), Counter()).most_common())


def dropped(done: Iterable[ConvertedPiece]) -> dict[str, int]:
    """How often each was, the most frequent first."""
    return bounded(sum((Counter(one.dropped) for one in done), Counter()))


def bounded(counts: Counter[str]) -> dict[str, int]:
    """The most frequent ones, and the rest as one: a source may have any number of names."""
    named = Counter({name: count for name, count in counts.items() if name != OTHERS})
    first = dict(named.most_common(DROPPED_MAX - 1))
    others = counts.total() - sum(first.values())
    return first | ({OTHERS: others} if others else {})
