"""The batches of a run over data sets.

Everything follows from the numbers of the samples: their rows, views, captions, noise and timesteps. So neither the number of ranks that
share a step nor the step that a run resumes at makes a difference. Shape letters: B samples, C latent channels, H W sides.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
import torch

from gangline.core.errors import BadInput
from gangline.core.server.programs import DATA_CACHE_GB
from gangline.core.specs.phases import DataRef, Moment, TrainingPhase, moment_of_step
from gangline.core.specs.scratch import ScratchSpec, wanted_rows
from gangline.data.chance import stream, streams
from gangline.data.columns import POOLED, TEXTS, LatentsColumn, latents_column
from gangline.data.dataset import DataSet, open_data_set
from gangline.data.images.buckets import Size, View, cut_view
from gangline.data.images.crops import square
from gangline.data.images.pixels import Unreadable, as_seen, loaded
from gangline.data.place import DataPlace
from gangline.data.reading.block_cache import BlockCache
from gangline.data.reading.reader import DataReader, ReadOrder
from gangline.data.reading.requirements import check_data_sets
from gangline.data.reading.stream import Batch, Stream
from gangline.posix import cores
from gangline.train.model.base import LoadedBase
from gangline.train.model.digest import text_encoders_digest, weights_digest
from gangline.train.model.text import Embedded, embed_all, tokenize
from gangline.train.model.timesteps import TimestepSampler
from gangline.train.run import chance
from gangline.train.run.ranks import Ranks
from gangline.train.scratch.denoiser import ScratchBatch

ALWAYS = ("width", "height", "sha256", "captions")
THREADS_MAX = 8
OPTIONS = {
    "GANGLINE_DATA_ACCESS_KEY_ID": "aws_access_key_id",
    "GANGLINE_DATA_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "GANGLINE_DATA_SESSION_TOKEN": "aws_session_token",
    "GANGLINE_DATA_REGION": "aws_region",
    "GANGLINE_DATA_ENDPOINT_URL": "aws_endpoint",
}

VaeScaling = tuple[str, float, float]
"""The SHA-256 of a VAE's weights, and the scale and shift of its latents."""


def open_data(spec: ScratchSpec, inputs: Path) -> list[DataSet]:
    """Open the data sets as they were when the job was submitted. Raise `BadInput` if one is gone or was replaced."""
    return [open_data_set(_place_of(ref, inputs), version=ref.version, id=ref.id) for ref in spec.data]


def _place_of(ref: DataRef, inputs: Path) -> DataPlace:
    return DataPlace(ref.place, data_options()) if ref.is_remote else DataPlace(str(inputs / ref.place))


def data_options() -> dict[str, str]:
    """Return the storage options for data sets in a bucket, from this node's environment: a key that may only read."""
    found = {option: os.environ[name] for name, option in OPTIONS.items() if name in os.environ}
    if found.get("aws_endpoint", "").startswith("http://"):
        found["allow_http"] = "true"
    return {"aws_region": "us-east-1"} | found


def data_cache() -> BlockCache | None:
    """Return the cache of data read from buckets if the environment names a folder, with its size limit. The ranks of a node share it."""
    folder = os.environ.get("GANGLINE_DATA_CACHE")
    given = os.environ.get("GANGLINE_DATA_CACHE_GB", f"{DATA_CACHE_GB:g}")
    try:
        return BlockCache(Path(folder), round(float(given) * 1e9)) if folder else None
    except (OSError, ValueError) as error:
        raise BadInput(
            f"data cannot be cached with GANGLINE_DATA_CACHE={folder} and GANGLINE_DATA_CACHE_GB={given}: {error}",
            hint="correct these variables in the environment of this node's worker",
        ) from None


def _short(vae: VaeScaling) -> str:
    return f"SHA-256 {vae[0][:12]}…, scale {vae[1]:g}"


