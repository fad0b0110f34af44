"""`gangline data`: what it prints, and that what is wrong costs one sentence and a hint."""

import io
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import pyarrow.parquet as pq
import pytest
from PIL import Image
from rich.console import Console

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.cli.data import progress as bars
from tests.conftest import BASE, Typed
from tests.data import made
from tests.data.made import samples


@pytest.fixture
def gangline(typed: Typed) -> Typed:
    """`gangline data` with such words."""
    return partial(typed, "data")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return made.as_imagefolder(tmp_path / "source", [*samples(12), made.Sample("x", b"none", "no image", 1.0)])


def test_the_way_of_a_data_set(gangline: Typed, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "made.lance"
    code, printed, said = gangline("convert", source, target, "--where", "score < 1.1", "--processes", 1)
    assert code == 0
    assert "rows      11" in printed
    assert "skipped: 1 × not an image, such as train/x.jpg" in said
    assert "skipped: 1 × excluded by --where" in said

    code, printed, said = gangline("encode", target, "--base", BASE, "--resolution", 32, "--usd-per-hour", 36)
    assert code == 0
    assert "the encoding adds 0.000 GB for 11 rows (latents_32 1024 bytes a row)" in said
    assert "images a second in 1 process" in said
    assert "latents_32" in printed

    code, printed, _ = gangline("inspect", target, "--pictures", tmp_path / "look.png")
    assert code == 0
    assert "latents of 32 × 32 (center): mean and deviation" in printed
    assert "computed in float32" in printed
    assert "list<item: string>" in printed
    assert Image.open(tmp_path / "look.png").width > 500

    code, printed, _ = gangline("inspect", target, "-o", "json")
    assert json.loads(printed)["left_out"] == {"excluded by --where": 1, "not an image": 1}

    code, printed, _ = gangline("ls", tmp_path, "-o", "json")
    assert [(one["rows"], one["left_out"]) for one in json.loads(printed)] == [
        (11, {"excluded by --where": 1, "not an image": 1})
    ]
    assert "made.lance" in gangline("ls", tmp_path)[1]


def test_storage_and_run_are_priced_before_they_begin(capsys: pytest.CaptureFixture[str]) -> None:
    from gangline.cli.data.data_page import forecast_json, tell_forecast
    from gangline.train.encoding.encode import EncodingForecast

    expected = EncodingForecast(rows=36_000_000, columns={"latents_512": 65_536}, images_per_second=125.0)
    tell_forecast(expected, 8, 2.5)
    stored, run = capsys.readouterr().err.splitlines()
    assert stored.endswith("latents_512 65536 bytes a row), which cost $54.26 a month in a bucket")
    assert run == "the encoding takes about 10 h 00 min, $200.00: 125.0 images a second in each of 8 processes"
    priced = forecast_json(expected, 8, 2.5)
    assert (priced["usd"], round(priced["usd_per_month"], 2)) == (200, 54.26)


@pytest.mark.parametrize("resolution", [4104, 100_000])
def test_a_resolution_that_nothing_trains_at_is_refused_before_anything_is_opened(
    resolution: int, gangline: Typed
) -> None:
    code, _, said = gangline("encode", "nowhere.lance", "--base", "nobody/no-such-model", "--resolution", resolution)
    assert code == 2
    assert "less than or equal to 4096" in " ".join(said.replace("│", " ").split()) and "no data set" not in said


@pytest.mark.parametrize("kind", ["folder", "tars", "parquet"])
def test_images_without_any_caption_become_a_data_set_where_that_is_asked(
    kind: str, gangline: Typed, tmp_path: Path
) -> None:
    given = samples(4)
    source = {"folder": made.as_folder, "tars": made.as_tars, "parquet": made.as_parquet}[kind](
        tmp_path / "source", [replace(one, caption="") for one in given]
    )
    if kind == "parquet":
        for path in source.iterdir():
            pq.write_table(pq.read_table(path).drop_columns("caption"), path)
    code, _, said = gangline("convert", source, tmp_path / "made.lance", "--processes", 1)
    assert code == 2
    assert "--keep-uncaptioned" in said
    assert gangline("convert", source, tmp_path / "made.lance", "--keep-uncaptioned", "--processes", 1)[0] == 0
    code, printed, _ = gangline("inspect", tmp_path / "made.lance", "--pictures", tmp_path / "look.png")
    assert code == 0
    assert "0.00 per image, none" in printed


def test_one_is_told_in_the_singular(gangline: Typed, tmp_path: Path) -> None:
    source = made.as_imagefolder(tmp_path / "source", samples(2))
    (source / "train" / "00001.jpg").unlink()
    _, _, said = gangline("convert", source, tmp_path / "made.lance", "--plan")
    assert "2 files, 1 piece of about 8192 samples" in said
    assert "there is no image for 1 line of metadata, such as train/00001.jpg" in said


def test_progress_has_a_rate_of_this_try_and_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(bars, "err", Console(file=shown, force_terminal=True, width=200))
    with bars.progress("samples") as bar:
        bar(0.5, 100, 100, "")
    assert "100 samples" in shown.getvalue()
    assert "a second" not in shown.getvalue(), "of what an earlier try did nobody knows how long it took"
    with bars.progress("samples") as bar:
        bar(0.5, 100, 100, "")
        bar(0.75, 100, 100, "3 left out")
    assert re.search(r"75 %.* 100 samples 0 a second \d+ s left 3 left out", shown.getvalue())


def test_a_conversion_shows_its_progress_on_a_terminal(
    gangline: Typed, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(bars, "err", Console(file=shown, force_terminal=True, width=200))
    assert gangline("convert", source, tmp_path / "made.lance", "--rows", 4, "--processes", 1)[0] == 0
    assert re.search(r"100 %.* 13 samples [1-9]\d* a second 0 s left 12 kept, 1 skipped", shown.getvalue())


def test_a_plan_does_nothing(gangline: Typed, source: Path, tmp_path: Path) -> None:
    code, printed, said = gangline("convert", source, tmp_path / "made.lance", "--plan", "-o", "json")
    assert code == 0
    assert json.loads(printed)["kind"] == "folder"
    assert "is a folder of images" in said
    assert not (tmp_path / "made.lance").exists()
    assert not (tmp_path / "made.lance.converting").exists()


def test_a_bucket_is_a_place(
    gangline: Typed, source: Path, bucket: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"s3://{bucket.name}/{tmp_path.name}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": bucket.credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": bucket.credentials.secret_key,
        "AWS_ENDPOINT_URL": bucket.endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    assert gangline("convert", source, f"{place}/made.lance", "--processes", 1)[0] == 0
    assert "made.lance" in gangline("ls", place)[1]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    code, _, said = gangline("inspect", f"{place}/made.lance")
    assert code == 2
    assert "refuses this key" in said
    assert "hint: set AWS_ACCESS_KEY_ID" in said


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (("convert", "nowhere", "made.lance"), "there is no folder", "s3://BUCKET/PREFIX"),
        (
            ("convert", "empty", "made.lance"),
            "holds no images, tars, tables or MDS",
            "give a folder of images",
        ),
        (
            ("convert", "source", "made.lance", "--where", "colour = 1"),
            "No field named colour",
            "columns are width, height",
        ),
        (
            ("convert", "source", "made.lance", "--unique", "colour"),
            "no column colour that could be unique",
            "the columns are width",
        ),
        (
            ("convert", "source", "gs://a/b"),
            "the place of data is gs://a/b, and Google Cloud Storage is not supported",
            "use a bucket with the S3 API",
        ),
        (
            ("convert", "source", "made.lance", "--ray-address", "x"),
            "--ray-address is set, but --engine is not ray",
            "pass --engine ray too",
        ),
        (
            ("convert", "source", "made.lance", "--engine", "ray", "--ray-address", "127.0.0.1:1"),
            "nothing answers at 127.0.0.1:1: connection refused",
            "omit --ray-address",
        ),
        (
            ("convert", "source", "made.lance", "--engine", "ray", "--ray-address", "head"),
            "head is not an address of a Ray cluster",
            "for example 10.0.0.1:6379",
        ),
        (("inspect", "nowhere.lance"), "there is no data set at", "data ls"),
        (
            ("convert", "source", "made.lance", "--plan", "--where", "colour = 1"),
            "No field named colour",
            "columns are",
        ),
        (("inspect", "source"), "there is no data set at", "data ls"),
        (("encode", "nowhere.lance", "--base", "x", "--resolution", "32"), "there is no data set at", "data ls"),
    ],
)
def test_what_is_wrong_costs_one_sentence(
    words: tuple[str, ...], sentence: str, hint: str, gangline: Typed, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source.parent / "empty").mkdir()
    monkeypatch.chdir(source.parent)
    code, printed, said = gangline(*words)
    assert code == 2
    assert printed == ""
    assert sentence in said
    assert hint in said
    assert not (source.parent / "made.lance").exists()


def test_a_sheet_of_pictures_has_the_name_of_a_picture(gangline: Typed, source: Path, tmp_path: Path) -> None:
    gangline("convert", source, tmp_path / "made.lance", "--processes", 1)
    code, _, said = gangline("inspect", tmp_path / "made.lance", "--pictures", tmp_path / "look")
    assert code == 2
    assert "does not name a picture file" in said
    assert "hint: end its name in .png, .jpg, .jpeg or .webp, e.g. look.png" in said


def test_a_lance_table_of_somebody_else_is_told(gangline: Typed, tmp_path: Path) -> None:
    import lance
    import pyarrow as pa

    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "other.lance")
    code, _, said = gangline("inspect", tmp_path / "other.lance")
    assert code == 2
    assert "is a Lance table, but not a data set of Gangline" in said
    assert "there are no data sets in" in gangline("ls", tmp_path)[2]


