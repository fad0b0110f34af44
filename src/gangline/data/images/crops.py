"""Decide which part of a picture a square of some resolution shows: the same on every machine and in every run."""

from typing import Literal

from gangline.data.chance import stream
from gangline.data.images.buckets import Size, View, views

Crop = Literal["center", "random"]
DIGITS = 15
"""Hexadecimal digits of a SHA-256 that fit into a 64-bit number."""


def square(size: Size, resolution: int, crop: Crop, sha256: str) -> View:
    """Return the view. A `random` crop is drawn from the picture's own hash, so that each picture has one position."""
    rng = stream(int(sha256[:DIGITS], 16), "crop") if crop == "random" else None
    return views(size, Size(width=resolution, height=resolution), crop=crop, rng=rng)[0]
