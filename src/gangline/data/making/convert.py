"""Make a data set from a source. Its pieces are made separately, by any process and in any order; one commit makes them a data set.

Finished work is kept: beside the target is a folder `NAME.converting` with a note for each finished piece, and repeating the command makes
what is missing. A piece is a pure function of the source, so no sample is lost or doubled, wherever a conversion was interrupted: data that
no note names is deleted.
"""

import json
import secrets
from functools import partial

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata

from gangline.core.errors import BadInput
from gangline.data.dataset import (
    DataSet,
    Info,
    data_lengths,
    is_data,
    is_fragment_complete,
    open_data_set,
    sweep,
    there,
)
from gangline.data.making.conversion import (
    Conversion,
    ConversionProgress,
    ConvertedPiece,
    TellProgress,
    dropped,
    left_out_counts,
)
from gangline.data.making.doubles import drop_doubles
from gangline.data.making.engine import Engine
from gangline.data.making.fetch import Fetching
from gangline.data.making.piece import UNCAPTIONED, convert_shard
from gangline.data.making.row import SEEN
from gangline.data.place import DataPlace, Entry, errors_of, name_in_messages
from gangline.data.sources import Shard

PLAN = "plan.json"


def convert(
    conversion: Conversion,
    entries: list[Entry],
    engine: Engine,
    how: Fetching,
    tell: TellProgress = lambda progress: None,
) -> tuple[DataSet, list[ConvertedPiece]]:
    """Return the data set, and the result of each piece. Raise `BadInput`, or `Unreachable` if repeating the command may help."""
    plan = conversion.digest(entries)
    check_conversion(conversion)
    made = there(conversion.target)
    if made is None or made.info.plan != plan:
        if made is not None:
            raise BadInput(
                f"there is another data set at {conversion.target.uri}", hint="choose another name, or delete it first"
            )
        _begin(conversion, plan)
    shards = conversion.source.shards(entries, conversion.rows)
    done = _done(conversion, plan, shards)
    if made is None:
        done = _make(conversion, plan, shards, done, engine, how, tell)
        _check_alone(conversion, done)
        _commit(conversion, plan, done, name_in_messages(conversion.source.place, entries))
    if conversion.unique:
        try:
            drop_doubles(conversion)
        except OSError as error:
            if "conflict" not in str(error).lower():
                raise
            raise _overtaken(conversion) from None
    _sweep(conversion)
    return open_data_set(conversion.target), done


def check_conversion(conversion: Conversion) -> None:
    """Raise `BadInput` if the conversion is impossible."""
    target = conversion.target
    target.check_name()
    if target.is_remote and not target.uri.partition("://")[2].partition("/")[2]:
        raise BadInput(f"{target.uri} is a whole bucket", hint=f"give a prefix in it: {target.uri}/photos.lance")
    early, late = conversion.source.columns, pa.schema([*SEEN, *conversion.source.columns])
    conversion.where.split(early, late)
    if conversion.unique and conversion.unique not in conversion.schema.names:
        columns = ", ".join(name for name in conversion.schema.names if name != "image")
        raise BadInput(
            f"there is no column {conversion.unique} that could be unique", hint=f"the columns are {columns}"
        )
    if conversion.unique in ("image", "captions", *conversion.source.latents.names):
        raise BadInput(f"{conversion.unique} cannot be unique", hint="use sha256 or dhash")


def _begin(conversion: Conversion, plan: str) -> None:
    """Write the plan. Raise `BadInput` if another conversion was started there and has finished a piece."""
    notes = [entry.name for entry in conversion.work.entries()]
    stored = json.loads(conversion.work.read(PLAN)) if PLAN in notes else None
    if stored is not None and stored["plan"] == plan:
        return
    if stored is not None and any(name.endswith(".json") for name in notes if name != PLAN):
        raise BadInput(
            f"an unfinished conversion of {stored['source']} to {conversion.target.uri} has other settings or other files",
            hint=f"repeat the first command, or delete {conversion.work.uri} to start again",
        )
    _check_vacant(conversion.target)
    conversion.work.delete(notes)  # without a plan, nobody knows which conversion they belong to
    conversion.work.write(PLAN, json.dumps({"plan": plan, "source": conversion.source.place.uri}).encode())


