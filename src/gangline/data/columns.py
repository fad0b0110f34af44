"""The columns of a data set that were computed: what each says in its own metadata of how it was made. It knows no table."""

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
    """A column of image latents: of each image `[mean, deviation]` of the VAE's posterior, C × H × W each, as the VAE gives them:
    not multiplied by `scale`, which is what a U-Net expects (z · scale).

    `vae` is the SHA-256 of its weights; `precision` that of the stored numbers; `compute_precision` that in which the VAE made them,
    None where it was not kept. `drawn`: instead of the mean there are latents that were drawn from the posterior once, elsewhere, and a
    deviation of zero.
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
    """A column of embeddings of each row's first caption, `tokens` × `width` numbers, as the encoders give them; where the family
    has pooled ones (`pooled` numbers), these lie in a column of the same name with `_pooled`.

    `encoders` is the SHA-256 of their weights. 77 × 2048 numbers are 315 KB in half precision: ten times a 512-pixel image's latents.
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
    """With what is known of it."""
    kind = next(name for name, of in KINDS.items() if isinstance(known, of))
    return column.with_metadata({KEY: json.dumps({"kind": kind} | asdict(known)).encode()})


def known_of(column: pa.Field) -> Computed | None:
    if not column.metadata or KEY not in column.metadata:
        return None
    value: dict[str, Any] = json.loads(column.metadata[KEY])
    return KINDS[value.pop("kind")](**value)
