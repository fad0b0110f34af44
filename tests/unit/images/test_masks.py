"""A mask is cut as its photo is, and counts where it is white."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gangline.core.errors import BadInput
from gangline.data.images.buckets import Size, View, views
from gangline.data.images.decoding import Asked, decode_views

PHOTO = Size(width=400, height=200)


def right_half_white(width: int, height: int) -> Image.Image:
    mask = Image.new("L", (width, height), 0)
    mask.paste(255, (width // 2, 0, width, height))
    return mask


def read_mask(path: Path, view: View, *, alpha: bool = False) -> np.ndarray:
    photo = path if alpha else path.with_name("photo.png")
    if not alpha:
        Image.new("RGB", (PHOTO.width, PHOTO.height)).save(photo)
    (seen,) = decode_views(Asked(photo=photo, mask=path, views=(view,)))
    assert seen.mask is not None
    return seen.mask


@pytest.mark.parametrize(("width", "height"), [(400, 200), (100, 50), (1001, 500)])
def test_a_mask_of_any_size_is_cut_as_its_photo_is(tmp_path: Path, width: int, height: int) -> None:
    right_half_white(width, height).save(tmp_path / "a.png")
    plain, mirrored = views(PHOTO, Size(width=64, height=64), flip=True)
    seen = read_mask(tmp_path / "a.png", plain)
    assert (seen.shape, seen.dtype) == ((64, 64), np.uint8)
    assert (seen[:, :30].max(), seen[:, 34:].min()) == (0, 255)
    assert np.array_equal(read_mask(tmp_path / "a.png", mirrored), seen[:, ::-1])


def test_the_transparency_of_a_photo_is_its_mask(tmp_path: Path) -> None:
    photo = Image.new("RGBA", (400, 200), "red")
    photo.putalpha(right_half_white(400, 200))
    photo.save(tmp_path / "a.png")
    seen = read_mask(tmp_path / "a.png", views(PHOTO, Size(width=64, height=64))[0], alpha=True)
    assert (seen[:, :30].max(), seen[:, 34:].min()) == (0, 255)


def test_a_photo_without_transparency_counts_everywhere(tmp_path: Path) -> None:
    Image.new("RGB", (400, 200)).save(tmp_path / "a.jpg")
    assert read_mask(tmp_path / "a.jpg", views(PHOTO, Size(width=64, height=32))[0], alpha=True).min() == 255


def test_a_mask_of_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    right_half_white(200, 400).save(tmp_path / "a.png")
    with pytest.raises(BadInput, match=r"the mask a\.png is 200 × 400, its photo 400 × 200"):
        read_mask(tmp_path / "a.png", views(PHOTO, Size(width=64, height=64))[0])
