"""What other programs wrote becomes a data set with each of its samples, byte for byte: `written/` holds what they wrote."""

import json
from pathlib import Path

import pytest

from gangline.data.making.conversion import left_out
from gangline.data.sources import Hints
from tests.data.made import converted, rows_of

WRITTEN = Path(__file__).parent / "written"
EXPECTED = {
    " ".join(caption.split()): digest for caption, digest in json.loads((WRITTEN / "expected.json").read_text())
}

SOURCES = {
    "datasets/saved": ("tables", {}),
    "datasets/table": ("tables", {}),
    "img2dataset/files": ("folder", {}),
    "img2dataset/webdataset": ("tars", {}),
    "img2dataset/parquet": ("tables", {"no image in the row": 1}),
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_other_programs_wrote_has_each_sample_once_with_its_own_bytes(source: str, tmp_path: Path) -> None:
    data, done = converted(WRITTEN / source, tmp_path / "made.lance")
    assert {caption: row["sha256"] for caption, row in rows_of(data).items()} == EXPECTED
    assert left_out(done) == SOURCES[source][1]


@pytest.mark.parametrize("form", ["files", "webdataset"])
def test_numbers_and_texts_of_img2dataset_are_kept_as_columns(form: str, tmp_path: Path) -> None:
    data, _ = converted(WRITTEN / "img2dataset" / form, tmp_path / "made.lance")
    rows = rows_of(data)
    for caption, row in rows.items():
        number = int(caption.split()[1].strip(","))
        assert row["punsafe"] == number / 100
        assert row["url"].endswith(f"/{number}.jpg")
        assert row["source_sha256"] == row["sha256"]
    assert "label" not in data.table.schema.names, "its folders are shards, no classes"


def test_the_member_that_is_named_is_the_image(tmp_path: Path) -> None:
    data, done = converted(WRITTEN / "webdataset", tmp_path / "made.lance", hints=Hints(image_member="*.image.jpg"))
    assert {caption: row["sha256"] for caption, row in rows_of(data).items()} == EXPECTED
    assert not left_out(done)
