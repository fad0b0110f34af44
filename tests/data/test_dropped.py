"""What a source says of its images and a data set cannot hold is counted, as images that are left out are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.data.making.conversion import DROPPED_MAX, dropped
from tests.conftest import Typed
from tests.data import made
from tests.data.made import converted, rows_of, samples
from tests.data.test_members import PICTURES, tar_of

DETAILS: list[dict[str, Any]] = [
    {"score": 1, "tags": ["a"], "size": {"width": 3}, "nothing": None},
    {"score": 2.5, "tags": ["b", "c"], "odd": 1},
    {"score": 3, "odd": "text"},
]


def beside_images(root: Path, details: list[dict[str, Any]]) -> Path:
    made.as_folder(root, samples(len(details)))
    for number, one in enumerate(details):
        (root / "some" / f"{number:05d}.json").write_text(json.dumps(one))
    return root


def in_tars(root: Path, details: list[dict[str, Any]]) -> Path:
    given = samples(len(details))
    made.as_tars(root, given, details=details)
    return root


def in_lines(root: Path, details: list[dict[str, Any]]) -> Path:
    root.mkdir()
    for one in samples(len(details)):
        (root / f"{one.name}.jpg").write_bytes(one.image)
    names = [one.name for one in samples(len(details))]
    lines = [{"file_name": f"{name}.jpg", "text": name} | one for name, one in zip(names, details, strict=True)]
    (root / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


WAYS: dict[str, Callable[[Path, list[dict[str, Any]]], Path]] = {
    "a folder with a .json beside each image": beside_images,
    "tars": in_tars,
    "a folder with lines of metadata": in_lines,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_no_column_can_hold_is_counted_by_its_name(way: str, tmp_path: Path) -> None:
    data, done = converted(WAYS[way](tmp_path / "source", DETAILS), tmp_path / "made.lance", rows=1)
    assert sorted(row["score"] for row in rows_of(data).values()) == [1, 2.5, 3]
    assert dropped(done) == {"tags (a list)": 2, "size (an object)": 1}
    assert data.info.dropped == dropped(done)


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_later_than_the_columns_were_decided_is_counted(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("folder", "tars"):
        monkeypatch.setattr(f"gangline.data.sources.{module}.SAMPLES", 2)
    details = [{"score": 1}, {"score": 2}, {"score": "high", "late": 1, "nested": [1]}]
    data, done = converted(WAYS[way](tmp_path / "source", details), tmp_path / "made.lance")
    assert {row["score"] for row in rows_of(data).values()} == {1, 2, None}
    assert dropped(done) == {
        "score (a text, not int64)": 1,
        "late (in none of the first samples)": 1,
        "nested (a list)": 1,
    }


def test_names_that_are_too_much_alike_are_one_column_and_the_second_is_counted(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source", jpg=PICTURES[0], txt=b"said", json=b'{"a.b": 1, "a_b": 2}')
    data, done = converted(source, tmp_path / "made.lance")
    assert rows_of(data)["said"]["a_b"] == 1
    assert dropped(done) == {"a_b (too similar to another name)": 1}


def test_a_sample_that_is_left_out_drops_nothing(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source", jpg=PICTURES[0], json=b'{"tags": [1]}')
    (source / "0.tar").rename(source / "1.tar")
    made.as_tars(source, samples(1))
    assert not dropped(converted(source, tmp_path / "made.lance")[1])


@pytest.mark.parametrize("details", [b"[1]", b"{", b"\xff"])
def test_a_json_file_that_is_no_object_is_counted(details: bytes, tmp_path: Path) -> None:
    source = tar_of(tmp_path / "tars", jpg=PICTURES[0], txt=b"said", json=details)
    folder = made.as_folder(tmp_path / "folder", samples(1))
    (folder / "some" / "00000.json").write_bytes(details)
    for place in (source, folder):
        data, done = converted(place, tmp_path / f"{place.name}.lance")
        assert (data.rows, dropped(done)) == (1, {"all of a .json (no object)": 1})


def test_fields_of_any_number_of_names_are_counted_together(tmp_path: Path) -> None:
    details = [{f"field {number} {field}": [1] for field in range(DROPPED_MAX)} for number in range(3)]
    _, done = converted(in_tars(tmp_path / "source", details), tmp_path / "made.lance", rows=1)
    found = dropped(done)
    assert len(found) == DROPPED_MAX
    assert sum(found.values()) == 3 * DROPPED_MAX


def test_what_is_dropped_is_told_at_the_end_and_in_what_is_known_of_the_data_set(typed: Typed, tmp_path: Path) -> None:
    source, target = in_tars(tmp_path / "source", DETAILS), tmp_path / "made.lance"
    code, _, said = typed("data", "convert", source, target, "--processes", 1)
    assert code == 0
    assert "not kept: 2 × tags (a list)" in said
    assert "not kept: 1 × size (an object)" in said
    _, printed, _ = typed("data", "inspect", target, "-o", "json")
    assert json.loads(printed)["dropped"] == {"tags (a list)": 2, "size (an object)": 1}
