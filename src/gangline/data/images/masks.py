"""Masks weigh the loss within a photo: fully where they are white, not at all where they are black."""

from pathlib import Path

from PIL import Image

from gangline.core.errors import BadInput
from gangline.data.images.buckets import Size
from gangline.data.images.pixels import printable_path

ASPECT_TOLERANCE = 0.02


def check_shape(path: Path, mask: Image.Image, photo: Size) -> None:
    """Raise `BadInput` if the mask in that file has another aspect than its photo; its size may differ."""
    check_fits(printable_path(path), Size(width=mask.width, height=mask.height), photo)


def check_fits(name: str, mask: Size, photo: Size) -> None:
    """Raise `BadInput` if a mask has another aspect than its photo."""
    ratio = (mask.width * photo.height) / (mask.height * photo.width)
    if not 1 / (1 + ASPECT_TOLERANCE) <= ratio <= 1 + ASPECT_TOLERANCE:
        raise BadInput(
            f"the mask {name} is {mask}, its photo {photo}", hint="a mask shows the whole photo, upright, at any size"
        )