def test_a_model_that_is_not_there_is_told(gangline: Typed, source: Path, tmp_path: Path) -> None:
    gangline("convert", source, tmp_path / "made.lance", "--processes", 1)
    for name in ("./nowhere", "nobody/no-such-model"):
        code, _, said = gangline("encode", tmp_path / "made.lance", "--base", name, "--resolution", 32)
        assert code == 2
        assert name.removeprefix("./") in said
        assert "hint: give a folder" in said


@pytest.mark.parametrize("processes", ["1", "2"])
def test_ctrl_c_waits_for_no_server_and_loses_nothing(processes: str, tmp_path: Path) -> None:
    given = samples(12)
    with made.web() as web:
        urls = [web.has(f"/{one.name}", one.image) for one in given[:8]] + [web.has("/hangs", Hang="yes")] * 4
        source = made.as_laion(tmp_path / "source", urls, given)
        words = [str(source), str(tmp_path / "made.lance"), "--rows", "4", "--processes", processes]
        command = [sys.executable, "-m", "gangline.cli.main", "data", "convert", *words]
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        notes = tmp_path / "made.lance.converting"
        while not ("/hangs" in web.asked and len(list(notes.glob("0*.json"))) == 2):
            assert running.poll() is None
            Event().wait(0.02)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=15)
    assert running.returncode == 130
    assert "finished pieces are kept, and the same command continues" in said
    assert len(list(notes.glob("0*.json"))) == 2
