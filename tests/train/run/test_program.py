"""What a trainer's end says: whose fault an error is."""

from errno import EEXIST, EISDIR, ENAMETOOLONG, ENOTDIR
from pathlib import Path

import pytest

from gangline.core.errors import BadInput
from gangline.data.bases import read_json
from gangline.train.model.layouts import as_bad_input
from gangline.train.program import kind_among

INPUTS = Path("/runs/a/inputs")


def misnamed(number: int, path: Path) -> OSError:
    return OSError(number, "cannot be opened", str(path))


@pytest.mark.parametrize("number", [ENAMETOOLONG, EISDIR, EEXIST, ENOTDIR])
def test_an_input_whose_name_no_disk_can_hold_is_bad_data(number: int) -> None:
    assert kind_among(INPUTS, misnamed(number, INPUTS / "base" / "model_index.json")) == "bad data"


def test_the_same_error_at_a_file_that_is_no_input_is_a_crash() -> None:
    assert kind_among(INPUTS, misnamed(EISDIR, INPUTS.parent / "output" / "x")) == "crashed"
    assert kind_among(INPUTS, OSError(EISDIR, "no file is named")) == "crashed"


def test_what_is_nested_too_deep_to_read_is_bad_data() -> None:
    assert kind_among(INPUTS, RecursionError("maximum recursion depth exceeded")) == "bad data"


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000])
def test_a_deep_configuration_of_a_base_is_bad_input(tmp_path: Path, content: str) -> None:
    path = tmp_path / "unet" / "model_index.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(BadInput, match=r"model_index\.json of the base cannot be read"):
        read_json(path)


def test_a_library_that_meets_deep_json_is_bad_input() -> None:
    with pytest.raises(BadInput, match="the base's unet cannot be loaded"), as_bad_input("the base's unet"):
        raise RecursionError("maximum recursion depth exceeded")
