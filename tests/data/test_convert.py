"""Whatever somebody has becomes one data set: every sample once, or counted among those that were left out, and why."""

import gzip
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.core.errors import BadInput, GanglineError, Unreachable
from gangline.data.dataset import open_data_set
from gangline.data.making.conversion import left_out_counts
from gangline.data.making.engine import Processes, Ray
from gangline.data.making.piece import convert_shard
from gangline.data.making.row import Storing
from gangline.data.place import DataPlace
from gangline.data.sources import Hints, find_source
from gangline.data.where import Where
from tests.data import made
from tests.data.made import converted, encoded, picture, rows_of, samples
from tests.disks import run_on_a_disk_of
from tests.proxy import Fault, Proxy

Make = Callable[[Path, list[made.Sample]], Path]
KINDS: dict[str, Make] = {
    "folder": made.as_folder,
    "imagefolder": made.as_imagefolder,
    "imagefolder with a csv": lambda root, given: made.as_imagefolder(root, given, "csv"),
    "imagefolder with a table": lambda root, given: made.as_imagefolder(root, given, "parquet"),
    "tars": made.as_tars,
    "parquet": made.as_parquet,
    "parquet of Hugging Face": lambda root, given: made.as_parquet(root, given, struct=True),
    "arrow": made.as_arrow,
    "csv": lambda root, given: made.as_lines(root, given, "csv"),
    "tsv": lambda root, given: made.as_lines(root, given, "tsv"),
    "json": lambda root, given: made.as_lines(root, given, "json"),
    "jsonl": lambda root, given: made.as_lines(root, given, "jsonl"),
    "mds": made.as_mds,
    "mds in zstd": lambda root, given: made.as_mds(root, given, compression="zstd"),
    "mds in gzip": lambda root, given: made.as_mds(root, given, compression="gz"),
    "files of img2dataset": made.as_img2dataset,
}
SCORED = set(KINDS) - {"folder"}


