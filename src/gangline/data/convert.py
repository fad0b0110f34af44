"""Make a data set from what somebody has. Its pieces are made apart, by anybody and in any order; one commit makes them a data set.

What is done stays done: beside the data set that is to be lies a folder `NAME.converting` with a note for each finished piece. Said
again, a conversion makes what is missing. A piece is a function of the source, so no sample is lost and none comes twice, wherever
it was cut off: what no note names is swept.
"""

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from gangline.core.canonical import digest
from gangline.core.errors import BadInput
from gangline.data.dataset import FINISHED, DataSet, Info, data_lengths, is_data, is_whole, open_data_set, sweep, there
from gangline.data.engine import Engine
from gangline.data.fetch import Fetching, fetched
from gangline.data.pixels import Unreadable
from gangline.data.place import Entry, Place, as_text, called, errors_of
from gangline.data.row import OWN, SEEN, Storing, row_of
from gangline.data.sources import Item, Shard, Source
from gangline.data.where import Where

PLAN = "plan.json"
BATCH = 256
EXAMPLES_MAX = 3
NOT_WANTED = "not wanted (--where)"
UNCAPTIONED = "no caption"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """All that decides what the data set will be. `rows` is how many samples a piece has, about."""

    source: Source
    target: Place
    where: Where = field(default_factory=Where)
    unique: str = ""
    storing: Storing = field(default_factory=Storing)
    keep_uncaptioned: bool = False
    rows: int = 8192

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*OWN, *self.source.columns])

    @property
    def work(self) -> Place:
        return self.target.beside(".converting")

    def digest(self, entries: list[Entry]) -> str:
        """Of what is asked for and of the files that it is asked of: another conversion has another one."""
        asked = asdict(replace(self, source=None, target=None))  # pyright: ignore[reportArgumentType]
        of = [self.source.place.uri, self.source.columns.to_string(), self.source.asked]
        return digest([asked, of, [(as_text(entry.name), entry.bytes, entry.mark) for entry in entries]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of a piece of the conversion with this `plan`. `left_out` counts samples by the reason; `examples` has the names of
    some of them."""

    plan: str
    shard: str
    rows: int
    seen: int
    image_bytes: int
    left_out: dict[str, int]
    examples: dict[str, list[str]]
    fragments: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Pieces and samples done so far, those of an earlier try apart: a rate counts what this one did."""

    shards: int
    shards_done: int
    shards_before: int
    seen: int
    seen_before: int
    rows: int
    left_out: dict[str, int]


Tell = Callable[[Progress], None]


def convert(
    conversion: Conversion,
    entries: list[Entry],
    engine: Engine,
    how: Fetching,
    tell: Tell = lambda progress: None,
) -> tuple[DataSet, list[Done]]:
    """The data set, and what came of each piece. Raises `BadInput`, and `Unreachable` where saying the same again may help."""
    plan = conversion.digest(entries)
    check(conversion)
    made = there(conversion.target)
    if made is None or made.info.plan != plan:
        if made is not None:
            raise BadInput(
                f"there is another data set at {conversion.target.uri}", hint="take another name, or delete it first"
            )
        _begin(conversion, plan)
    shards = conversion.source.shards(entries, conversion.rows)
    done = _done(conversion, plan, shards)
    if made is None:
        done = _make(conversion, plan, shards, done, engine, how, tell)
        _check_alone(conversion, done)
        _commit(conversion, plan, done, called(conversion.source.place, entries))
    if conversion.unique:
        try:
            _drop_doubles(conversion)
        except OSError as error:
            if "conflict" not in str(error).lower():
                raise
            raise _overtaken(conversion) from None
    _sweep(conversion)
    return open_data_set(conversion.target), done


def check(conversion: Conversion) -> None:
    """Raises `BadInput` where it asks for what cannot be."""
    target = conversion.target
    if target.is_remote and not target.uri.partition("://")[2].partition("/")[2]:
        raise BadInput(f"{target.uri} is a whole bucket", hint=f"give a prefix in it: {target.uri}/photos.lance")
    early, late = conversion.source.columns, pa.schema([*SEEN, *conversion.source.columns])
    conversion.where.split(early, late)
    if conversion.unique and conversion.unique not in conversion.schema.names:
        columns = ", ".join(name for name in conversion.schema.names if name != "image")
        raise BadInput(f"there is no column {conversion.unique} to be unique", hint=f"there are {columns}")
    if conversion.unique in ("image", "captions"):
        raise BadInput(f"{conversion.unique} cannot be unique", hint="take sha256 or dhash")


def _begin(conversion: Conversion, plan: str) -> None:
    """Raises `BadInput` where something else was begun there, of which a piece is made."""
    notes = [entry.name for entry in conversion.work.entries()]
    stored = json.loads(conversion.work.read(PLAN)) if PLAN in notes else None
    if stored is not None and stored["plan"] == plan:
        return
    if stored is not None and any(name.endswith(".json") for name in notes if name != PLAN):
        raise BadInput(
            f"a conversion of {stored['source']} to {conversion.target.uri} was begun, with other settings or other files",
            hint=f"say it as before, or delete {conversion.work.uri} to begin anew",
        )
    _check_vacant(conversion.target)
    conversion.work.delete(notes)  # without a plan nobody knows what they are of
    conversion.work.write(PLAN, json.dumps({"plan": plan, "source": conversion.source.place.uri}).encode())


def _check_vacant(target: Place) -> None:
    """Raises `BadInput` where files lie that no conversion left there."""
    others = [entry.name for entry in target.entries() if not is_data(entry.name)]
    if others:
        raise BadInput(
            f"{target.uri} is not empty: it has {others[0]}", hint="take the name of a folder that is not there yet"
        )


def _done(conversion: Conversion, plan: str, shards: list[Shard]) -> list[Done]:
    """What earlier tries of the same finished."""
    wanted = {f"{shard.name}.json" for shard in shards}
    notes = [entry.name for entry in conversion.work.entries() if entry.name in wanted]
    done = [Done(**json.loads(conversion.work.read(name))) for name in notes]
    lengths = data_lengths(conversion.target) if done else {}
    return [one for one in done if one.plan == plan and _is_whole(one, lengths)]


def _is_whole(done: Done, lengths: dict[str, int]) -> bool:
    return all(is_whole(fragment, lengths) for fragment in done.fragments)


def _check_alone(conversion: Conversion, done: list[Done]) -> None:
    """Raises `BadInput` where another process that was told the same came first: it swept what was made here."""
    lengths = data_lengths(conversion.target)
    if there(conversion.target) is not None or not all(_is_whole(one, lengths) for one in done):
        raise _overtaken(conversion)


def _overtaken(conversion: Conversion) -> BadInput:
    return BadInput(f"another process made {conversion.target.uri} meanwhile", hint="`gangline data inspect` shows it")


def _make(
    conversion: Conversion, plan: str, shards: list[Shard], done: list[Done], engine: Engine, how: Fetching, tell: Tell
) -> list[Done]:
    before = len(done), sum(one.seen for one in done)
    had = {one.shard for one in done}
    todo = [shard for shard in shards if shard.name not in had]
    done = list(done)

    def show() -> None:
        tell(
            Progress(
                shards=len(shards),
                shards_done=len(done),
                shards_before=before[0],
                seen=sum(one.seen for one in done),
                seen_before=before[1],
                rows=sum(one.rows for one in done),
                left_out=left_out(done),
            )
        )

    show()
    for one in engine.run(partial(convert_shard, conversion, plan, how), todo):
        done.append(one)
        show()
    return sorted(done, key=lambda one: one.shard)


def left_out(done: Iterable[Done]) -> dict[str, int]:
    """How many for each reason, the most frequent first."""
    return dict(sum((Counter(one.left_out) for one in done), Counter()).most_common())


def convert_shard(conversion: Conversion, plan: str, how: Fetching, shard: Shard) -> Done:
    """Make one piece, and leave the note that it is made."""
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
    done = Done(
        plan=plan,
        shard=shard.name,
        rows=tally.rows,
        seen=tally.seen,
        image_bytes=tally.image_bytes,
        left_out=dict(tally.left_out),
        examples=tally.examples,
        fragments=[fragment.to_json() for fragment in fragments],
    )
    conversion.work.write(f"{shard.name}.json", json.dumps(asdict(done)).encode())
    return done


@dataclass(slots=True)
class Tally:
    seen: int = 0
    rows: int = 0
    image_bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
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
    """The rows of a piece. What is not wanted by the source's own columns is not fetched; by all others, not stored."""
    seen = pa.schema([*SEEN, *conversion.source.columns])
    early, late = conversion.where.split(conversion.source.columns, seen)
    items = _wanted(conversion.source.read(shard), early, conversion, tally)
    found = _looked_at(fetched(items, conversion.source.place, how), conversion.storing, tally)
    while batch := list(islice(found, BATCH)):
        items_of, rows = [item for item, _ in batch], [row for _, row in batch]
        kept = late.kept(rows, seen)
        for item, keep in zip(items_of, kept, strict=True):
            if not keep:
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
            row = row_of(item, storing)
        except Unreadable as error:
            tally.leave_out(item, error.kind)
        else:
            yield replace(item, image=None), row


def _commit(conversion: Conversion, plan: str, done: list[Done], source: str) -> None:
    fragments = [FragmentMetadata.from_json(json.dumps(fragment)) for one in done for fragment in one.fragments]
    rows = sum(one.rows for one in done)
    if not rows:
        counts = left_out(done)
        reasons = "; ".join(f"{count} {because}" for because, count in counts.items()) or "it has none"
        _sweep(conversion)
        keeps = "; --keep-uncaptioned takes images without a caption" if UNCAPTIONED in counts else ""
        raise BadInput(f"no image of {source} is left: {reasons}", hint=f"nothing was made{keeps}")
    info = Info(
        id=secrets.token_hex(16),
        plan=plan,
        rows=rows,
        image_bytes=sum(one.image_bytes for one in done) // rows,
        source=conversion.source.place.uri,
        where=conversion.where.conditions,
        unique=conversion.unique,
        left_out=left_out(done),
    )
    schema = conversion.schema.with_metadata(info.to_metadata())
    with errors_of(conversion.target):
        lance.LanceDataset.commit(
            conversion.target.uri,
            lance.LanceOperation.Overwrite(schema, fragments),
            storage_options=conversion.target.lance_options,
        )


def _of_any_length(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts of more than 2 GB together, which an array of the usual kind cannot hold."""
    return column.cast(pa.large_string()) if pa.types.is_string(column.type) else column


def _drop_doubles(conversion: Conversion) -> None:
    """Of rows that are equal in a column the first is kept, in the order of the source; what has no value there is no double."""
    with errors_of(conversion.target):
        table = lance.dataset(conversion.target.uri, storage_options=conversion.target.lance_options)
        if FINISHED in table.metadata:
            return
        found = table.scanner(columns=[conversion.unique], with_row_address=True, scan_in_order=True).to_table()
        codes = _of_any_length(found[conversion.unique]).combine_chunks().dictionary_encode().indices
        known = np.flatnonzero(codes.is_valid().to_numpy(zero_copy_only=False))
        _, firsts = np.unique(codes.drop_null().to_numpy(), return_index=True)
        later = np.delete(known, firsts)
        addresses = found["_rowaddr"].to_numpy()[later]
        if len(addresses):
            updated = []
            for fragment in table.get_fragments():
                own = addresses[addresses >> 32 == fragment.fragment_id] & 0xFFFFFFFF
                if len(own):
                    updated.append((fragment.fragment_id, fragment.delete_rows(own.tolist())))
            operation = lance.LanceOperation.Delete(
                [metadata for _, metadata in updated if metadata is not None],
                [number for number, metadata in updated if metadata is None],
                f"a later row of equal {conversion.unique}",
            )
            table = lance.LanceDataset.commit(
                table, operation, read_version=table.version, storage_options=conversion.target.lance_options
            )
        table.update_metadata({FINISHED: "yes"})


def _sweep(conversion: Conversion) -> None:
    """Data that no note and no version names was written by tries that were cut off; the notes go last."""
    sweep(conversion.target)
    conversion.work.wipe()
