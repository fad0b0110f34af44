"""Add columns to a data set that training would otherwise compute in every epoch: image latents and, on request, text embeddings.

Like a conversion it is done in pieces, here fragments, with a note for each beside the data set (`NAME.encoding`). Repeating the command
makes what is missing, and one commit adds the columns. All resolutions come from one decode of an image.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from time import perf_counter
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from gangline.core.canonical import digest
from gangline.core.errors import BadInput
from gangline.data.columns import KEY
from gangline.data.dataset import DataSet, data_lengths, is_fragment_complete, open_data_set, sweep
from gangline.data.making.engine import Engine
from gangline.data.place import errors_of
from gangline.train.encoding.encoder import STORED, Encoder, Encoding

BURST = 8
READ = ("image", "sha256", "captions")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingForecast:
    """What encoding will cost: `bytes_added` to the data set, and `images_per_second` of one process, measured in a short burst."""

    rows: int
    columns: dict[str, int]
    images_per_second: float

    @property
    def bytes_added(self) -> int:
        return self.rows * sum(self.columns.values())


def forecast_encoding(data: DataSet, encoding: Encoding) -> EncodingForecast:
    """Compute sizes, and encode a few rows to measure speed. Raise `BadInput` if it cannot be done, or is already done."""
    encoder = Encoder(encoding)
    names = encoder.schema.names
    there = [name for name in names if name in data.table.schema.names]
    if there:
        raise BadInput(
            f"{data.place.uri} has {', '.join(there)} already",
            hint="train on it, or encode only the columns that it lacks",
        )
    with errors_of(data.place):
        rows = data.table.head(BURST, columns=list(READ)).to_batches()[0]
    encoder.encode(rows.slice(0, 1))
    started_s = perf_counter()
    made = encoder.encode(rows)
    seconds = perf_counter() - started_s
    sizes = {field.name: field.type.list_size * np.dtype(STORED).itemsize for field in made.schema}
    return EncodingForecast(rows=data.rows, columns=sizes, images_per_second=rows.num_rows / seconds)


def encode_data_set(
    data: DataSet, encoding: Encoding, engine: Engine, tell: Callable[[int, int], None] = lambda done, before: None
) -> DataSet:
    """Return the data set with its new columns. `tell` gets how many rows are done, and how many of these an earlier attempt did."""
    _encoder.cache_clear()  # another base may be at the same path since the last call
    plan = _plan(data, encoding)
    fragments = {one.fragment_id: one.count_rows() for one in data.table.get_fragments()}
    done = _done(encoding, plan)
    before = sum(fragments[number] for number in done)
    tell(before, before)
    todo = [number for number in fragments if number not in done]
    for number, note in engine.run(partial(encode_fragment, encoding, plan), todo):
        done[number] = note
        tell(sum(fragments[number] for number in done), before)
    _commit(data, encoding, done)
    return open_data_set(encoding.target)


def encode_fragment(encoding: Encoding, plan: str, number: int) -> tuple[int, dict[str, Any]]:
    """Make the columns of one fragment, then write its note."""
    encoder = _encoder(encoding)
    failed: list[Exception] = []

    def made(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return encoder.encode(batch)
        except Exception as error:
            failed.append(error)  # Lance raises an exception of another type instead
            raise

    with errors_of(encoding.target):
        table = lance.dataset(
            encoding.target.uri, version=encoding.version, storage_options=encoding.target.lance_options
        )
        fragment = table.get_fragment(number)
        assert fragment is not None, "a version's fragments stay"
        try:
            metadata, _ = fragment.merge_columns(made, columns=list(READ), batch_size=64)
        except Exception as error:
            raise (failed[0] if failed else error) from None
    fragment = metadata.to_json()
    encoding.work.write(f"{number}.json", json.dumps({"plan": plan, "fragment": fragment}).encode())
    return number, fragment


@lru_cache(maxsize=1)
def _encoder(encoding: Encoding) -> Encoder:
    return Encoder(encoding)


def _plan(data: DataSet, encoding: Encoding) -> str:
    """Return a digest of the request, of this data set, and of the models' weights, wherever their files are."""
    asked = {name: str(value) for name, value in asdict(encoding).items() if name not in ("target", "base", "vae")}
    columns = _encoder(encoding).schema
    return digest([data.info.id, asked, [(column.name, column.metadata[KEY].decode()) for column in columns]])


def _done(encoding: Encoding, plan: str) -> dict[int, dict[str, Any]]:
    """Return the fragments that an earlier attempt with the same plan made. Raise `BadInput` if it made other columns."""
    names = [entry.name for entry in encoding.work.entries() if entry.name.endswith(".json")]  # one may be half written
    notes = [json.loads(encoding.work.read(name)) for name in names]
    if any(note["plan"] != plan for note in notes):
        raise BadInput(
            f"an unfinished encoding of {encoding.target.uri} has other columns, or the data set has changed since",
            hint=f"repeat the first command, or delete {encoding.work.uri} to start again",
        )
    lengths = data_lengths(encoding.target) if notes else {}
    whole = [note["fragment"] for note in notes if is_fragment_complete(note["fragment"], lengths)]
    return {fragment["id"]: fragment for fragment in whole}


def _commit(data: DataSet, encoding: Encoding, done: dict[int, dict[str, Any]]) -> None:
    schema = pa.schema([*data.table.schema, *_encoder(encoding).schema], metadata=data.table.schema.metadata)
    fragments = [FragmentMetadata.from_json(json.dumps(done[number])) for number in sorted(done)]
    with errors_of(encoding.target):
        if (
            lance.dataset(encoding.target.uri, storage_options=encoding.target.lance_options).version
            != encoding.version
        ):
            raise _changed(encoding)
        try:
            lance.LanceDataset.commit(
                encoding.target.uri,
                lance.LanceOperation.Merge(fragments, schema),
                read_version=encoding.version,
                storage_options=encoding.target.lance_options,
            )
        except OSError as error:
            if "conflict" not in str(error).lower():
                raise
            raise _changed(encoding) from None
    sweep(encoding.target)
    encoding.work.wipe()


def _changed(encoding: Encoding) -> BadInput:
    return BadInput(
        f"{encoding.target.uri} was changed while it was encoded",
        hint=f"delete {encoding.work.uri} and repeat the command, to encode the data set as it is now",
    )
