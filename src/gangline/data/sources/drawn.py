"""Latents that a source has of its images, in the format of MosaicML's diffusion: `latents_512` holds the bytes of a square's latents in
half precision, drawn once from the VAE's posterior and multiplied by the VAE's scale. Only the user knows which VAE it was."""

import re
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from gangline.core.errors import BadInput
from gangline.data.columns import LatentsColumn, described, latents_column

IMAGES = re.compile(r"latents_([1-9]\d{0,3})")
TEXTS = "caption_latents"
STORED = np.dtype("<f2")


class Unusable(Exception):
    """Raised if a sample has no usable latents; the message is a phrase that is counted."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A column of the source, and the `latents` that it holds once divided by `scale`."""

    name: str
    latents: LatentsColumn
    scale: float

    @property
    def column(self) -> str:
        """The name of its column in the data set."""
        return latents_column(self.latents.resolution, "center")

    @property
    def field(self) -> pa.Field:
        return described(
            pa.field(self.column, pa.list_(pa.from_numpy_dtype(STORED), self.latents.numbers)), self.latents
        )

    @property
    def asked(self) -> str:
        return f"{self.name} / {self.scale}: {sorted(asdict(self.latents).items())}"

    def read(self, stored: bytes | None) -> np.ndarray:
        """Return mean and deviation (2·C·side·side,) in float16, as `data encode` stores them; the deviation of drawn latents is zero.
        Raise `Unusable`."""
        if not stored:
            raise Unusable(f"no {self.name}")
        if len(stored) != self.latents.numbers // 2 * STORED.itemsize:
            raise Unusable(
                f"{self.name} of another size than {self.latents.channels} × {self.latents.side} × {self.latents.side}"
            )
        mean = (np.frombuffer(stored, STORED).astype(np.float32) / self.scale).astype(STORED)
        if not np.isfinite(mean).all():
            raise Unusable(f"{self.name} with numbers that are not finite")
        return np.concatenate((mean, np.zeros_like(mean)))


def resolution_of(name: str) -> int:
    """Return the resolution in a column's name. Raise `BadInput` if there is none."""
    found = IMAGES.fullmatch(name)
    if not found:
        raise BadInput(
            f"{name} is not a column of latents", hint="their names have the resolution, such as latents_512"
        )
    return int(found[1])


def notes_on(names: list[str]) -> tuple[str, ...]:
    """Return notes for the user on columns of latents that are skipped."""
    images = [name for name in names if IMAGES.fullmatch(name)]
    notes = []
    if images:
        notes.append(
            f"{', '.join(images)}: skipped; to keep them, name the model whose VAE made them with --latents-of MODEL; "
            "`gangline data encode` makes new ones"
        )
    if TEXTS in names:
        notes.append(
            f"{TEXTS}: skipped; MosaicML's script embeds no text for every tenth caption, so `gangline data encode --texts` makes them"
        )
    return tuple(notes)