@pytest.fixture(params=["folder", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> DataPlace:
    if request.param == "folder":
        return DataPlace(str(tmp_path / "made.lance"))
    return made.place_in(request.getfixturevalue("bucket"), f"{tmp_path.name}/made.lance")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source_gives_the_same_samples(kind: str, tmp_path: Path) -> None:
    given = samples(11)
    data, done = converted(KINDS[kind](tmp_path / "source", given), tmp_path / "made.lance")
    rows = rows_of(data)
    assert len(rows) == 11
    assert not left_out_counts(done)
    for one in given:
        row = rows[one.caption]
        assert row["image"] == one.image
        assert (row["width"], row["height"]) == Image.open(io.BytesIO(one.image)).size
        assert row["sha256"] == hashlib.sha256(one.image).hexdigest()
        assert row["captions"] == [one.caption]
        assert kind not in SCORED or row["score"] == one.score


def test_a_source_may_lie_in_a_bucket_and_so_may_the_data_set(bucket: S3Bucket, tmp_path: Path) -> None:
    for kind in ("folder", "tars", "parquet", "mds", "mds in zstd", "jsonl", "files of img2dataset"):
        made_at, root = KINDS[kind](tmp_path / kind, samples(6)), tmp_path / kind
        folder = made.place_in(bucket, f"{tmp_path.name}/{kind}")
        for path in root.rglob("*.*"):
            folder.write(path.relative_to(root).as_posix(), path.read_bytes())
        source = folder.below(made_at.name) if made_at.is_file() else folder
        data, _ = converted(source, made.place_in(bucket, f"{tmp_path.name}/{kind}.lance"))
        assert len(rows_of(data)) == 6


def test_a_single_file_is_a_source(tmp_path: Path) -> None:
    root = made.as_parquet(tmp_path / "source", samples(10))
    assert len(rows_of(converted(root / "b.parquet", tmp_path / "made.lance")[0])) == 5


def test_processes_make_what_one_makes(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(20))
    alone, _ = converted(source, tmp_path / "alone.lance")
    together, _ = converted(source, tmp_path / "together.lance", engine=Processes(3))
    assert alone.table.to_table() == together.table.to_table()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_ray_makes_what_one_makes(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(20))
    alone, _ = converted(source, tmp_path / "alone.lance")
    together, _ = converted(source, tmp_path / "together.lance", engine=Ray(processes=2))
    assert alone.table.to_table() == together.table.to_table()


def test_what_is_no_image_is_left_out_and_counted(tmp_path: Path) -> None:
    given = samples(4)
    broken = [
        made.Sample("web", b"<!doctype html><p>gone</p>", "a page", 1),
        made.Sample("empty", b"", "nothing", 1),
        made.Sample("short", given[0].image[:-200], "cut off", 1),
        made.Sample("words", b"hello", "words", 1),
    ]
    data, done = converted(made.as_folder(tmp_path / "source", [*given, *broken]), tmp_path / "made.lance")
    assert len(rows_of(data)) == 4
    assert left_out_counts(done) == {"not an image": 3, "damaged": 1}
    assert data.info.left_out == {"not an image": 3, "damaged": 1}
    assert [names for one in done for names in one.examples.get("damaged", [])] == ["some/short.jpg"]


def test_an_image_without_a_caption_is_left_out_unless_asked(tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", samples(4))
    (source / "some" / "00001.txt").write_text(" \n")
    (source / "some" / "00002.txt").unlink()
    (source / "some" / "00003.txt").write_bytes(b"\0\1\2")
    data, done = converted(source, tmp_path / "made.lance")
    assert left_out_counts(done) == {"no caption": 3}
    everything, _ = converted(source, tmp_path / "all.lance", keep_uncaptioned=True)
    assert sorted(everything.table.to_table()["captions"].to_pylist()) == [[], [], [], ["number 0"]]
    assert data.rows == 1


def test_captions_are_of_one_line_and_several_may_be_given(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = tmp_path / "source"
    source.mkdir()
    captions = [["one\n  line", "another", "another", ""], ["x" * 5000]]
    pq.write_table(pa.table({"jpg": [one.image for one in samples(2)], "captions": captions}), source / "a.parquet")
    data, _ = converted(source, tmp_path / "made.lance")
    assert data.table.to_table()["captions"].to_pylist() == [["one line", "another"], ["x" * 2000]]


def test_bytes_stay_as_they_are_where_they_can(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    upright = encoded(picture(1, (60, 40)))
    source = made.as_folder(
        tmp_path / "source",
        [
            made.Sample("plain", upright, "plain", 0),
            made.Sample("turned", encoded(picture(2, (60, 40)), exif=turned), "turned", 0),
            made.Sample("large", encoded(picture(3, (600, 400))), "large", 0),
            made.Sample("glass", encoded(picture(4).convert("RGBA"), "PNG"), "glass", 0),
        ],
    )
    rows = rows_of(converted(source, tmp_path / "made.lance", storing=Storing(short_side=64))[0])
    assert rows["plain"]["image"] == upright
    assert (rows["turned"]["width"], rows["turned"]["height"]) == (40, 60)
    assert Image.open(io.BytesIO(rows["turned"]["image"])).size == (40, 60)
    assert (rows["large"]["width"], rows["large"]["height"]) == (96, 64)
    assert Image.open(io.BytesIO(rows["glass"]["image"])).mode == "RGB"


@pytest.mark.parametrize("storing", [Storing(), Storing(short_side=16), Storing(format="webp")])
def test_every_image_is_decoded_once(storing: Storing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow asks its register of decoders for one for each image whose pixels it reads."""
    decoded: list[str] = []

    def counting(name: str) -> Callable[..., Any]:
        def decoder(*arguments: Any) -> Any:
            decoded.append(name)
            return getattr(Image.core, f"{name}_decoder")(*arguments)

        return decoder

    given = [*samples(3), made.Sample("x", encoded(picture(9), "PNG"), "a png", 0)]
    source = made.as_folder(tmp_path / "source", given)
    for name in ("jpeg", "zip"):
        monkeypatch.setitem(Image.DECODERS, name, counting(name))
    data, _ = converted(source, tmp_path / "made.lance", storing=storing, where=Where(("aspect > 0", "dhash <> 1")))
    assert data.rows == 4
    assert sorted(decoded) == ["jpeg", "jpeg", "jpeg", "zip"]


@pytest.mark.parametrize(("form", "found"), [("jpeg", "JPEG"), ("webp", "WEBP"), ("png", "PNG")])
def test_images_are_stored_as_asked(form: Any, found: str, tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", [made.Sample("a", encoded(picture(1), "BMP"), "a", 0)])
    rows = rows_of(converted(source, tmp_path / "made.lance", storing=Storing(format=form))[0])
    assert Image.open(io.BytesIO(rows["a"]["image"])).format == found


def test_an_image_much_larger_than_asked_is_decoded_smaller_and_looks_the_same(tmp_path: Path) -> None:
    content = encoded(picture(1, (1600, 1200)), quality=95)
    source = made.as_folder(tmp_path / "source", [made.Sample("a", content, "a", 0)])
    row = rows_of(converted(source, tmp_path / "made.lance", storing=Storing(short_side=120, format="png"))[0])["a"]
    import numpy as np

    stored = np.asarray(Image.open(io.BytesIO(row["image"])), dtype=float)
    whole = Image.open(io.BytesIO(content)).resize((160, 120), Image.Resampling.LANCZOS)
    assert abs(stored - np.asarray(whole, dtype=float)).mean() < 3


def test_conditions_on_what_the_source_says_keep_images_from_being_fetched(web: made.Web, tmp_path: Path) -> None:
    given = samples(10)
    urls = [web.has(f"/{one.name}.jpg", one.image) for one in given]
    source = made.as_laion(tmp_path / "source", urls, given)
    where = Where(("AESTHETIC_SCORE >= 0.5 and punsafe < 0.1", "pwatermark < 0.008", "source_WIDTH = 40", "WIDTH < 46"))
    data, done = converted(source, tmp_path / "made.lance", where=where)
    assert sorted(rows_of(data)) == ["number 5", "number 7"]  # number 6 is 46 wide
    assert sorted(web.asked) == ["/00005.jpg", "/00006.jpg", "/00007.jpg"]
    assert left_out_counts(done) == {"excluded by --where": 8}


def test_a_condition_may_speak_of_the_picture_alone(tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", samples(8))
    data, _ = converted(source, tmp_path / "made.lance", where=Where(("aspect > 1.4 and source like '%jpg'",)))
    assert {row["width"] for row in rows_of(data).values()} == {43, 44, 45, 46}


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("colour = 'red'", "No field named colour"),
        ("width >", "cannot be used"),
        ("width > 43 height < 9", "cannot be used"),
        ("width + 1", "does not return a boolean"),
    ],
)
def test_a_condition_that_cannot_be_is_told_before_anything_is_done(condition: str, said: str, tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", samples(2))
    with pytest.raises(BadInput, match=said):
        converted(source, tmp_path / "made.lance", where=Where((condition,)))
    assert not list(tmp_path.glob("made*"))


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("width >", "the condition `width >` cannot be used: Expected: an expression, found: EOF"),
        (
            "width > 4 height < 9",
            "the condition `width > 4 height < 9` cannot be used: Expected: the end, found: height",
        ),
        ("width >\n4 height", "the condition `width > 4 height` cannot be used: Expected: the end, found: height"),
        ("width > 'abc", "the condition `width > 'abc` cannot be used: Unterminated string literal"),
        ("width > 4)", "the condition `width > 4)` cannot be used: it closes a bracket that it did not open"),
        ("width / 0 > 1", "the condition `width / 0 > 1` fails: Divide by zero error"),
        (" ", "the condition `` cannot be used: it is empty"),
    ],
)
def test_what_is_wrong_with_a_condition_is_told_in_one_line_of_what_was_typed(
    condition: str, said: str, tmp_path: Path
) -> None:
    source = made.as_folder(tmp_path / "source", samples(2))
    with pytest.raises(BadInput) as told:
        converted(source, tmp_path / "made.lance", where=Where((condition,)))
    assert told.value.message == said


def test_a_condition_that_fails_on_a_row_is_told(tmp_path: Path) -> None:
    source = made.as_imagefolder(tmp_path / "source", samples(2))
    with pytest.raises(BadInput, match="Divide by zero"):
        converted(source, tmp_path / "made.lance", where=Where(("1 / cast(score as int) > 0",)))


@pytest.mark.parametrize("column", ["sha256", "dhash", "score"])
def test_of_equal_rows_the_first_is_kept(column: str, target: DataPlace, tmp_path: Path) -> None:
    given = [replace(one, image=encoded(picture(number, (72, 64)))) for number, one in enumerate(samples(6))]
    again = {
        "sha256": made.Sample("z", given[2].image, "again", 9),
        "dhash": made.Sample("z", encoded(picture(2, (144, 128)), "PNG"), "again", 9),
        "score": made.Sample("z", encoded(picture(99)), "again", given[2].score),
    }[column]
    data, _ = converted(made.as_imagefolder(tmp_path / "source", [*given, again]), target, unique=column)
    assert sorted(rows_of(data)) == [one.caption for one in given]
    assert data.info.rows - data.rows == 1


def test_a_web_of_all_kinds_of_answers(web: made.Web, tmp_path: Path) -> None:
    given = samples(12)
    image = given[0].image
    urls = [
        web.has("/good", image),
        web.url + "/gone",
        web.has("/later", b"", status=503) and web.has("/later", given[1].image),
        web.has("/never", b"", status=500),
        web.has("/moved", status=302, Location="/good"),
        web.has("/circle", status=302, Location="/circle"),
        web.has("/short", image, Content_Length=str(len(image) + 10)),
        web.has("/page", b"<html>"),
        web.has("/asks", image, X_Robots_Tag="noai"),
        "http://127.0.0.1:9/",
        "nonsense",
        "",
    ]
    data, done = converted(made.as_laion(tmp_path / "source", urls, given), tmp_path / "made.lance")
    assert sorted(rows_of(data)) == ["number 0", "number 2", "number 4"]
    assert left_out_counts(done) == {
        "HTTP 404": 1,
        "HTTP 500": 1,
        "too many redirects": 1,
        "the answer ended early": 1,
        "not an image": 1,
        "its site opts out of training": 1,
        "no connection": 1,
        "not a web address": 1,
        "no URL": 1,
    }
    assert web.asked.count("/never") == 3
    assert web.asked.count("/gone") == 1
    assert rows_of(data)["number 2"]["URL"] == f"{web.url}/later"


def test_a_server_that_never_answers_is_given_up(
    web: made.Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    monkeypatch.setattr("gangline.data.making.fetch.TIMEOUT", httpx.Timeout(0.2))
    given = samples(2)
    urls = [web.has("/hangs", Hang="yes"), web.has("/good", given[1].image)]
    data, done = converted(made.as_laion(tmp_path / "source", urls, given), tmp_path / "made.lance")
    assert sorted(rows_of(data)) == ["number 1"]
    assert left_out_counts(done) == {"no answer in time": 1}


@pytest.mark.parametrize("kept", [7 * 512 + 100, 8 * 512, 8 * 512 + 100, 9 * 512])
def test_a_tar_that_breaks_off_gives_what_it_has(kept: int, tmp_path: Path) -> None:
    given = [replace(one, image=encoded(picture(number, (9, 8)))) for number, one in enumerate(samples(4))]
    tar = made.as_tars(tmp_path / "source", given) / "000000.tar"
    tar.write_bytes(tar.read_bytes()[:kept])
    data, done = converted(tmp_path / "source", tmp_path / "made.lance", keep_uncaptioned=True)
    assert data.rows >= 1
    assert left_out_counts(done)["a tar that ends early"] == 1


def test_the_columns_of_tars_are_those_of_the_first_that_has_samples(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(4))
    (source / "000000.tar").rename(source / "000002.tar")
    (source / "000000.tar").write_bytes(b"")
    made.as_tars(tmp_path / "empty", [])
    (source / "000001.tar").write_bytes(bytes(10240))
    data, done = converted(source, tmp_path / "made.lance")
    assert rows_of(data)["number 3"]["score"] == 0.3
    assert left_out_counts(done) in ({"a tar that ends early": 1}, {"a tar that ends early": 2})


def test_a_packed_tar_that_breaks_off_is_counted(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(8))
    tar = source / "000004.tar"
    packed = gzip.compress(tar.read_bytes())
    tar.write_bytes(packed[: len(packed) // 2])
    data, done = converted(source, tmp_path / "made.lance")
    assert data.rows >= 4
    assert left_out_counts(done)["a tar that ends early"] == 1


def test_a_table_without_images_lists_its_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"a": [1], "caption": ["x"]}), tmp_path / "source" / "t.parquet")
    with pytest.raises(BadInput, match="neither a column of images nor one of URLs: a, caption"):
        converted(tmp_path / "source", tmp_path / "made.lance")


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        (Hints(captions=("words",)), "there is no column words"),
        (Hints(image="caption"), "column caption holds no image"),
        (Hints(image="photo"), "there is no column photo"),
        (Hints(kind="tars"), "holds no tars"),
    ],
)
def test_a_wrong_hint_is_told(hints: Hints, said: str, tmp_path: Path) -> None:
    source = made.as_parquet(tmp_path / "source", samples(4))
    with pytest.raises(BadInput, match=said):
        converted(source, tmp_path / "made.lance", hints=hints)


@pytest.mark.parametrize(
    ("kind", "hints", "said", "hint"),
    [
        ("imagefolder", Hints(captions=("nope",)), "has no column nope", "the columns are text, score"),
        ("folder", Hints(captions=("nope",)), "has no column nope", "columns come from metadata.jsonl"),
        ("folder", Hints(image="image"), "--image-column names a column of a table, but", "or give --from tables"),
        ("tars", Hints(url="url"), "--url-column names a column of a table, but", "omit --url-column"),
        ("parquet", Hints(image="image", url="url"), "--image-column and --url-column are both given", "give one"),
    ],
)
def test_a_column_that_cannot_be_is_told_before_anything_is_done(
    kind: str, hints: Hints, said: str, hint: str, tmp_path: Path
) -> None:
    source = KINDS[kind](tmp_path / "source", samples(4))
    with pytest.raises(BadInput, match=said) as told:
        converted(source, tmp_path / "made.lance", hints=hints, keep_uncaptioned=True)
    assert hint in told.value.hint
    assert not list(tmp_path.glob("made*"))


def test_a_column_that_the_first_samples_of_a_tar_lack_is_told(tmp_path: Path) -> None:
    source = DataPlace(str(made.as_tars(tmp_path / "source", samples(4))))
    found, _ = find_source(source, Hints(captions=("nope",)))
    assert found.notes == ("the first 4 samples of 000000.tar have no nope; they have caption, score",)


def test_a_column_of_urls_that_is_named_goes_before_one_of_images_that_is_found(web: made.Web, tmp_path: Path) -> None:
    urls = [web.has(f"/{one.name}", one.image) for one in samples(2, 5)]
    source = tables(tmp_path / "source", {"address": urls})
    rows = rows_of(converted(source, tmp_path / "made.lance", hints=Hints(url="address"))[0])
    assert [row["image"] for row in rows.values()] == [one.image for one in samples(2, 5)]


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    source = made.as_parquet(tmp_path / "source", samples(4))
    (source / "b.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(BadInput, match=r"b\.parquet is damaged, or not a table"):
        converted(source, tmp_path / "made.lance")


def test_columns_of_the_source_keep_apart_from_ours(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "source").mkdir()
    table = {"jpg": [one.image for one in samples(2)], "text": ["a", "b"], "width": [7, 8], "box": [[1], [2]]}
    pq.write_table(pa.table(table), tmp_path / "source" / "t.parquet")
    rows = rows_of(converted(tmp_path / "source", tmp_path / "made.lance")[0])
    assert (rows["a"]["width"], rows["a"]["source_width"]) == (40, 7)
    assert "box" not in rows["a"]


def test_nothing_left_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", [made.Sample("a", b"no", "a", 0)])
    with pytest.raises(BadInput, match="is left: 1 not an image"):
        converted(source, tmp_path / "made.lance")
    assert not any(path.is_file() for path in tmp_path.glob("made*/**/*"))


class Cut(Exception):
    pass


class CutOff:
    """Does so many pieces, then ends as a machine that vanishes."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces

    def run(self, work: Any, tasks: Any) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            if number == self.pieces:
                raise Cut
            yield work(task)


def test_what_is_done_stays_done(target: DataPlace, tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(20))
    with pytest.raises(Cut):
        converted(source, target, engine=CutOff(3))
    counted = Counting()
    data, done = converted(source, target, engine=counted)
    assert counted.pieces == 2
    assert len(done) == 5
    assert len(rows_of(data)) == 20
    assert not target.beside(".converting").entries()


class Counting:
    def __init__(self) -> None:
        self.pieces = 0

    def run(self, work: Any, tasks: Any) -> Iterator[Any]:
        for task in tasks:
            self.pieces += 1
            yield work(task)


def test_other_settings_do_not_go_on_with_what_was_begun(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(20))
    with pytest.raises(Cut):
        converted(source, tmp_path / "made.lance", engine=CutOff(3))
    with pytest.raises(BadInput, match="has other settings or other files"):
        converted(source, tmp_path / "made.lance", unique="sha256")
    (source / "000004.tar").touch()
    with pytest.raises(BadInput, match="has other settings or other files"):
        converted(source, tmp_path / "made.lance")


def test_what_failed_before_a_piece_was_made_can_be_said_anew_with_other_settings(
    target: DataPlace, tmp_path: Path
) -> None:
    source = made.as_tars(tmp_path / "source", samples(8))
    with pytest.raises(BadInput, match="Divide by zero"):
        converted(source, target, where=Where(("width / 0 > 1",)))
    assert len(rows_of(converted(source, target, where=Where(("width / 1 > 1",)))[0])) == 8


def test_a_data_set_is_not_written_over(target: DataPlace, tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(4))
    first, _ = converted(source, target)
    again, _ = converted(source, target)
    assert (again.info.id, again.version) == (first.info.id, first.version)
    with pytest.raises(BadInput, match="there is another data set at"):
        converted(source, target, unique="sha256")


def test_a_piece_whose_data_is_not_whole_is_made_again(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(12))
    with pytest.raises(Cut):
        converted(source, tmp_path / "made.lance", engine=CutOff(2))
    lost, short = sorted((tmp_path / "made.lance" / "data").iterdir())[:2]
    lost.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    assert len(rows_of(converted(source, tmp_path / "made.lance")[0])) == 12


def test_a_conversion_cut_off_between_its_commit_and_the_doubles_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = samples(6)
    source = made.as_tars(tmp_path / "source", [*given, made.Sample("z", given[0].image, "again", 0)])

    def vanish(conversion: object) -> None:
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr("gangline.data.making.convert.drop_doubles", vanish)
        with pytest.raises(Cut):
            converted(source, tmp_path / "made.lance", unique="sha256")
    with pytest.raises(BadInput, match="is not finished"):
        open_data_set(DataPlace(str(tmp_path / "made.lance")))
    assert len(rows_of(converted(source, tmp_path / "made.lance", unique="sha256")[0])) == 6


SCRIPT = """
import json, sys
from tests.data.made import converted, DataPlace
from gangline.data.making.engine import Processes
if __name__ == "__main__":
    source, target, options = sys.argv[1:4]
    print("begun", flush=True)
    converted(DataPlace(source), DataPlace(target, json.loads(options)), engine=Processes(2), rows=8, unique="sha256")
"""


def kill_at_random(source: Path, target: DataPlace, seed: int, tmp_path: Path) -> int:
    """SIGKILL to all of a conversion's processes, again and again, after ever longer; how often it was killed."""
    rng = random.Random(seed)
    script = tmp_path / "convert.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(source), target.uri, json.dumps(target.options)]
    for killed in range(100):
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, start_new_session=True, env=os.environ | {"PYTHONPATH": path}
        )
        assert process.stdout is not None
        process.stdout.read(5)
        try:
            process.wait(rng.uniform(0.1, 1.0) * (1 + killed / 2))
        except subprocess.TimeoutExpired:
            victim = process.pid if rng.random() < 0.5 else -process.pid  # the parent alone, or all
            os.kill(victim, signal.SIGKILL) if victim > 0 else os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.read()  # until the last process of it has ended
            process.stdout.close()
            continue
        process.stdout.close()
        assert process.returncode == 0
        return killed
    raise AssertionError("it never ended")


def check_whole(target: DataPlace, given: list[made.Sample]) -> None:
    data = open_data_set(target)
    rows = rows_of(data)
    assert sorted(rows) == sorted(one.caption for one in given)
    assert all(rows[one.caption]["image"] == one.image for one in given)
    versions = [data.table.checkout_version(one["version"]) for one in data.table.versions()]
    fragments = [fragment for version in versions for fragment in version.get_fragments()]
    named = {file.path for fragment in fragments for file in fragment.data_files()}
    assert {entry.name for entry in target.below("data").entries()} == named, "data that nothing names is swept"
    assert not target.beside(".converting").entries()


@pytest.mark.tenths
def test_killed_at_random_moments_no_sample_is_lost_or_doubled(target: DataPlace, tmp_path: Path) -> None:
    given = samples(400)
    source = made.as_tars(
        tmp_path / "source", [*given, *(made.Sample(f"z{one.name}", one.image, "twice", 0) for one in given[:9])], 8
    )
    assert kill_at_random(source, target, 1, tmp_path) >= 1
    check_whole(target, given)


@pytest.mark.tenths
@pytest.mark.parametrize("kind", ["csv", "mds in zstd"])
def test_killed_at_random_moments_a_source_of_any_kind_is_whole(kind: str, tmp_path: Path) -> None:
    given = samples(200)
    source, target = KINDS[kind](tmp_path / "source", given), DataPlace(str(tmp_path / "made.lance"))
    assert kill_at_random(source, target, len(kind), tmp_path) >= 1
    check_whole(target, given)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_more_random_moments(seed: int, target: DataPlace, tmp_path: Path) -> None:
    given = samples(1500)
    source = made.as_tars(tmp_path / "source", given, 8)
    kill_at_random(source, target, seed, tmp_path)
    check_whole(target, given)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind", ["tsv", "json", "jsonl", "mds", "mds in gzip", "parquet", "arrow", "files of img2dataset"]
)
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_more_random_moments_a_source_of_any_kind_is_whole(seed: int, kind: str, tmp_path: Path) -> None:
    given = samples(1500)
    source, target = KINDS[kind](tmp_path / "source", given), DataPlace(str(tmp_path / "made.lance"))
    kill_at_random(source, target, seed, tmp_path)
    check_whole(target, given)


def test_a_process_that_is_ended_from_outside_is_told(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(8))
    with pytest.raises(Unreachable, match="was killed, perhaps because memory ran out"):
        list(Processes(2).run(end_itself, [1, 2]))
    assert len(rows_of(converted(source, tmp_path / "made.lance")[0])) == 8


def end_itself(task: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_key_that_is_lost_in_the_middle_is_told_and_what_is_done_stays_done(bucket: S3Bucket, tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(20))
    address = bucket.endpoint.removeprefix("http://").split(":")
    refused = [Fault(kind="answer", status=403)] * 200
    prefix = f"{tmp_path.name}/made.lance"
    with (
        Proxy((address[0], int(address[1])), faults=[Fault()] * 25 + refused) as proxy,
        pytest.raises(BadInput, match="refuses this key") as told,
    ):
        converted(source, made.place_in(bucket, prefix, proxy.url))
    assert "finished work is kept" in told.value.hint
    target = made.place_in(bucket, prefix)
    finished = len(target.beside(".converting").entries()) - 1
    assert finished > 0
    counted = Counting()
    assert len(rows_of(converted(source, target, engine=counted)[0])) == 20
    assert counted.pieces == 5 - finished


@pytest.mark.parametrize("error", ["No space left on device (os error 28)", "[Errno 28] No space left on device"])
def test_a_full_disk_is_told(error: str, tmp_path: Path) -> None:
    from gangline.data.place import errors_of

    def work() -> None:
        with errors_of(DataPlace("/somewhere")):
            raise OSError(error)

    with pytest.raises(GanglineError, match="the disk is full: /somewhere"):
        work()


def noise(seed: int) -> bytes:
    """About 200 KB that nothing makes shorter."""
    return encoded(Image.frombytes("RGB", (300, 230), random.Random(seed).randbytes(300 * 230 * 3)), "PNG")


def test_a_disk_that_is_really_full_is_told_and_the_notes_stay(tmp_path: Path) -> None:
    """In a file system of 256 KB, which a namespace of its own may mount."""
    source = made.as_tars(
        tmp_path / "source",
        [made.Sample(f"{n}", noise(n), f"{n}", 0) for n in range(8)],
    )
    script = tmp_path / "convert.py"
    script.write_text(
        SCRIPT.replace(
            'if __name__ == "__main__":',
            'if __name__ == "__main__":\n    sys.excepthook = lambda kind, error, trace: print(kind.__name__, error)',
        )
    )
    disk = tmp_path / "disk"
    disk.mkdir()
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    command = (sys.executable, script, source, disk / "made.lance", "{}")
    ran = run_on_a_disk_of("256k", disk, *command, PYTHONPATH=path)
    assert "Unreachable the disk is full" in ran.stdout, ran.stderr


def test_who_comes_second_does_not_break_what_the_first_made(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(12))

    class Overtaken(CutOff):
        """Before its last piece another process, told the same, ends."""

        def run(self, work: Any, tasks: Any) -> Iterator[Any]:
            for number, task in enumerate(tasks):
                if number == self.pieces:
                    converted(source, tmp_path / "made.lance")
                yield work(task)

    with pytest.raises(BadInput, match=r"another process has created .* meanwhile"):
        converted(source, tmp_path / "made.lance", engine=Overtaken(2))
    assert len(rows_of(open_data_set(DataPlace(str(tmp_path / "made.lance"))))) == 12


def test_a_table_leads_to_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    secret = tmp_path / "secret.jpg"
    secret.write_bytes(samples(1)[0].image)
    (tmp_path / "source").mkdir()
    paths = ["../secret.jpg", str(secret), "here.jpg", "gone.jpg"]
    (tmp_path / "source" / "here.jpg").write_bytes(samples(1)[0].image)
    images = [{"bytes": None, "path": path} for path in paths]
    table = pa.table({"image": pa.array(images, pa.struct({"bytes": pa.binary(), "path": pa.string()})), "text": paths})
    pq.write_table(table, tmp_path / "source" / "t.parquet")
    data, done = converted(tmp_path / "source", tmp_path / "made.lance")
    assert list(rows_of(data)) == ["here.jpg"]
    assert left_out_counts(done) == {"a path that leads elsewhere": 2, "the file is gone": 1}


def test_a_shard_can_be_made_by_anybody_who_has_the_conversion(tmp_path: Path) -> None:
    """What a worker elsewhere is sent is all that it needs."""
    import pickle  # noqa: TID251 - as a pool of processes sends it

    from gangline.data.making.conversion import Conversion

    found, entries = find_source(DataPlace(str(made.as_tars(tmp_path / "source", samples(4)))))
    conversion = Conversion(source=found, target=DataPlace(str(tmp_path / "made.lance")))
    sent = pickle.loads(pickle.dumps(conversion))  # noqa: S301
    done = convert_shard(sent, "plan", made.QUICK, found.shards(entries, 8)[0])
    assert done.rows == 4


@pytest.mark.parametrize("image", [samples(1)[0].image, b"no image"])
def test_files_that_lie_where_the_data_set_is_to_be_stay_there(image: bytes, tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", [made.Sample("a", image, "a", 0)])
    own = tmp_path / "project" / "data" / "thesis.txt"
    own.parent.mkdir(parents=True)
    own.write_text("years of work")
    with pytest.raises(BadInput, match=r"project is not empty: it has data/thesis\.txt"):
        converted(source, tmp_path / "project")
    assert own.exists()
    assert not (tmp_path / "project.converting").exists()


def test_a_source_is_not_written_into_itself(tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "data", samples(2))
    with pytest.raises(BadInput, match="is not empty"):
        converted(source, source)


def test_a_lance_table_of_somebody_else_is_not_written_over(tmp_path: Path) -> None:
    import lance
    import pyarrow as pa

    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "made.lance")
    with pytest.raises(BadInput, match=r"made\.lance is not empty"):
        converted(made.as_tars(tmp_path / "source", samples(2)), tmp_path / "made.lance")
    assert lance.dataset(tmp_path / "made.lance").to_table() == pa.table({"a": [1]})


def test_begun_anew_a_conversion_may_find_data_of_one_that_was_cut_off(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(12))
    with pytest.raises(Cut):
        converted(source, tmp_path / "made.lance", engine=CutOff(2))
    DataPlace(str(tmp_path / "made.lance.converting")).wipe()
    (tmp_path / "made.lance" / "data" / ".tmpOwV5jj").write_bytes(b"what Lance leaves where it was killed")
    check_whole(DataPlace(converted(source, tmp_path / "made.lance", unique="sha256")[0].place.uri), samples(12))


def test_notes_without_a_plan_count_for_nothing(tmp_path: Path) -> None:
    """A process that was overtaken may leave some."""
    source = made.as_tars(tmp_path / "source", samples(8))
    with pytest.raises(Cut):
        converted(source, tmp_path / "made.lance", where=Where(("score > 5",)), engine=CutOff(1))
    (tmp_path / "made.lance.converting" / "plan.json").unlink()
    assert len(rows_of(converted(source, tmp_path / "made.lance")[0])) == 8


def test_captions_of_another_column_do_not_go_on_with_what_was_begun(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    given = samples(8)
    columns = {"image": [one.image for one in given], "short": [["s"]] * 8, "long": [["l"]] * 8}
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "source" / "t.parquet")
    short, long = Hints(captions=("short",)), Hints(captions=("long",))
    with pytest.raises(Cut):
        converted(tmp_path / "source", tmp_path / "made.lance", hints=short, engine=CutOff(1))
    with pytest.raises(BadInput, match="has other settings or other files"):
        converted(tmp_path / "source", tmp_path / "made.lance", hints=long)
    converted(tmp_path / "source", tmp_path / "made.lance", hints=short)
    with pytest.raises(BadInput, match="there is another data set at"):
        converted(tmp_path / "source", tmp_path / "made.lance", hints=long)


def test_a_data_set_may_be_made_within_its_source(tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", samples(8))
    with pytest.raises(Cut):
        converted(source, source / "made.lance", engine=CutOff(1))
    (source / "notes.md").write_text("of no interest")
    first, _ = converted(source, source / "made.lance")
    again, _ = converted(source, source / "made.lance")
    assert len(rows_of(first)) == 8
    assert again.info.id == first.info.id


def tables(root: Path, *several: dict[str, Any]) -> Path:
    """Parquet files of the first samples, with these columns besides image and caption, or in their place."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root.mkdir()
    for number, columns in enumerate(several):
        given = samples(2, 2 * number)
        own = {"image": [one.image for one in given], "caption": [one.caption for one in given]}
        pq.write_table(pa.table(own | columns), root / f"{number}.parquet")
    return root


def test_columns_of_any_name_are_kept_apart(tmp_path: Path) -> None:
    names = ["a.b", "_rowid", "width", "source_width", "select", 'quo"te', ""]
    source = tables(tmp_path / "source", {name: [number] * 2 for number, name in enumerate(names)})
    data, _ = converted(source, tmp_path / "made.lance", where=Where(("`select` = 4",)))
    stored = ["a_b", "source__rowid", "source_width", "source_source_width", "select", 'quo"te']
    assert [rows_of(data)["number 0"][name] for name in stored] == [0, 1, 2, 3, 4, 5]


def test_two_columns_of_one_name_are_told(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "source").mkdir()
    table = pa.table([[b"a"], ["b"], ["c"]], names=["image", "text", "text"])
    pq.write_table(table, tmp_path / "source" / "t.parquet")
    with pytest.raises(BadInput, match=r"t\.parquet has several columns with the same name: text"):
        converted(tmp_path / "source", tmp_path / "made.lance")


def test_tables_of_one_source_may_differ_in_order_and_in_the_width_of_their_numbers(tmp_path: Path) -> None:
    source = tables(tmp_path / "source", {"a": [1, 2**60 + 1], "b": ["x", "y"]}, {"b": [None, "z"], "a": [0.5, None]})
    rows = rows_of(converted(source, tmp_path / "made.lance")[0])
    assert [row["a"] for row in rows.values()] == [1, 2.0**60, 0.5, None]
    assert [row["b"] for row in rows.values()] == ["x", "y", None, "z"]


def test_tables_of_different_types_are_told(tmp_path: Path) -> None:
    source = tables(tmp_path / "source", {"a": [1, 2]}, {"a": ["x", "y"]})
    with pytest.raises(BadInput, match=r"1\.parquet has other columns than 0\.parquet: a"):
        converted(source, tmp_path / "made.lance")


def test_texts_and_images_may_be_of_any_of_arrows_types(tmp_path: Path) -> None:
    import pyarrow as pa

    given = samples(2)
    column = pa.array([one.image for one in given], pa.binary_view())
    source = tables(tmp_path / "source", {"image": column, "note": pa.array(["a", "b"], pa.string_view())})
    rows = rows_of(converted(source, tmp_path / "made.lance")[0])
    assert {row["image"]: row["note"] for row in rows.values()} == {given[0].image: "a", given[1].image: "b"}


def test_addresses_may_be_large_strings_as_polars_writes_them(web: made.Web, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "source").mkdir()
    urls = pa.array([web.has("/a", samples(1)[0].image)], pa.large_string())
    pq.write_table(pa.table({"URL": urls, "TEXT": ["a"]}), tmp_path / "source" / "t.parquet")
    assert list(rows_of(converted(tmp_path / "source", tmp_path / "made.lance")[0])) == ["a"]


def test_a_text_that_is_not_utf8_costs_one_row(tmp_path: Path) -> None:
    import pyarrow as pa

    ends = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"a\xff")])
    data, done = converted(tables(tmp_path / "source", {"note": broken}), tmp_path / "made.lance")
    assert list(rows_of(data)) == ["number 0"]
    assert left_out_counts(done) == {"a text that is not UTF-8": 1}


def test_a_number_that_is_none_is_null(tmp_path: Path) -> None:
    source = tables(tmp_path / "source", {"score": [float("nan"), 5.0]})
    data, _ = converted(source, tmp_path / "made.lance", where=Where(("score > 4",)))
    assert list(rows_of(data)) == ["number 1"]


def test_a_path_that_is_no_file_is_counted(tmp_path: Path) -> None:
    source = tables(
        tmp_path / "source", {"image": [{"bytes": None, "path": name} for name in ("sub", "0.parquet/x")]}, {}
    )
    (source / "1.parquet").unlink()
    (source / "sub").mkdir()
    with pytest.raises(BadInput, match="is left: 2 the file is gone"):
        converted(source, tmp_path / "made.lance")


def test_what_cannot_be_unique_is_told_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="captions cannot be unique"):
        converted(made.as_tars(tmp_path / "source", samples(2)), tmp_path / "made.lance", unique="captions")
    assert not list(tmp_path.glob("made*"))


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    source = made.as_tars(tmp_path / "source", samples(2))
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file", tmp_path / "file" / "made.lance"):
        with pytest.raises(BadInput, match="leads to a file where a folder should be"):
            converted(source, target)


@pytest.mark.parametrize(("condition", "kept"), [("true", 3), ("1 = 1", 3), ("width > 40 -- of any height", 2)])
def test_a_condition_may_need_no_column_or_have_a_comment(condition: str, kept: int, tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", samples(4))
    data, _ = converted(source, tmp_path / "made.lance", where=Where((condition, "width < 43")))
    assert data.rows == kept


def tar_of(path: Path, *members: tuple[str, bytes]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_two_samples_of_one_name_in_a_tar_are_two(tmp_path: Path) -> None:
    one, other = (sample.image for sample in samples(2))
    tar = tar_of(tmp_path / "a.tar", ("a.jpg", one), ("a.txt", b"one"), ("a.jpg", other), ("a.txt", b"other"))
    rows = rows_of(converted(tar, tmp_path / "made.lance")[0])
    assert {said: row["image"] for said, row in rows.items()} == {"one": one, "other": other}


def test_a_tar_from_a_mac_has_its_samples(tmp_path: Path) -> None:
    image = samples(1)[0].image
    tar = tar_of(tmp_path / "a.tar", ("._a.jpg", b"x"), ("a.jpg", image), ("._a.txt", b"x"), ("a.txt", b"one"))
    data, done = converted(tar, tmp_path / "made.lance")
    assert list(rows_of(data)) == ["one"]
    assert not left_out_counts(done)


@pytest.mark.parametrize(
    ("details", "stored"),
    [
        (b'{"n": 1}', 1),
        (b'{"n": %d}' % 2**70, None),
        (b'{"n": 1%s}' % (b"0" * 400), None),
        (b'{"n": "\\ud800x"}', "?x"),
        (b"[" * 100_000, None),
    ],
)
def test_what_json_can_say_and_a_column_cannot_hold_is_nothing(details: bytes, stored: Any, tmp_path: Path) -> None:
    image = samples(1)[0].image
    tar = tar_of(tmp_path / "a.tar", ("a.jpg", image), ("a.txt", b"one"), ("a.json", details))
    assert rows_of(converted(tar, tmp_path / "made.lance")[0])["one"].get("n") == stored


def test_names_of_files_need_not_be_utf8(tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", samples(2))
    (source / "some" / "00001.jpg").rename(source / "some" / "\udcff.jpg")
    (source / "some" / "00001.txt").rename(source / "some" / "\udcff.txt")
    rows = rows_of(converted(source, tmp_path / "made.lance")[0])
    assert rows["number 1"]["source"] == "some/\\udcff.jpg"


def test_captions_in_a_csv_are_texts_and_its_columns_numbers_where_all_of_it_is(tmp_path: Path) -> None:
    source = made.as_folder(tmp_path / "source", samples(3))
    lines = [
        "file_name,text,score,id",
        "00000.jpg,1984,0.5,007",
        "00001.jpg,nan,,abc",
        f"00002.jpg,{'x' * 200_000},1,1e5",
    ]
    (source / "some" / "metadata.csv").write_bytes("\r".join(lines).encode())
    for path in source.glob("some/*.txt"):
        path.unlink()
    rows = rows_of(converted(source, tmp_path / "made.lance", where=Where(("score is null or score > 0.1",)))[0])
    found = {said[:4]: (row["score"], row["id"]) for said, row in rows.items()}
    assert found == {"1984": (0.5, "007"), "nan": (None, "abc"), "xxxx": (1.0, "1e5")}


@pytest.mark.parametrize("other", ["jsonl", "csv", "parquet"])
def test_two_lines_about_one_image_are_told(other: str, tmp_path: Path) -> None:
    source = made.as_imagefolder(tmp_path / "source", samples(2))
    metadata = source / "train" / "metadata.jsonl"
    if other == "jsonl":
        metadata.write_text(metadata.read_text() + '{"file_name": "./00000.jpg", "text": "another"}')
        second, first = "line 3 of train/metadata.jsonl", "line 1 of train/metadata.jsonl"
    else:
        (made.as_imagefolder(tmp_path / "other", samples(1), other) / "train" / f"metadata.{other}").rename(
            metadata.with_suffix(f".{other}")
        )
        second, first = sorted((f"line 1 of train/metadata.{other}", "line 1 of train/metadata.jsonl"), reverse=True)
    with pytest.raises(BadInput, match=f"{first} and {second} are both about train/00000.jpg"):
        converted(source, tmp_path / "made.lance")


def test_a_damaged_table_of_metadata_is_named(tmp_path: Path) -> None:
    source = made.as_imagefolder(tmp_path / "source", samples(2), "parquet")
    (source / "train" / "metadata.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(BadInput, match=r"train/metadata\.parquet is damaged, or not a table"):
        converted(source, tmp_path / "made.lance")


def test_a_table_of_the_name_of_metadata_that_has_the_images_in_it_is_a_table(tmp_path: Path) -> None:
    source = made.as_parquet(tmp_path / "source", samples(4))
    (source / "a.parquet").rename(source / "metadata.parquet")
    assert len(rows_of(converted(source, tmp_path / "made.lance")[0])) == 4


def as_classes(root: Path, given: list[made.Sample]) -> Path:
    """ImageNet's layout: a folder for each class."""
    for number, one in enumerate(given):
        folder = root / "train" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{one.name}.jpg").write_bytes(one.image)
    return root


def test_of_images_in_folders_by_class_the_folders_name_is_the_label(tmp_path: Path) -> None:
    source = as_classes(tmp_path / "source", samples(4))
    data, _ = converted(source, tmp_path / "made.lance", keep_uncaptioned=True, where=Where(("label != 'bird'",)))
    rows = data.table.to_table().to_pylist()
    assert [(row["source"], row["label"]) for row in rows] == [
        ("train/cat/00000.jpg", "cat"),
        ("train/cat/00002.jpg", "cat"),
        ("train/dog/00001.jpg", "dog"),
        ("train/dog/00003.jpg", "dog"),
    ]


def test_a_label_may_be_the_caption(tmp_path: Path) -> None:
    source = as_classes(tmp_path / "source", samples(2))
    data, _ = converted(source, tmp_path / "made.lance", hints=Hints(captions=("label",)))
    assert data.table.to_table()["captions"].to_pylist() == [["cat"], ["dog"]]


@pytest.mark.parametrize("kind", ["folder", "imagefolder"])
def test_images_in_one_folder_have_no_label(kind: str, tmp_path: Path) -> None:
    data, _ = converted(KINDS[kind](tmp_path / "source", samples(2)), tmp_path / "made.lance")
    assert "label" not in data.table.schema.names


@pytest.mark.parametrize(("image", "caption"), [("a.webp", "a.TXT"), ("A.WEBP", "A.TXT"), ("A.WEBP", "A.WEBP.Caption")])
def test_a_caption_beside_an_image_is_known_in_capitals_too(image: str, caption: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / image).write_bytes(encoded(picture(1), "WEBP"))
    (tmp_path / "source" / caption).write_text("loud")
    assert list(rows_of(converted(tmp_path / "source", tmp_path / "made.lance")[0])) == ["loud"]


@pytest.mark.parametrize(("make", "name"), [(made.as_parquet, "A.PARQUET"), (made.as_tars, "A.TAR")])
@pytest.mark.parametrize("alone", [True, False])
def test_the_kind_of_a_file_is_known_in_capitals_too(make: Make, name: str, alone: bool, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    sorted(make(tmp_path / "made", samples(4)).iterdir())[0].rename(source / name)
    rows = rows_of(converted(source / name if alone else source, tmp_path / "made.lance")[0])
    assert "number 0" in rows


def test_a_file_that_is_no_source_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(samples(1)[0].image)
    with pytest.raises(BadInput, match=r"a\.jpg is neither a tar nor a table"):
        converted(tmp_path / "a.jpg", tmp_path / "made.lance")


def test_linked_folders_of_a_source_are_followed_and_never_in_a_circle(tmp_path: Path) -> None:
    elsewhere = made.as_folder(tmp_path / "elsewhere", samples(3))
    source = tmp_path / "source"
    source.mkdir()
    (source / "linked").symlink_to(elsewhere, target_is_directory=True)
    (elsewhere / "some" / "back").symlink_to(elsewhere, target_is_directory=True)
    (elsewhere / "self").symlink_to(elsewhere / "self", target_is_directory=True)
    assert len(rows_of(converted(source, tmp_path / "made.lance")[0])) == 3


@pytest.mark.parametrize("name", ["0.txt", "metadata.jsonl", "metadata.csv"])
def test_what_is_said_of_images_is_no_link_out_of_the_source(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "0.png").write_bytes(samples(1)[0].image)
    (tmp_path / "secret").write_text('{"file_name": "0.png", "text": "a password"}')
    (source / name).symlink_to(tmp_path / "secret")
    with pytest.raises(BadInput, match=f"{name} is a link that leads out of .*secret"):
        converted(source, tmp_path / "made.lance")


def test_what_lies_in_a_linked_folder_is_never_deleted(tmp_path: Path) -> None:
    """Of the places that are swept."""
    kept = made.as_folder(tmp_path / "elsewhere", samples(1))
    (tmp_path / "made.lance.converting").mkdir()
    (tmp_path / "made.lance.converting" / "linked").symlink_to(kept, target_is_directory=True)
    assert DataPlace(str(tmp_path / "made.lance.converting")).entries() == []


def test_tables_without_rows_are_told_by_the_name_of_the_file(tmp_path: Path) -> None:
    source = made.as_parquet(tmp_path / "source", samples(1))
    (source / "b.parquet").unlink()
    with pytest.raises(BadInput, match=r"source/a\.parquet has no rows"):
        converted(source / "a.parquet", tmp_path / "made.lance")


def test_a_single_file_of_which_nothing_is_left_is_named(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "source" / "a.tar", ("a.jpg", b"no image"), ("a.txt", b"a"))
    with pytest.raises(BadInput, match=r"no image of .*/a\.tar is left: 1 not an image"):
        converted(source, tmp_path / "made.lance")
    empty = tar_of(tmp_path / "source" / "b.tar")
    with pytest.raises(BadInput, match=r"no image of .*/b\.tar is left: it has none"):
        converted(empty, tmp_path / "made.lance")


def test_two_that_drop_the_doubles_at_once_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lance

    given = samples(8)
    source = made.as_tars(tmp_path / "source", [*given, made.Sample("z", given[0].image, "again", 0)])
    delete = lance.LanceFragment.delete_rows

    def overtaken(fragment: lance.LanceFragment, rows: Any) -> Any:
        monkeypatch.setattr(lance.LanceFragment, "delete_rows", delete)
        converted(source, tmp_path / "made.lance", unique="sha256")
        return delete(fragment, rows)

    monkeypatch.setattr(lance.LanceFragment, "delete_rows", overtaken)
    with pytest.raises(BadInput, match=r"another process has created .* meanwhile"):
        converted(source, tmp_path / "made.lance", unique="sha256")
    assert len(rows_of(open_data_set(DataPlace(str(tmp_path / "made.lance"))))) == 8


def test_a_jpeg_too_large_for_memory_is_stored_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits of 10,000 pixels."""
    monkeypatch.setattr("gangline.data.images.pixels.PIXELS_MAX", 10_000)
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 10_000)
    source = made.as_folder(tmp_path / "source", [made.Sample("a", encoded(picture(1, (200, 150))), "a", 0)])
    row = rows_of(converted(source, tmp_path / "made.lance")[0])["a"]
    assert (row["width"], row["height"]) == Image.open(io.BytesIO(row["image"])).size == (100, 75)


def test_a_data_set_is_not_made_of_a_whole_bucket(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="s3://photos is a whole bucket"):
        converted(made.as_tars(tmp_path / "source", samples(2)), DataPlace("s3://photos"))


def test_a_data_set_that_is_newer_or_damaged_is_told(tmp_path: Path) -> None:
    data, _ = converted(made.as_tars(tmp_path / "source", samples(2)), tmp_path / "made.lance")
    newer = json.loads((data.table.schema.metadata or {})[b"gangline"]) | {"format": 2, "more": 1}
    data.table.replace_schema_metadata({"gangline": json.dumps(newer)})
    with pytest.raises(BadInput, match="was made by a newer Gangline"):
        open_data_set(data.place)
    for path in (tmp_path / "made.lance" / "_versions").glob("*.manifest"):
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(BadInput, match=r"made\.lance is damaged"):
        open_data_set(data.place)
