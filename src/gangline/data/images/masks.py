"""Where in a photo the loss counts: all where a mask is white, not at all where it is black."""

from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from gangline.core.errors import BadInput
from gangline.data.images.buckets import Size, View, cut
from gangline.data.images.pixels import read_alpha, read_photo, shown

if TYPE_CHECKING:
    import numpy as np

ASPECT_TOLERANCE = 0.02


def read_mask(path: Path, view: View, *, alpha: bool = False) -> "np.ndarray":
    """float32 (h, w) of the view's target, in [0, 1], from a picture of the whole photo, or the photo's own transparency.

    A mask may be smaller or larger than its photo. A photo without transparency counts everywhere.
    """
    import numpy as np  # the command line checks masks without it

    whole = read_alpha(path) if alpha else read_photo(path).convert("L")
    if whole is None:
        return np.ones((view.target.height, view.target.width), dtype=np.float32)
    check_fits(shown(path), Size(width=whole.width, height=whole.height), view.original)
    return np.asarray(cut(whole, view, Image.Resampling.BILINEAR), dtype=np.float32) / 255


def check_fits(name: str, mask: Size, photo: Size) -> None:
    """Raises `BadInput` where a mask has another shape than its photo."""
    ratio = (mask.width * photo.height) / (mask.height * photo.width)
    if not 1 / (1 + ASPECT_TOLERANCE) <= ratio <= 1 + ASPECT_TOLERANCE:
        raise BadInput(
            f"the mask {name} is {mask}, its photo {photo}", hint="a mask shows the whole photo, upright, at any size"
        )
