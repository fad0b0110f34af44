"""What other programs wrote becomes a data set with each of its samples, byte for byte: `written/` holds what they wrote."""

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gangline.data.making.conversion import dropped, left_out_counts
from gangline.data.place import DataPlace
from gangline.data.sources import Hints, find_source
from tests.data import made
from tests.data.made import converted, rows_of

WRITTEN = Path(__file__).parent / "written"
EXPECTED = {
    " ".join(caption.split()): digest for caption, digest in json.loads((WRITTEN / "expected.json").read_text())
}

SOURCES = {
    "datasets/saved": ("tables", {}),
    "datasets/table": ("tables", {}),
    "datasets/paths/lines.csv": ("lines", {}),
    "datasets/paths/lines.jsonl": ("lines", {}),
    "datasets/paths/array.json": ("lines", {}),
    "mds/plain": ("mds", {}),
    "mds/zstd": ("mds", {}),
    "mds/gz": ("mds", {}),
    "mds/br": ("mds", {}),
    "mds/bz2": ("mds", {}),
    "mds/snappy": ("mds", {}),
    "mds/kinds": ("mds", {}),
    "mds/parts": ("mds", {}),
    "mds/parts/1": ("mds", {}),
    "img2dataset/files": ("folder", {}),
    "img2dataset/webdataset": ("tars", {}),
    "img2dataset/parquet": ("tables", {"no image in the row": 1}),
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_other_programs_wrote_has_each_sample_once_with_its_own_bytes(source: str, tmp_path: Path) -> None:
    kind, without = SOURCES[source]
    assert find_source(DataPlace(str(WRITTEN / source)))[0].kind == kind
    data, done = converted(WRITTEN / source, tmp_path / "made.lance", rows=3)
    found = {caption: row["sha256"] for caption, row in rows_of(data).items()}
    assert found == (dict(list(EXPECTED.items())[3:]) if source == "mds/parts/1" else EXPECTED)
    assert left_out_counts(done) == without


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
    assert not left_out_counts(done)


def test_values_of_mds_are_kept_as_what_they_are_and_the_rest_is_counted(tmp_path: Path) -> None:
    data, done = converted(WRITTEN / "mds" / "kinds", tmp_path / "made.lance")
    for caption, row in rows_of(data).items():
        number = int(caption.split()[1].strip(","))
        assert (row["whole"], row["small"], row["half"], row["single"]) == (-number, number, number / 2, number / 4)
        assert (row["fraction"], row["exact"]) == (number / 8, number / 16)
        assert json.loads(row["tags"]) == {"id": number, "of": ["a", "b"]}
        assert row["digits"] is None, "there is no such number in 64 bits"
    assert dropped(done) == {
        "anything (pkl)": 7,
        "fixed (ndarray:float32:2,3)": 7,
        "loose (ndarray)": 7,
        "several (list[png])": 7,
        "digits (a number, not int64)": 7,
    }


@pytest.mark.parametrize("form", ["png", "pil"])
def test_pictures_of_mds_that_are_no_files_become_some_without_loss(form: str, tmp_path: Path) -> None:
    data, _ = converted(WRITTEN / "mds" / form, tmp_path / "made.lance")
    rows = rows_of(data)
    assert [list(EXPECTED)[number] for number in range(2)] == sorted(rows)
    for number, caption in enumerate(sorted(rows)):
        image = Image.open(io.BytesIO(rows[caption]["image"]))
        assert image.format == "PNG"
        assert image.tobytes() == drawn(number).tobytes()


def drawn(number: int) -> Image.Image:
    """As `written/write.py` does."""
    small = Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 9, 3), dtype=np.uint8))
    return small.resize((36 + number, 32), Image.Resampling.NEAREST)


def test_the_writer_of_these_tests_writes_what_that_of_mosaicml_does(tmp_path: Path) -> None:
    theirs = WRITTEN / "mds" / "plain"
    given = json.loads((WRITTEN / "expected.json").read_text())
    rows = [
        {
            "image": (WRITTEN / "datasets" / "paths" / "photos" / f"{number}.jpg").read_bytes(),
            "caption": caption.encode(),
            "score": struct.pack("<d", number / 2),
        }
        for number, (caption, _) in enumerate(given)
    ]
    columns = {"image": "bytes", "caption": "str", "score": "float64"}
    shards = [rows[first : first + 2] for first in range(0, 7, 2)]
    own = made.write_mds(tmp_path / "own", columns, shards, size_limit=4000)
    for path in theirs.iterdir():
        assert (own / path.name).read_bytes() == path.read_bytes()