def _check_vacant(target: DataPlace) -> None:
    """Raise `BadInput` if there are files that no conversion left."""
    others = [entry.name for entry in target.entries() if not is_data(entry.name)]
    if others:
        raise BadInput(f"{target.uri} is not empty: it has {others[0]}", hint="choose a folder that does not exist yet")


def _done(conversion: Conversion, plan: str, shards: list[Shard]) -> list[ConvertedPiece]:
    """Return the pieces that earlier attempts of the same conversion finished."""
    wanted = {f"{shard.name}.json" for shard in shards}
    notes = [entry.name for entry in conversion.work.entries() if entry.name in wanted]
    done = [ConvertedPiece(**json.loads(conversion.work.read(name))) for name in notes]
    lengths = data_lengths(conversion.target) if done else {}
    return [one for one in done if one.plan == plan and _is_complete(one, lengths)]


def _is_complete(done: ConvertedPiece, lengths: dict[str, int]) -> bool:
    return all(is_fragment_complete(fragment, lengths) for fragment in done.fragments)


def _check_alone(conversion: Conversion, done: list[ConvertedPiece]) -> None:
    """Raise `BadInput` if another process with the same conversion finished first: it deleted the data that was made here."""
    lengths = data_lengths(conversion.target)
    if there(conversion.target) is not None or not all(_is_complete(one, lengths) for one in done):
        raise _overtaken(conversion)


def _overtaken(conversion: Conversion) -> BadInput:
    return BadInput(
        f"another process has created {conversion.target.uri} meanwhile", hint="`gangline data inspect` shows it"
    )


def _make(
    conversion: Conversion,
    plan: str,
    shards: list[Shard],
    done: list[ConvertedPiece],
    engine: Engine,
    how: Fetching,
    tell: TellProgress,
) -> list[ConvertedPiece]:
    before = len(done), sum(one.seen for one in done)
    had = {one.shard for one in done}
    todo = [shard for shard in shards if shard.name not in had]
    done = list(done)

    def show() -> None:
        tell(
            ConversionProgress(
                shards=len(shards),
                shards_done=len(done),
                shards_before=before[0],
                seen=sum(one.seen for one in done),
                seen_before=before[1],
                rows=sum(one.rows for one in done),
                left_out=left_out_counts(done),
            )
        )

    show()
    for one in engine.run(partial(convert_shard, conversion, plan, how), todo):
        done.append(one)
        show()
    return sorted(done, key=lambda one: one.shard)


def _commit(conversion: Conversion, plan: str, done: list[ConvertedPiece], source: str) -> None:
    fragments = [FragmentMetadata.from_json(json.dumps(fragment)) for one in done for fragment in one.fragments]
    rows = sum(one.rows for one in done)
    if not rows:
        counts = left_out_counts(done)
        reasons = "; ".join(f"{count} {because}" for because, count in counts.items()) or "it has none"
        _sweep(conversion)
        keeps = "; --keep-uncaptioned keeps images without a caption" if UNCAPTIONED in counts else ""
        raise BadInput(f"no image of {source} is left: {reasons}", hint=f"nothing was created{keeps}")
    info = Info(
        id=secrets.token_hex(16),
        plan=plan,
        rows=rows,
        image_bytes=sum(one.image_bytes for one in done) // rows,
        source=conversion.source.place.uri,
        where=conversion.where.conditions,
        unique=conversion.unique,
        left_out=left_out_counts(done),
        dropped=dropped(done),
    )
    schema = conversion.schema.with_metadata(info.to_metadata())
    with errors_of(conversion.target):
        lance.LanceDataset.commit(
            conversion.target.uri,
            lance.LanceOperation.Overwrite(schema, fragments),
            storage_options=conversion.target.lance_options,
        )


def _sweep(conversion: Conversion) -> None:
    """Delete data that no version names, which interrupted attempts wrote, and then the notes."""
    sweep(conversion.target)
    conversion.work.wipe()
