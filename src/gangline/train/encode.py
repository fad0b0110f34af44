"""Add to a data set what training would else compute in every epoch: image latents, and on request text embeddings.

As a conversion it is done in pieces, here fragments, with a note for each beside the data set (`NAME.encoding`); said again it makes
what is missing, and one commit adds the columns. Every resolution comes from one decode of an image.
"""

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import torch
from lance.fragment import FragmentMetadata
from PIL import Image

from gangline.core.canonical import digest
from gangline.core.errors import BadInput
from gangline.data.buckets import Size, cut
from gangline.data.crops import Crop, square
from gangline.data.dataset import (
    KEY,
    POOLED,
    TEXTS,
    DataSet,
    Latents,
    Texts,
    data_lengths,
    described,
    is_whole,
    latents_column,
    open_data_set,
    sweep,
)
from gangline.data.engine import Engine
from gangline.data.pixels import as_seen, loaded
from gangline.data.place import Place, errors_of
from gangline.train.base import Base, load_base
from gangline.train.numerics import device
from gangline.train.quiet import be_quiet
from gangline.train.text import embed_all, tokenize

BURST = 8
STORED = np.float16
READ = ("image", "sha256", "captions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """`base` is a model's folder or file on this machine, `vae` another VAE for it; what they compute in is `dtype`."""

    target: Place
    version: int
    base: Path
    vae: Path | None
    resolutions: tuple[int, ...]
    crop: Crop = "center"
    texts: bool = False
    dtype: str = "float32"
    batch_size: int = 8

    @property
    def work(self) -> Place:
        return self.target.beside(".encoding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What it will take: `bytes_added` in the data set, `images_per_second` of one process in a short burst."""

    rows: int
    columns: dict[str, int]
    images_per_second: float

    @property
    def bytes_added(self) -> int:
        return self.rows * sum(self.columns.values())


class Encoder:
    """The models, and the columns that they make."""

    def __init__(self, encoding: Encoding) -> None:
        be_quiet()
        self.encoding = encoding
        on = device()
        number = (multiprocessing.current_process()._identity or (1,))[0] - 1
        if on.type == "cuda":
            on = torch.device("cuda", number % torch.cuda.device_count())
        self.base: Base = load_base(encoding.base, on, torch.float32, vae=encoding.vae)
        self.dtype = getattr(torch, encoding.dtype)

    @cached_property
    def vae(self) -> Any:
        self.vae_digest = weights_digest(self.base.vae)
        return self.base.vae.to(self.dtype)

    @cached_property
    def latents(self) -> dict[str, Latents]:
        """By the column's name. Raises `BadInput` where a resolution does not suit the model."""
        config = self.vae.config
        unit = self.base.latent_factor
        wrong = [side for side in self.encoding.resolutions if side % unit]
        if wrong:
            raise BadInput(
                f"resolution {wrong[0]} is no multiple of {unit}, which this VAE needs", hint="take one that is"
            )
        hashed = self.vae_digest
        return {
            latents_column(resolution, self.encoding.crop): Latents(
                vae=hashed,
                scale=config.scaling_factor,
                shift=config.get("shift_factor") or 0.0,
                channels=config.latent_channels,
                side=resolution // unit,
                resolution=resolution,
                crop=self.encoding.crop,
                precision=np.dtype(STORED).name,
                compute_precision=self.encoding.dtype,
            )
            for resolution in self.encoding.resolutions
        }

    @cached_property
    def texts(self) -> Texts | None:
        if not self.encoding.texts:
            return None
        one = embed_all(self.base, tokenize(self.base, ["a"]))
        pooled = 0 if one.pooled is None else one.pooled.shape[-1]
        tokens, width = one.tokens.shape[1:]
        return Texts(
            encoders=text_encoders_digest(self.base),
            tokens=tokens,
            width=width,
            pooled=pooled,
            precision=np.dtype(STORED).name,
        )

    @property
    def schema(self) -> pa.Schema:
        """Of the columns that are added."""
        number = pa.from_numpy_dtype(STORED)
        columns = [
            described(pa.field(name, pa.list_(number, latents.numbers)), latents)
            for name, latents in self.latents.items()
        ]
        if self.texts:
            columns.append(
                described(pa.field(TEXTS, pa.list_(number, self.texts.tokens * self.texts.width)), self.texts)
            )
            if self.texts.pooled:
                columns.append(described(pa.field(POOLED, pa.list_(number, self.texts.pooled)), self.texts))
        return pa.schema(columns)

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those columns for these rows. Raises `BadInput` where memory has no room for so many at a time."""
        try:
            return self._encoded(batch)
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            side = max(self.encoding.resolutions)
            raise BadInput(
                f"memory has no room for {self.encoding.batch_size} pictures of {side} × {side} at a time",
                hint="take a smaller --batch-size: what is done stays done",
            ) from error

    def _encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        images, hashes = batch.column("image").to_pylist(), batch.column("sha256").to_pylist()
        made: dict[str, list[np.ndarray]] = {name: [] for name in self.schema.names}
        size = self.encoding.batch_size
        with ThreadPoolExecutor(2, thread_name_prefix="decode") as threads:
            decoded = threads.map(self._views, images, hashes)
            for _ in range(0, len(images), size):
                views = [view for _, view in zip(range(size), decoded, strict=False)]
                for number, (name, latents) in enumerate(self.latents.items()):
                    made[name].append(self._posterior(np.stack([view[number] for view in views]), latents))
        if self.texts:
            said = [captions[0] if captions else "" for captions in batch.column("captions").to_pylist()]
            self._embed(said, made)
        return pa.record_batch(
            [_listed(np.concatenate(made[field.name]), field.type) for field in self.schema], schema=self.schema
        )

    def _views(self, content: bytes, hashed: str) -> list[np.ndarray]:
        """(H, W, 3) of each resolution."""
        with loaded(BytesIO(content)) as image:
            picture: Image.Image = as_seen(image)
        size = Size(width=picture.width, height=picture.height)
        return [
            np.asarray(cut(picture, square(size, resolution, self.encoding.crop, hashed)))
            for resolution in self.encoding.resolutions
        ]

    @torch.no_grad()
    def _posterior(self, pixels_NHWC: np.ndarray, latents: Latents) -> np.ndarray:
        """(N, 2·C·h·w): mean and deviation."""
        pixels = torch.from_numpy(pixels_NHWC).to(self.base.device).permute(0, 3, 1, 2).to(self.dtype) / 127.5 - 1
        posterior = self.vae.encode(pixels).latent_dist
        found = torch.stack((posterior.mean, posterior.std), dim=1).float()
        if not found.isfinite().all():
            raise BadInput(
                f"this VAE gives no finite numbers in {self.encoding.dtype}",
                hint="compute in float32, or give a VAE that does, for SDXL madebyollin/sdxl-vae-fp16-fix",
            )
        return found.cpu().numpy().astype(STORED).reshape(len(pixels_NHWC), latents.numbers)

    def _embed(self, said: list[str], made: dict[str, list[np.ndarray]]) -> None:
        unique = tokenize(self.base, said)
        one_piece = type(unique)(unique.texts, tuple(ids[:, :1] for ids in unique.ids))
        found = embed_all(self.base, one_piece)
        rows = [unique.index(text) for text in said]
        made[TEXTS].append(found.tokens[rows].flatten(1).numpy().astype(STORED))
        if found.pooled is not None:
            made[POOLED].append(found.pooled[rows].numpy().astype(STORED))


def _is_out_of_memory(error: Exception) -> bool:
    """A GPU's has a type of its own; a CPU's is known by what it says."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def weights_digest(module: torch.nn.Module) -> str:
    """SHA-256 of its weights in float32, by their names: the same from any kind of file."""
    total = sha256()
    for name, tensor in sorted(module.state_dict().items()):
        total.update(f"{name} {list(tensor.shape)}\n".encode())
        total.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def text_encoders_digest(base: Base) -> str:
    return sha256("".join(map(weights_digest, base.text_encoders)).encode()).hexdigest()


def forecast(data: DataSet, encoding: Encoding) -> Forecast:
    """Sizes, and a burst of a few rows. Raises `BadInput` where it cannot be done, or is done already."""
    encoder = Encoder(encoding)
    names = encoder.schema.names
    there = [name for name in names if name in data.table.schema.names]
    if there:
        raise BadInput(f"{data.place.uri} has {', '.join(there)} already", hint="train on it, or ask for what it lacks")
    with errors_of(data.place):
        rows = data.table.head(BURST, columns=list(READ)).to_batches()[0]
    encoder.encode(rows.slice(0, 1))
    started_s = perf_counter()
    made = encoder.encode(rows)
    seconds = perf_counter() - started_s
    sizes = {field.name: field.type.list_size * np.dtype(STORED).itemsize for field in made.schema}
    return Forecast(rows=data.rows, columns=sizes, images_per_second=rows.num_rows / seconds)


def encode(
    data: DataSet, encoding: Encoding, engine: Engine, tell: Callable[[int, int], None] = lambda done, before: None
) -> DataSet:
    """The data set with its new columns. `tell` hears how many rows are done, and how many of these an earlier try did."""
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
    """Make the columns of one fragment, and leave the note that they are made."""
    encoder = _encoder(encoding)
    failed: list[Exception] = []

    def made(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return encoder.encode(batch)
        except Exception as error:
            failed.append(error)  # Lance makes another one of it
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
    """Of what is asked for, of this data set, and of the models' weights, wherever they lie."""
    asked = {name: str(value) for name, value in asdict(encoding).items() if name not in ("target", "base", "vae")}
    columns = _encoder(encoding).schema
    return digest([data.info.id, asked, [(column.name, column.metadata[KEY].decode()) for column in columns]])


def _done(encoding: Encoding, plan: str) -> dict[int, dict[str, Any]]:
    """The fragments that an earlier try of the same made. Raises `BadInput` where it made something else."""
    names = [entry.name for entry in encoding.work.entries() if entry.name.endswith(".json")]  # one may be half written
    notes = [json.loads(encoding.work.read(name)) for name in names]
    if any(note["plan"] != plan for note in notes):
        raise BadInput(
            f"other columns for {encoding.target.uri} were begun, or the data set has changed since",
            hint=f"say it as before, or delete {encoding.work.uri} to begin anew",
        )
    lengths = data_lengths(encoding.target) if notes else {}
    whole = [note["fragment"] for note in notes if is_whole(note["fragment"], lengths)]
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
        f"{encoding.target.uri} was changed while columns were made for it",
        hint=f"delete {encoding.work.uri} and say the same again: they are made for what is there now",
    )


def _listed(rows: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=kind)
