"""Pictures are scaled by Pillow, of which builds with other code for some processors exist: it does what the filters say."""

from collections.abc import Callable
from math import floor

import numpy as np
import pytest
from PIL import Image

from gangline.data.images.buckets import Size, View, cut_view

FILTERS: dict[Image.Resampling, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    Image.Resampling.LANCZOS: (3, lambda x: np.sinc(x) * np.sinc(x / 3)),
    Image.Resampling.BILINEAR: (1, lambda x: 1 - np.abs(x)),
    Image.Resampling.BOX: (0.5, np.ones_like),
}


def matrix(before: int, after: int, how: Image.Resampling) -> np.ndarray:
    """Each row makes a pixel: the filter, stretched over what it is shrunk by, at the centres of the pixels below it."""
    reach, weigh = FILTERS[how]
    scale = before / after
    stretch = max(scale, 1)
    made = np.zeros((after, before))
    for row in range(after):
        centre = (row + 0.5) * scale
        first = max(floor(centre - reach * stretch + 0.5), 0)
        last = min(floor(centre + reach * stretch + 0.5), before)
        weights = weigh((np.arange(first, last) + 0.5 - centre) / stretch)
        made[row, first:last] = weights / weights.sum()
    return made


@pytest.mark.parametrize("how", FILTERS, ids=lambda how: how.name)
@pytest.mark.parametrize(("before", "after"), [((201, 135), (64, 48)), ((67, 131), (41, 83)), ((37, 23), (80, 57))])
def test_a_picture_is_scaled_as_its_filter_says_but_for_rounding(
    how: Image.Resampling, before: tuple[int, int], after: tuple[int, int]
) -> None:
    pixels_HWC = np.random.default_rng(0).integers(0, 256, (before[1], before[0], 3), dtype=np.uint8)
    target = Size(width=after[0], height=after[1])
    whole = View(original=Size(width=before[0], height=before[1]), scaled=target, target=target, left=0, top=0)
    scaled = np.asarray(cut_view(Image.fromarray(pixels_HWC), whole, how), dtype=float)
    across = np.einsum("xw,hwc->hxc", matrix(before[0], after[0], how), pixels_HWC.astype(float))
    wanted = np.einsum("yh,hxc->yxc", matrix(before[1], after[1], how), np.clip(across, 0, 255))
    assert np.abs(scaled - np.clip(wanted, 0, 255)).max() <= 1.5  # each of two passes rounds, and filters add a little
