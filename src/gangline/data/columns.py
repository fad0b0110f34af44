"""The computed columns of a data set: their metadata states how each was made. This module knows no table."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from gangline.data.images.crops import Crop

KEY = b"gangline"
TEXTS = "texts"
POOLED = "texts_pooled"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentsColumn:
    """A column of image latents: for each image `[mean, deviation]` of the VAE's posterior, C × H × W each, not yet multiplied by `scale`;
    a U-Net expects z · scale.

    `vae` is the SHA-256 of its weights, `precision` the dtype of the stored numbers, and `compute_precision` the dtype that the VAE
    computed in, None if unknown. If `drawn`, another tool drew latents from the posterior once: they replace the mean, and the
    deviation is zero.
    """

    vae: str
    scale: float
    shift: float
    channels: int
    side: int
    resolution: int
    crop: str
    precision: str
    compute_precision: str | None = None
    drawn: bool = False

    @property
    def numbers(self) -> int:
        return 2 * self.channels * self.side * self.side


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsColumn:
    """A column of embeddings of each row's first caption, `tokens` × `width` numbers. Pooled embeddings, `pooled` numbers if the family has
    them, are in a column of the same name with `_pooled`.

    `encoders` is the SHA-256 of their weights. 77 × 2048 numbers are 315 KB in half precision: 4.8 times a 512-pixel image's latents.
    """

    encoders: str
    tokens: int
    width: int
    pooled: int
    precision: str


KINDS: dict[str, type] = {"latents": LatentsColumn, "texts": TextsColumn}
Computed = LatentsColumn | TextsColumn


def latents_column(resolution: int, crop: Crop) -> str:
    return f"latents_{resolution}" if crop == "center" else f"latents_{resolution}_{crop}"


def described(column: pa.Field, known: Computed) -> pa.Field:
    """Return the column with `known` in its metadata."""
    kind = next(name for name, of in KINDS.items() if isinstance(known, of))
    return column.with_metadata({KEY: json.dumps({"kind": kind} | asdict(known)).encode()})


def known_of(column: pa.Field) -> Computed | None:
    """Return how a column was computed, from its metadata, or None if it was not."""
    if not column.metadata or KEY not in column.metadata:
        return None
    value: dict[str, Any] = json.loads(column.metadata[KEY])
    return KINDS[value.pop("kind")](**value)
