"""The models that compute a data set's columns, image latents and text embeddings, from batches of rows."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from gangline.core.errors import BadInput
from gangline.data.columns import POOLED, TEXTS, LatentsColumn, TextsColumn, described, latents_column
from gangline.data.images.buckets import Size, cut_view
from gangline.data.images.crops import Crop, square
from gangline.data.images.pixels import as_seen, loaded
from gangline.data.place import DataPlace
from gangline.train.model.base import LoadedBase, load_base
from gangline.train.model.digest import text_encoders_digest, weights_digest
from gangline.train.model.text import embed_all, tokenize
from gangline.train.run.library_output import silence_libraries
from gangline.train.run.memory import is_out_of_memory
from gangline.train.run.numerics import device

STORED = np.float16


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """A request to encode. `base` is a model's folder or file on this machine, `vae` another VAE for it; they compute in `dtype`."""

    target: DataPlace
    version: int
    base: Path
    vae: Path | None
    resolutions: tuple[int, ...]
    crop: Crop = "center"
    texts: bool = False
    dtype: str = "float32"
    batch_size: int = 8

    @property
    def work(self) -> DataPlace:
        return self.target.beside(".encoding")


class Encoder:
    """The models, loaded, and the columns that they make."""

    def __init__(self, encoding: Encoding) -> None:
        silence_libraries()
        self.encoding = encoding
        on = device()
        number = (multiprocessing.current_process()._identity or (1,))[0] - 1
        if on.type == "cuda":
            on = torch.device("cuda", number % torch.cuda.device_count())
        self.base: LoadedBase = load_base(encoding.base, on, torch.float32, vae=encoding.vae)
        self.dtype = getattr(torch, encoding.dtype)

    @cached_property
    def vae(self) -> Any:
        self.vae_digest = weights_digest(self.base.vae)
        return self.base.vae.to(self.dtype)

    @cached_property
    def latents(self) -> dict[str, LatentsColumn]:
        """The latent columns by name. Raises `BadInput` if a resolution does not suit the model."""
        config = self.vae.config
        unit = self.base.latent_factor
        wrong = [side for side in self.encoding.resolutions if side % unit]
        if wrong:
            raise BadInput(f"resolution {wrong[0]} is not a multiple of {unit}", hint="this VAE needs a multiple")
        hashed = self.vae_digest
        return {
            latents_column(resolution, self.encoding.crop): LatentsColumn(
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
    def texts(self) -> TextsColumn | None:
        if not self.encoding.texts:
            return None
        one = embed_all(self.base, tokenize(self.base, ["a"]))
        pooled = 0 if one.pooled is None else one.pooled.shape[-1]
        tokens, width = one.tokens.shape[1:]
        return TextsColumn(
            encoders=text_encoders_digest(self.base),
            tokens=tokens,
            width=width,
            pooled=pooled,
            precision=np.dtype(STORED).name,
        )

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns that are added."""
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
        """Return those columns for these rows. Raise `BadInput` if memory has no room for a batch."""
        try:
            return self._encoded(batch)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            side = max(self.encoding.resolutions)
            raise BadInput(
                f"{self.encoding.batch_size} images of {side} × {side} at a time do not fit into memory",
                hint="set a smaller --batch-size; finished work is kept",
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
        """Return the image cut for each resolution, (H, W, 3), uint8."""
        with loaded(BytesIO(content)) as image:
            picture: Image.Image = as_seen(image)
        size = Size(width=picture.width, height=picture.height)
        return [
            np.asarray(cut_view(picture, square(size, resolution, self.encoding.crop, hashed)))
            for resolution in self.encoding.resolutions
        ]

    @torch.no_grad()
    def _posterior(self, pixels_NHWC: np.ndarray, latents: LatentsColumn) -> np.ndarray:
        """Return mean and deviation of the latents, (N, 2·C·h·w), float16."""
        pixels = torch.from_numpy(pixels_NHWC).to(self.base.device).permute(0, 3, 1, 2).to(self.dtype) / 127.5 - 1
        posterior = self.vae.encode(pixels).latent_dist
        found = torch.stack((posterior.mean, posterior.std), dim=1).float()
        if not found.isfinite().all():
            raise BadInput(
                f"this VAE computes values that are not finite in {self.encoding.dtype}",
                hint="compute in float32, or use another VAE, for SDXL madebyollin/sdxl-vae-fp16-fix",
            )
        return found.cpu().numpy().astype(STORED).reshape(len(pixels_NHWC), latents.numbers)

    def _embed(self, said: list[str], made: dict[str, list[np.ndarray]]) -> None:
        unique = tokenize(self.base, said)
        one_piece = type(unique)(unique.texts, tuple(ids[:, :1] for ids in unique.ids))
        found = embed_all(self.base, one_piece, at_once=self.encoding.batch_size)
        row_of = {text: row for row, text in enumerate(unique.texts)}
        rows = [row_of[text] for text in said]
        made[TEXTS].append(found.tokens[rows].flatten(1).numpy().astype(STORED))
        if found.pooled is not None:
            made[POOLED].append(found.pooled[rows].numpy().astype(STORED))


def _listed(rows: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=kind)
