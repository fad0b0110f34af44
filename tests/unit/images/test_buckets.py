"""Pictures of any shape are cut to a few sizes of about one area, and what was cut is known."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gangline.data.chance import stream
from gangline.data.images.buckets import Size, View, buckets, cut_view, nearest, targets, views

SIZES = st.builds(Size, width=st.integers(1, 5000), height=st.integers(1, 5000))


def size(width: int, height: int) -> Size:
    return Size(width=width, height=height)


def test_the_buckets_of_1024_are_those_that_sdxl_was_trained_on_from_1_to_2() -> None:
    wide = [(1024, 1024), (1088, 960), (1152, 896), (1216, 832), (1280, 768), (1344, 768), (1408, 704)]
    assert {(bucket.width, bucket.height) for bucket in targets(1024, True, 8)} == {
        *wide,
        *((high, low) for low, high in wide),
    }


@given(st.integers(2, 300).map(lambda eighths: eighths * 8), st.sampled_from([8, 16, 32, 64]))
def test_buckets_are_never_larger_than_asked_nor_narrower_than_1_to_2(resolution: int, step: int) -> None:
    found = buckets(resolution, step)
    assert found
    assert {size(bucket.height, bucket.width) for bucket in found} == set(found)
    for bucket in found:
        assert bucket.area <= resolution**2
        assert max(bucket.width, bucket.height) <= 2 * min(bucket.width, bucket.height)
        assert resolution < step or bucket.width % step == bucket.height % step == 0
        assert 2 * bucket.area >= resolution**2 or resolution < 4 * step


def test_a_resolution_that_steps_divide_has_its_square() -> None:
    for resolution in (64, 256, 512, 768, 1024):
        assert size(resolution, resolution) in targets(resolution, True, 8)


def test_without_buckets_there_is_the_square() -> None:
    assert targets(1000, False, 8) == [size(1000, 1000)]


@pytest.mark.parametrize(
    ("photo", "bucket"),
    [
        (size(4000, 3000), size(1152, 896)),
        (size(3000, 4000), size(896, 1152)),
        (size(1, 1), size(1024, 1024)),
        (size(6000, 4000), size(1216, 832)),
        (size(9000, 100), size(1408, 704)),
    ],
)
def test_a_photo_goes_to_the_bucket_of_its_shape(photo: Size, bucket: Size) -> None:
    assert nearest(photo, targets(1024, True, 8)) == bucket


def every_view(photo: Size, bucket: Size) -> Iterator[View]:
    yield from views(photo, bucket, flip=True)
    yield from views(photo, bucket, crop="random", crops=3, flip=True, rng=stream(1, "crops"))


@given(SIZES, st.sampled_from(buckets(256, 32)))
def test_a_view_lies_in_the_photo_and_has_the_shape_of_its_bucket(photo: Size, bucket: Size) -> None:
    for view in every_view(photo, bucket):
        left, top, right, bottom = view.box
        assert 0 <= left < right <= photo.width
        assert 0 <= top < bottom <= photo.height
        assert 0 <= view.left <= view.scaled.width - bucket.width
        assert 0 <= view.top <= view.scaled.height - bucket.height
        assert bucket.width == view.scaled.width or bucket.height == view.scaled.height
        original_height, original_width, crop_top, crop_left, height, width = view.sizes
        assert (original_width, original_height, width, height) == (
            photo.width,
            photo.height,
            bucket.width,
            bucket.height,
        )
        assert 0 <= crop_left <= view.scaled.width - width
        assert 0 <= crop_top <= view.scaled.height - height


def test_every_photo_has_as_many_views() -> None:
    assert len(views(size(64, 64), size(64, 64), crop="random", crops=3, flip=True, rng=stream(1, "x"))) == 6
    assert len(views(size(640, 64), size(64, 64), crop="random", crops=3, flip=True, rng=stream(1, "x"))) == 6
    assert len(views(size(640, 64), size(64, 64), crops=3)) == 1


def test_random_places_are_those_of_their_stream() -> None:
    wide, square = size(640, 64), size(64, 64)
    drawn = views(wide, square, crop="random", crops=8, rng=stream(1, "crops"))
    assert drawn == views(wide, square, crop="random", crops=8, rng=stream(1, "crops"))
    assert len({view.left for view in drawn}) > 4


def test_what_is_cut_is_what_the_view_says() -> None:
    ramp = np.zeros((50, 200, 3), dtype=np.uint8)
    ramp[:, :, 0] = np.arange(200)
    ramp[:, :, 1] = np.arange(50)[:, None]
    photo = Image.fromarray(ramp)
    view = View(original=size(200, 50), scaled=size(200, 50), target=size(40, 50), left=30, top=0)
    assert np.array_equal(np.asarray(cut_view(photo, view)), ramp[:, 30:70])
    mirrored = View(original=size(200, 50), scaled=size(200, 50), target=size(40, 50), left=30, top=0, mirrored=True)
    assert np.array_equal(np.asarray(cut_view(photo, mirrored)), ramp[:, 69:29:-1])
    assert mirrored.sizes[3] == 200 - 40 - 30


def test_cutting_the_box_is_scaling_all_and_cutting_then() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8))
    (view,) = views(size(400, 300), size(64, 64))
    whole = noise.resize((view.scaled.width, view.scaled.height), Image.Resampling.LANCZOS)
    then = whole.crop((view.left, view.top, view.left + 64, view.top + 64))
    inner = np.s_[:, 3:-3]  # at its edges the box knows nothing of what lies beside it
    assert np.abs(np.asarray(then, dtype=int)[inner] - np.asarray(cut_view(noise, view), dtype=int)[inner]).max() <= 2


def test_a_mile_of_photo_is_cut_in_the_memory_of_its_bucket() -> None:
    assert cut_view(Image.new("RGB", (60_000, 2)), views(size(60_000, 2), size(1408, 704))[0]).size == (1408, 704)
