"""Make one piece of a data set: read its rows from the source, count which are skipped and why, and write its note."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from gangline.data.images.pixels import Unreadable
from gangline.data.making.conversion import Conversion, ConvertedPiece, bounded
from gangline.data.making.fetch import Fetching, fetched
from gangline.data.making.row import SEEN, Storing, image_row
from gangline.data.place import errors_of
from gangline.data.sources import Item, Shard
from gangline.data.where import Where

BATCH = 256
EXAMPLES_MAX = 3
NOT_WANTED = "excluded by --where"
UNCAPTIONED = "no caption"


def convert_shard(conversion: Conversion, plan: str, how: Fetching, shard: Shard) -> ConvertedPiece:
    """Make one piece, then write its note."""
    tally = Tally()
    with errors_of(conversion.target):
        batches = _batches(conversion, how, shard, tally)
        first = next(batches, None)
        fragments: list[FragmentMetadata] = []
        if first is not None:
            schema = conversion.schema
            reader = pa.RecordBatchReader.from_batches(schema, _chained(first, batches))
            fragments = write_fragments(
                reader, conversion.target.uri, schema, storage_options=conversion.target.lance_options
            )
    done = ConvertedPiece(
        plan=plan,
        shard=shard.name,
        rows=tally.rows,
        seen=tally.seen,
        image_bytes=tally.image_bytes,
        left_out=dict(tally.left_out),
        examples=tally.examples,
        fragments=[fragment.to_json() for fragment in fragments],
        dropped=bounded(tally.dropped),
    )
    conversion.work.write(f"{shard.name}.json", json.dumps(asdict(done)).encode())
    return done


@dataclass(slots=True)
class Tally:
    seen: int = 0
    rows: int = 0
    image_bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, item: Item, because: str) -> None:
        self.left_out[because] += 1
        names = self.examples.setdefault(because, [])
        if len(names) < EXAMPLES_MAX:
            names.append(item.url or item.name)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _batches(conversion: Conversion, how: Fetching, shard: Shard, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece. Conditions on the source's columns apply before the download, all others before storing."""
    seen = pa.schema([*SEEN, *conversion.source.columns])
    early, late = conversion.where.split(conversion.source.columns, seen)
    items = _wanted(conversion.source.read(shard), early, conversion, tally)
    found = _looked_at(fetched(items, conversion.source.place, how), conversion.storing, tally)
    while batch := list(islice(found, BATCH)):
        items_of, rows = [item for item, _ in batch], [row for _, row in batch]
        kept = late.kept(rows, seen)
        for item, keep in zip(items_of, kept, strict=True):
            if keep:
                tally.dropped.update(item.dropped)
            else:
                tally.leave_out(item, NOT_WANTED)
        chosen = [row for row, keep in zip(rows, kept, strict=True) if keep]
        tally.rows += len(chosen)
        tally.image_bytes += sum(len(row["image"]) for row in chosen)
        if chosen:
            yield pa.RecordBatch.from_pylist(chosen, schema=conversion.schema)


def _wanted(items: Iterator[Item], early: Where, conversion: Conversion, tally: Tally) -> Iterator[Item]:
    while batch := list(islice(items, BATCH)):
        tally.seen += len(batch)
        whole = [item for item in batch if not item.problem]
        for item in batch:
            if item.problem:
                tally.leave_out(item, item.problem)
        kept = early.kept([item.columns for item in whole], conversion.source.columns)
        for item, keep in zip(whole, kept, strict=True):
            if not keep:
                tally.leave_out(item, NOT_WANTED)
            elif not item.captions and not conversion.keep_uncaptioned:
                tally.leave_out(item, UNCAPTIONED)
            else:
                yield item


def _looked_at(items: Iterator[Item], storing: Storing, tally: Tally) -> Iterator[tuple[Item, dict[str, Any]]]:
    for item in items:
        if item.problem:
            tally.leave_out(item, item.problem)
            continue
        try:
            row = image_row(item, storing)
        except Unreadable as error:
            tally.leave_out(item, error.kind)
        else:
            yield replace(item, image=None), row
