"""Which picture stands in a message."""

import pytest

from gangline.core.notices.pictures import PICTURE_BYTES_MAX, picture_shown, picture_type

STEPS = {f"samples/step-{step:06d}/prompt-00-seed-1.png": 10 for step in (10, 200, 90)}
RESULT = {"samples/prompt-01-seed-1.png": 10, "samples/prompt-00-seed-1.png": 10, "samples/photos.png": 10}
GRID = {"samples/grid.png": 10}
OTHERS = {"lora.safetensors": 10, "samples/step-000300/samples.json": 10, "grid.png": 10}


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (STEPS | RESULT | GRID | OTHERS, "samples/grid.png"),
        (STEPS | RESULT | OTHERS, "samples/prompt-00-seed-1.png"),
        (STEPS | OTHERS, "samples/step-000200/prompt-00-seed-1.png"),
        (STEPS | {"samples/photos.png": 10}, "samples/step-000200/prompt-00-seed-1.png"),
        (OTHERS, None),
        ({"samples/photos.png": 10}, None),
        ({}, None),
    ],
)
def test_the_grid_of_the_result_comes_first_then_its_pictures_then_those_of_the_last_step(
    files: dict[str, int], shown: str | None
) -> None:
    assert picture_shown(files) == shown


def test_a_picture_that_is_too_long_is_left_out() -> None:
    assert (
        picture_shown(STEPS | {"samples/grid.png": PICTURE_BYTES_MAX + 1}) == "samples/step-000200/prompt-00-seed-1.png"
    )
    assert picture_shown({"samples/grid.png": PICTURE_BYTES_MAX}) == "samples/grid.png"


def test_the_first_bytes_say_what_a_picture_is() -> None:
    assert picture_type(b"\x89PNG\r\n\x1a\n...") == "image/png"
    assert picture_type(b"\xff\xd8\xff\xe0...") == "image/jpeg"
    assert picture_type(b"<svg onload=alert(1)>") is picture_type(b"") is None
