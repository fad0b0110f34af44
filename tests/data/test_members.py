"""Of a webdataset sample with several files of a kind, which is the image and which the caption."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from gangline.core.errors import BadInput
from gangline.data.making.conversion import left_out_counts
from gangline.data.sources import Hints
from tests.data.made import converted, encoded, picture, rows_of

PICTURES = [encoded(picture(number)) for number in range(3)]


def tar_of(root: Path, **members: bytes) -> Path:
    """A tar of one sample `a/b`, whose files have these endings, `_` for a dot."""
    root.mkdir()
    with tarfile.open(root / "0.tar", "w") as tar:
        for ending, content in members.items():
            info = tarfile.TarInfo(f"a/b.{ending.replace('_', '.')}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return root


def test_a_plain_ending_goes_before_others(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source", seg_png=PICTURES[0], jpg=PICTURES[1], long_txt=b"long", txt=b"short")
    assert rows_of(converted(source, tmp_path / "made.lance")[0])["short"]["image"] == PICTURES[1]


def test_the_only_image_is_the_image_whatever_stands_before_its_ending(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source", x_0_jpg=PICTURES[0], long_txt=b"said", meta_json=b'{"score": 2}')
    row = rows_of(converted(source, tmp_path / "made.lance")[0])["said"]
    assert (row["image"], row["score"]) == (PICTURES[0], 2)


def test_several_images_are_told_with_what_chooses_one(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source", **{"0_jpg": PICTURES[0], "1_jpg": PICTURES[1], "txt": b"said"})
    with pytest.raises(BadInput, match="1 several images in the sample"):
        converted(source, tmp_path / "made.lance")
    hints = Hints(image_member="*.1.JPG")
    assert rows_of(converted(source, tmp_path / "made.lance", hints=hints)[0])["said"]["image"] == PICTURES[1]


def test_the_caption_may_be_any_member_that_is_named(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source", jpg=PICTURES[0], txt=b"alt", prompt_txt=b"prompt", json=b'{"caption": "c"}')
    hints = Hints(caption_member="*.prompt.txt")
    assert list(rows_of(converted(source, tmp_path / "made.lance", hints=hints)[0])) == ["prompt"]


def test_a_pattern_that_no_member_fits_is_told_with_the_members_that_there_are(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source", jpg=PICTURES[0], txt=b"said", json=json.dumps({}).encode())
    for hints in (Hints(image_member="*.image.jpg"), Hints(caption_member="*.image.jpg")):
        with pytest.raises(BadInput, match=r"no file .* matches \*\.image\.jpg") as told:
            converted(source, tmp_path / "made.lance", hints=hints)
        assert "b.jpg, b.txt, b.json" in told.value.hint


def test_members_are_of_tars_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(PICTURES[0])
    with pytest.raises(BadInput, match=r"--image-member names files of webdataset tars, but .* is a folder of images"):
        converted(tmp_path, tmp_path / "made.lance", hints=Hints(image_member="*.jpg"))


def test_images_of_a_sample_that_has_only_one_in_most(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source", jpg=PICTURES[0], txt=b"said")
    with tarfile.open(source / "1.tar", "w") as tar:
        for name in ("c.0.jpg", "c.1.jpg"):
            info = tarfile.TarInfo(name)
            info.size = len(PICTURES[1])
            tar.addfile(info, io.BytesIO(PICTURES[1]))
    _, done = converted(source, tmp_path / "made.lance")
    assert left_out_counts(done) == {"several images in the sample (--image-member)": 1}
