"""The values of a conversion: whatever decides what the data set will be, and the results of its pieces."""

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
    """Everything that decides what the data set will be. A piece has about `rows` samples."""

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
        """Return a digest of the settings and of the source's files: two conversions have the same one only if both are equal."""
        asked = asdict(replace(self, source=None, target=None))  # pyright: ignore[reportArgumentType]
        of = [self.source.place.uri, self.source.columns.to_string(), self.source.asked]
        return digest([asked, of, [(printable_name(entry.name), entry.bytes, entry.mark) for entry in entries]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedPiece:
    """The result of one piece of the conversion with this `plan`.

    `left_out` counts skipped samples by reason, and `examples` names some of them. `dropped` counts fields of kept samples that no column
    can hold.
    """

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
    """Pieces and samples done so far, with those of earlier attempts counted separately, so that a rate counts only this attempt's."""

    shards: int
    shards_done: int
    shards_before: int
    seen: int
    seen_before: int
    rows: int
    left_out: dict[str, int]


TellProgress = Callable[[ConversionProgress], None]


def left_out_counts(done: Iterable[ConvertedPiece]) -> dict[str, int]:
    """Return how many samples were skipped for each reason, the most frequent first."""
    return dict(sum((Counter(one.left_out) for one in done), Counter()).most_common())


def dropped(done: Iterable[ConvertedPiece]) -> dict[str, int]:
    """Return how often each field was dropped, the most frequent first."""
    return bounded(sum((Counter(one.dropped) for one in done), Counter()))


def bounded(counts: Counter[str]) -> dict[str, int]:
    """Return the most frequent fields, and all others as one entry: a source may have any number of fields."""
    named = Counter({name: count for name, count in counts.items() if name != OTHERS})
    first = dict(named.most_common(DROPPED_MAX - 1))
    others = counts.total() - sum(first.values())
    return first | ({OTHERS: others} if others else {})
