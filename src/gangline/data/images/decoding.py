"""Decode a photo once into its views, with the weight of each pixel in the loss."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from gangline.data.images.buckets import View, cut_view
from gangline.data.images.masks import check_shape
from gangline.data.images.pixels import read_both, read_photo

if TYPE_CHECKING:
    import numpy as np

CHANNELS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A photo to decode. `mask` is a separate file, or the photo itself, whose transparency is then the mask."""

    photo: Path
    mask: Path | None
    views: tuple[View, ...]

    @property
    def bytes_seen(self) -> int:
        """Bytes of all views, with their masks."""
        return sum(view.target.area for view in self.views) * (CHANNELS + (self.mask is not None))

    @property
    def bytes_at_most(self) -> int:
        """Peak of bytes while decoding: the photo as stored and as seen, and its views."""
        return 2 * CHANNELS * self.views[0].original.area + self.bytes_seen


@dataclass(frozen=True, slots=True)
class DecodedView:
    """A view in uint8: pixels (H, W, 3), and if there is a mask, the weight of each pixel (H, W)."""

    pixels: "np.ndarray"
    mask: "np.ndarray | None"


def decode_views(asked: Asked) -> list[DecodedView]:
    """Return every view of a photo. Raise `BadInput` that names the file."""
    photo, mask = _read(asked)
    if asked.mask and mask:
        check_shape(asked.mask, mask, asked.views[0].original)
    return [DecodedView(_array(cut_view(photo, view)), _mask(asked, mask, view)) for view in asked.views]


def _read(asked: Asked) -> tuple[Image.Image, Image.Image | None]:
    if asked.mask is None:
        return read_photo(asked.photo), None
    if asked.mask == asked.photo:
        return read_both(asked.photo)
    return read_photo(asked.photo), read_photo(asked.mask).convert("L")


def _mask(asked: Asked, whole: Image.Image | None, view: View) -> "np.ndarray | None":
    import numpy as np

    if asked.mask is None:
        return None
    if whole is None:  # a photo without transparency counts everywhere
        return np.full((view.target.height, view.target.width), 255, dtype=np.uint8)
    return _array(cut_view(whole, view, Image.Resampling.BILINEAR))


def _array(image: Image.Image) -> "np.ndarray":
    import numpy as np

    return np.asarray(image)
