"""A base from the hub: pinned to a commit, fetched once, then read from the cache with no network."""

from pathlib import Path

import pytest

from gangline.adapters.hub import HuggingFaceHub
from gangline.core.errors import Unreachable
from tests.conftest import BASE

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "somebody/tiny-sdxl"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The layout that the hub's own client writes."""
    snapshot = tmp_path / "models--somebody--tiny-sdxl" / "snapshots" / COMMIT
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(BASE, target_is_directory=True)
    return tmp_path


def test_a_commit_pins_itself() -> None:
    assert HuggingFaceHub().pin(REPO, COMMIT) == COMMIT


def test_a_base_that_was_fetched_before_needs_no_network(cache: Path) -> None:
    folder = HuggingFaceHub(cache).fetch(REPO, COMMIT)
    assert (folder / "model_index.json").is_file()


def test_a_download_that_was_cut_off_is_not_taken_for_a_base(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--somebody--tiny-sdxl" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model_index.json").write_text("{}")
    with pytest.raises(Unreachable):
        HuggingFaceHub(tmp_path).fetch(REPO, COMMIT)


def test_a_hub_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="somebody/tiny-sdxl at main"):
        HuggingFaceHub(tmp_path).pin(REPO, "main")
