"""Which part of a picture a square of some resolution shows: the same whenever and wherever somebody asks."""

from typing import Literal

from gangline.data.chance import stream
from gangline.data.images.buckets import Size, View, views

Crop = Literal["center", "random"]
DIGITS = 15
"""Of a SHA-256: what a 64-bit number holds."""


def square(size: Size, resolution: int, crop: Crop, sha256: str) -> View:
    """`random` is drawn from the picture's own hash, so that one picture has one place."""
    rng = stream(int(sha256[:DIGITS], 16), "crop") if crop == "random" else None
    return views(size, Size(width=resolution, height=resolution), crop=crop, rng=rng)[0]