class Collator:
    """The function from rows to batches of one phase: from the latents in `column` if it is given, else from images.

    `silence` is the embedding of the empty text if captions are embedded already, else None.
    """

    def __init__(
        self,
        spec: ScratchSpec,
        phase: TrainingPhase,
        seed: int,
        base: LoadedBase,
        column: str | None,
        silence: Embedded | None,
        timesteps: TimestepSampler,
    ) -> None:
        self.spec = spec
        self.phase = phase
        self.seed = seed
        self.base = base
        self.column = column
        self.silence = silence
        side = phase.resolution // base.latent_factor
        self.shape = (base.layout.vae_config()["latent_channels"], side, side)
        self.timesteps = timesteps

    def trained(self, batch: Batch, threads: ThreadPoolExecutor) -> ScratchBatch:
        """Return a batch to train on. All randomness follows from the samples' numbers, which count on through the steps of a phase."""
        numbers = batch.numbers.tolist()
        drawn, noise = (
            chance.normal(self.seed, purpose, 0, numbers, self.shape, threads) for purpose in ("posterior", "noise")
        )
        if self.spec.noise_offset:  # Guttenberg 2023
            offset = chance.normal(self.seed, "noise offset", 0, numbers, (self.shape[0], 1, 1))
            noise = noise + self.spec.noise_offset * offset
        timesteps = self.timesteps.draw(self.seed, 0, numbers)
        chances = streams(self.seed, "caption", 0, numbers)
        said = [self._caption(*each) for each in zip(batch.columns["captions"], chances, strict=True)]
        return self._collated(batch, threads, said, drawn=drawn, noise=noise, timesteps=timesteps)

    def measured(self, batch: Batch, threads: ThreadPoolExecutor, rows: int) -> ScratchBatch:
        """Return a batch of the `rows` held-out rows: each with its first caption, its mean latents, and fixed noise and timestep."""
        numbers, count = batch.numbers.tolist(), self.base.noise.config.num_train_timesteps
        noise = chance.normal(self.seed, "held-out noise", 0, numbers, self.shape)
        timesteps = torch.tensor([(2 * number + 1) * count // (2 * rows) for number in numbers]).clamp(max=count - 1)
        said = [variants[0] if variants else "" for variants in batch.columns["captions"]]
        return self._collated(batch, threads, said, drawn=torch.zeros_like(noise), noise=noise, timesteps=timesteps)

    def _collated(
        self, batch: Batch, threads: ThreadPoolExecutor, said: list[str], **drawn: torch.Tensor
    ) -> ScratchBatch:
        views = self._views(batch)
        pixels = posterior = None
        if self.column is None:
            pictures = list(threads.map(_picture, batch.columns["image"], views, batch.columns["sha256"]))
            pixels = torch.from_numpy(np.stack(pictures))
        else:
            posterior = torch.from_numpy(batch.columns[self.column]).reshape(len(batch), 2, *self.shape)
        return ScratchBatch(
            share=torch.full((len(batch),), 1 / self.phase.batch_size),
            numbers=torch.from_numpy(batch.numbers),
            pixels=pixels,
            posterior=posterior,
            sizes=torch.tensor([view.sizes for view in views], dtype=torch.float32),
            said=torch.tensor([text != "" for text in said]),
            ids=self._ids(said),
            words=self._words(batch, said),
            **drawn,
        )

    def _caption(self, captions: list[str], rng: np.random.Generator) -> str:
        dropped = rng.random() < self.spec.caption_drop
        if dropped or not captions:
            return ""
        return captions[0] if self.silence else captions[int(rng.integers(len(captions)))]

    def _views(self, batch: Batch) -> list[View]:
        columns = (batch.columns[name] for name in ("width", "height", "sha256"))
        side, crop = self.phase.resolution, self.phase.crop
        return [square(Size(width=w, height=h), side, crop, sha256) for w, h, sha256 in zip(*columns, strict=True)]

    def _ids(self, said: list[str]) -> tuple[torch.Tensor, ...]:
        """Tokenize the texts for each encoder, cut to what an encoder takes at once: (B, 1, L)."""
        if self.spec.part == "vae" or self.silence:
            return ()
        texts = tokenize(self.base, said)
        row_of = {text: row for row, text in enumerate(texts.texts)}
        rows = torch.tensor([row_of[text] for text in said])
        return tuple(ids[:, :1].index_select(0, rows) for ids in texts.ids)

    def _words(self, batch: Batch, said: list[str]) -> tuple[torch.Tensor, ...]:
        """Return the columns' embeddings of each row's first caption, or of the empty text for rows without words."""
        if self.silence is None:
            return ()
        silent = torch.tensor([text == "" for text in said])
        found = []
        for column, silence in ((TEXTS, self.silence.tokens), (POOLED, self.silence.pooled)):
            if silence is not None:
                words = torch.from_numpy(batch.columns[column]).float().reshape(len(batch), *silence.shape[1:])
                words[silent] = silence.float()
                found.append(words)
        return tuple(found)


def _picture(content: bytes, view: View, sha256: str) -> np.ndarray:
    try:
        with loaded(BytesIO(content), at_least=view.target.width) as image:
            return np.asarray(cut_view(as_seen(image), view))
    except Unreadable as error:
        raise BadInput(f"the image with SHA-256 {sha256} {error.because}", hint="convert the data again") from None


class ScratchBatches:
    """The batches of this rank."""

    def __init__(self, spec: ScratchSpec, base: LoadedBase, sets: list[DataSet], ranks: Ranks) -> None:
        self.spec = spec
        self.base = base
        self.sets = sets
        self.ranks = ranks
        check_data_sets(spec, sets)
        self.columns = [self._latents(phase) for phase in spec.phases]
        self.silence = self._silence()
        self.timesteps = TimestepSampler(spec, base.noise.config.num_train_timesteps)
        if all(self.columns):
            base.forget("vae")
        self._cache = data_cache()
        self._decoders = ThreadPoolExecutor(
            max(1, min(THREADS_MAX, cores() // ranks.count)), thread_name_prefix="decode"
        )
        self._open: tuple[int, Stream, Iterator[Batch]] | None = None

    def batch(self, step: int) -> ScratchBatch:
        """Return the batch of `step`. Steps are asked for in order: another one opens the data sets again."""
        moment = moment_of_step(self.spec.phases, step)
        return self._collator(moment.number).trained(next(self._batches(moment)), self._decoders)

    def held_out(self) -> tuple[ScratchBatch, int]:
        """Return this rank's share of the last phase's held-out rows on the CPU, and the number of all of them.

        Every rank's share has the same size, so it may hold rows past the last one, which the caller ignores.
        """
        number = len(self.spec.phases) - 1
        with self._stream(number, held_out=True) as stream:
            rows = min(stream.rows, self.spec.held_out_rows)
            batch = next(stream.batches(0, -(-rows // self.ranks.count)))
            return self._collator(number).measured(batch, self._decoders, rows), rows

    def first_pictures(self, most: int) -> ScratchBatch:
        """Return at most `most` samples of the last phase, the same on every rank; on the CPU."""
        number = len(self.spec.phases) - 1
        with self._stream(number, ranks=Ranks()) as rows:
            return self._collator(number).trained(next(rows.batches(0, min(most, rows.rows))), self._decoders)

    def close(self) -> None:
        self._decoders.shutdown(wait=False, cancel_futures=True)
        if self._open:
            self._open[1].close()

    def _latents(self, phase: TrainingPhase) -> str | None:
        """Return the column with a phase's latents, or None if images are encoded in each step. Raise `BadInput` if another VAE made the
        column: the U-Net would learn latents that the base's VAE cannot decode."""
        if self.spec.part == "vae" or phase.latents == "off":
            return None
        name = latents_column(phase.resolution, phase.crop)
        lacking = [data for data in self.sets if not isinstance(data.computed().get(name), LatentsColumn)]
        if lacking:
            return None
        for data in self.sets:
            latents = data.latents(name)
            theirs = latents.vae, latents.scale, latents.shift
            if theirs != self._vae_scaling:
                raise BadInput(
                    f"the latents {name} of {data.place.uri} were made with another VAE ({_short(theirs)}) than the base's "
                    f"({_short(self._vae_scaling)})",
                    hint="train with the base that they were made with, set latents to off, or make them again: `gangline data encode`",
                )
        return name

    def _silence(self) -> Embedded | None:
        """Return the embedding of the empty text, or None if captions are embedded in each step. Raise `BadInput` if other encoders made
        the columns.

        The encoders run in float32 like those that made the columns: in the precision of the steps their weights, and so their digest,
        differ.
        """
        if self.spec.text_embeddings == "off":
            return None
        base = replace(self.base, dtype=torch.float32)
        digest = text_encoders_digest(base)
        for data in self.sets:
            theirs = data.texts().encoders
            if theirs != digest:
                raise BadInput(
                    f"the captions of {data.place.uri} were embedded by other text encoders (SHA-256 {theirs[:12]}…) than the base's "
                    f"({digest[:12]}…)",
                    hint="train with the base that they were made with, set text_embeddings to off, or make them again",
                )
        return embed_all(base, tokenize(base, [""]))

    @cached_property
    def _vae_scaling(self) -> "VaeScaling":
        vae = self.base.vae
        return weights_digest(vae), vae.config.scaling_factor, vae.config.get("shift_factor") or 0.0

    def _batches(self, moment: Moment) -> Iterator[Batch]:
        if self._open is None or self._open[0] != moment.number:
            if self._open:
                self._open[1].close()
            rows = self._stream(moment.number)
            self._open = (
                moment.number,
                rows,
                rows.batches(moment.first_sample, moment.phase.batch_size // self.ranks.count),
            )
        return self._open[2]

    def _stream(self, number: int, *, held_out: bool = False, ranks: Ranks | None = None) -> Stream:
        phase, of = self.spec.phases[number], ranks or self.ranks
        columns = (*ALWAYS, self.columns[number] or "image")
        if self.silence:
            columns += (TEXTS,) if self.silence.pooled is None else (TEXTS, POOLED)
        readers = [
            DataReader(data, ReadOrder(columns=columns, seed=_seed(self.spec, number), where=where), cache=self._cache)
            for data, ref in zip(self.sets, self.spec.data, strict=True)
            for where in (wanted_rows(self.spec, ref, phase, held_out=held_out),)
        ]
        return Stream(readers, weights=[ref.weight for ref in self.spec.data], rank=of.rank, ranks=of.count)

    def _collator(self, number: int) -> Collator:
        phase, seed = self.spec.phases[number], _seed(self.spec, number)
        return Collator(self.spec, phase, seed, self.base, self.columns[number], self.silence, self.timesteps)


def _seed(spec: ScratchSpec, phase: int) -> int:
    return int(stream(spec.seed, "phase", phase).integers(2**63))
