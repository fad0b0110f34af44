"""`gangline captions` on a folder of photos: a table out, a table in, an editor in between."""

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from gangline.cli.captions.captions import model_files
from gangline.cli.captions.job import only_missing
from gangline.cli.captions.photos import captioned_photos, shown_captions
from gangline.cli.captions.table import read_table, write_table
from gangline.core.display import is_formula, safe_cell, table_cell, text_of_cell
from gangline.core.errors import BadInput
from tests.conftest import ROOT, Typed

LINES = st.text(st.characters(exclude_categories=("C", "Z")), max_size=20)
BEGINNINGS = st.text(st.sampled_from("'=+-@＝＋－＠\u200c\u200d\u200b \xa0\t\rx"), max_size=6)
CELLS = st.builds(lambda start, rest: start + rest, BEGINNINGS, LINES)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "dogs"
    folder.mkdir()
    for name in ("a.png", "b.jpg", "c.png"):
        Image.new("RGB", (32, 32)).save(folder / name)
    (folder / "a.txt").write_text("a dog\n")
    (folder / "b.jpg.caption").write_text("=HYPERLINK(1)")
    return folder


def test_the_table_has_each_photo_and_no_formula(photos: Path, typed: Typed) -> None:
    code, printed, _ = typed("captions", "export", photos)
    assert code == 0
    assert printed == "photo,caption\na.png,a dog\nb.jpg,'=HYPERLINK(1)\nc.png,\n"
    _, as_json, _ = typed("captions", "export", photos, "-o", "json")
    assert json.loads(as_json)[1] == {"photo": "b.jpg", "caption": "=HYPERLINK(1)"}


def test_a_table_is_taken_over_into_the_files_that_the_photos_have(photos: Path, typed: Typed, tmp_path: Path) -> None:
    table = tmp_path / "captions.csv"
    assert typed("captions", "export", photos, "--to", table)[0] == 0
    table.write_text('photo,caption\na.png,"a dog, ""sitting"""\nb.jpg,\'=HYPERLINK(2)\nc.png,"two\ndogs"\n')
    code, _, said = typed("captions", "import", photos, table)
    assert code == 0 and said.startswith("3 captions changed")
    assert (photos / "a.txt").read_text() == 'a dog, "sitting"\n'
    assert (photos / "b.jpg.caption").read_text() == "=HYPERLINK(2)\n"
    assert (photos / "c.txt").read_text() == "two dogs\n"


def test_a_table_in_a_file_is_one_that_excel_reads_and_import_takes_it(
    photos: Path, typed: Typed, tmp_path: Path
) -> None:
    (photos / "a.txt").write_text("größer\n", encoding="utf-8")
    assert typed("captions", "export", photos, "--to", tmp_path / "t.csv")[0] == 0
    written = (tmp_path / "t.csv").read_bytes()
    assert written.startswith(b"\xef\xbb\xbfphoto,caption\n") and "größer".encode() in written
    assert not typed("captions", "export", photos)[1].startswith("\ufeff")
    code, _, said = typed("captions", "import", photos, tmp_path / "t.csv")
    assert code == 0 and said.startswith("0 captions changed")


def test_photos_of_one_stem_have_captions_of_their_own(photos: Path, typed: Typed, tmp_path: Path) -> None:
    Image.new("RGB", (32, 32)).save(photos / "a.jpg")
    (tmp_path / "t.csv").write_text("photo,caption\na.jpg,one\n")
    assert typed("captions", "import", photos, tmp_path / "t.csv")[0] == 0
    assert (photos / "a.jpg.txt").read_text() == "one\n" and (photos / "a.txt").read_text() == "a dog\n"
    (tmp_path / "t.csv").write_text("photo,caption\na.png,two\n")
    assert typed("captions", "import", photos, tmp_path / "t.csv")[0] == 0
    assert (photos / "a.png.txt").read_text() == "two\n" and (photos / "a.txt").read_text() == "a dog\n"
    (tmp_path / "t.csv").write_text("photo,caption\na.jpg,\n")
    _, _, said = typed("captions", "import", photos, tmp_path / "t.csv")
    assert not (photos / "a.jpg.txt").exists() and (photos / "a.txt").exists() and (photos / "a.png.txt").exists()
    assert "note: a.jpg keeps the caption that" in said, "both had a.txt before"
    assert typed("captions", "export", photos)[1].splitlines()[1:3] == ["a.jpg,a dog", "a.png,two"]


def test_the_words_of_a_folder_are_no_caption_that_a_model_would_leave(
    photos: Path, typed: Typed, tmp_path: Path
) -> None:
    (photos / "10_sks dog").mkdir()
    Image.new("RGB", (32, 32)).save(photos / "10_sks dog" / "d.png")
    found = captioned_photos(cast(Any, None), str(photos))
    assert shown_captions(found)["10_sks dog/d.png"] == "sks dog"
    kept = only_missing(found, {"10_sks dog/d.png": "new", "a.png": "new"}, overwrite=False)
    assert kept == {"10_sks dog/d.png": "new"}
    assert "10_sks dog/d.png,sks dog" in typed("captions", "export", photos)[1]


def test_a_folder_of_more_photos_than_a_request_holds_is_refused_before_anything_is_uploaded(
    typed: Typed, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    first = folder / f"{0:04}{'x' * 230}.png"
    Image.new("RGB", (8, 8)).save(first)
    for number in range(1, 3_000):
        os.link(first, folder / f"{number:04}{'x' * 230}.png")
    server = ("--server", "http://127.0.0.1:9")
    code, _, said = typed("captions", "write", folder, "--model", ROOT / "assets" / "tiny-tagger", *server)
    assert code == 2
    assert "the names of 3000 photos do not fit into one request, which has at most 1,000,000 bytes" in said
    assert "gangline datasets push" in said


def test_what_the_hub_writes_beside_a_model_is_not_of_it(tmp_path: Path) -> None:
    (tmp_path / ".cache" / "huggingface").mkdir(parents=True)
    for name in ("model.onnx", "selected_tags.csv", ".cache/huggingface/model.onnx.metadata", ".gitignore"):
        (tmp_path / name).touch()
    assert [path.name for path in model_files(tmp_path)] == ["model.onnx", "selected_tags.csv"]


def test_an_empty_cell_deletes_a_caption_and_a_line_that_is_missing_keeps_it(
    photos: Path, typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("photo,caption\na.png,\n")
    assert typed("captions", "import", photos, tmp_path / "t.csv")[2].startswith("1 caption changed")
    assert not (photos / "a.txt").exists() and (photos / "b.jpg.caption").exists()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("", "the first line must be `photo,caption`, not empty"),
        ("a.png;a dog\n", "the first line must be `photo,caption`, not a.png;a dog"),
        ("photo;words\n", "commas, semicolons and tabs separate cells"),
        ("photo,caption\na.png,one\na.png,two\n", "line 3: a.png is in the table twice"),
        ("photo,caption\n../a.png,one\n", "line 2: there is no photo ../a.png"),
        ("photo,caption\na.png,one,two\n", "line 2: it has 3 cells"),
        ('photo,caption\na.png,"one\n', "unexpected end of data"),
        ("photo,caption\na.png," + "x" * 200_000, "field larger than field limit"),
    ],
)
def test_what_is_not_a_table_changes_nothing(table: str, says: str, photos: Path, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table)
    code, _, said = typed("captions", "import", photos, tmp_path / "t.csv")
    assert code == 2 and says in said
    assert (photos / "a.txt").read_text() == "a dog\n"


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("head", ["photo{}caption", '"photo"{}"caption"', "\ufeffphoto{}caption"])
def test_a_table_may_have_semicolons_or_tabs_as_spreadsheets_of_many_locales_save_it(
    separator: str, head: str, photos: Path, typed: Typed, tmp_path: Path
) -> None:
    rows = (head.format(separator), f"a.png{separator}a dog, sitting", f'c.png{separator}"one{separator}two"')
    (tmp_path / "t.csv").write_text("".join(f"{row}\r\n" for row in rows), encoding="utf-8", newline="")
    code, _, said = typed("captions", "import", photos, tmp_path / "t.csv")
    assert code == 0 and said.startswith("2 captions changed"), said
    assert (photos / "a.txt").read_text() == "a dog, sitting\n"
    assert (photos / "c.txt").read_text() == " ".join(f"one{separator}two".split()) + "\n"


def test_the_first_line_decides_what_separates_cells(photos: Path, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("photo,caption\na.png,a dog; sitting\n")
    assert typed("captions", "import", photos, tmp_path / "t.csv")[0] == 0
    assert (photos / "a.txt").read_text() == "a dog; sitting\n"
    (tmp_path / "t.csv").write_text("photo;caption\na.png,a cat\n")
    code, _, said = typed("captions", "import", photos, tmp_path / "t.csv")
    assert code == 2 and "line 2: it has 1 cell, not" in said, said


def test_bytes_that_are_not_text_are_refused(photos: Path, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("photo,caption\na.png,Zürich".encode("latin1"))
    assert "is not UTF-8" in typed("captions", "import", photos, tmp_path / "t.csv")[2]


def test_what_the_editor_saved_is_taken_over(
    photos: Path, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys, pathlib as p; f = p.Path(sys.argv[1]); f.write_text(f.read_text().replace('a dog', 'a cat'))"
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} {editor}")
    assert typed("captions", "edit", photos)[0] == 0
    assert (photos / "a.txt").read_text() == "a cat\n"


def test_captions_come_from_a_table_or_from_a_job(photos: Path, typed: Typed) -> None:
    said = typed("captions", "import", photos)[2]
    assert "there is no table to read" in said and "captions.csv), or --job JOB" in said
    assert "exclude each other" in typed("captions", "import", photos, "t.csv", "--job", "last")[2]


def test_an_editor_that_fails_changes_nothing(photos: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "false")
    assert "the editor ended with exit code 1, so no caption was changed" in typed("captions", "edit", photos)[2]
    monkeypatch.setenv("VISUAL", "/nowhere/editor")
    assert "cannot be started" in typed("captions", "edit", photos)[2]


def test_a_link_beside_a_photo_is_not_followed_out_of_the_folder(photos: Path, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("keep")
    (photos / "c.txt").symlink_to(tmp_path / "other.txt")
    (tmp_path / "t.csv").write_text("photo,caption\nc.png,new\n")
    assert typed("captions", "import", photos, tmp_path / "t.csv")[0] == 2
    assert (tmp_path / "other.txt").read_text() == "keep"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "model.files"),
        ({"notes.md": b""}, "does not write captions"),
        ({"a.onnx": b"", "b.onnx": b"", "t.csv": b""}, "has 2 .onnx files"),
        ({"a.onnx": b""}, "needs exactly one .csv file"),
        ({"config.json": b"{}", "pytorch_model.bin": b""}, "and pytorch_model.bin would run code of its own"),
    ],
)
def test_a_folder_without_a_model_is_refused_before_anything_is_uploaded(
    files: dict[str, bytes], says: str, photos: Path, typed: Typed, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name, content in files.items():
        (model / name).write_bytes(content)
    code, _, said = typed("captions", "write", photos, "--model", model, "--server", "http://127.0.0.1:9")
    assert code == 2 and says in said


@given(text=CELLS)
@example(text="＝1")
@example(text=" =1")
@example(text="\u200d'=1")
def test_a_cell_is_no_formula_and_gives_its_text_back(text: str) -> None:
    assert text_of_cell(table_cell(text)) == text
    assert not is_formula(table_cell(text))
    assert not is_formula(safe_cell(text))


@given(one=CELLS, other=CELLS)
def test_different_texts_are_different_cells(one: str, other: str) -> None:
    assert (table_cell(one) == table_cell(other)) == (one == other)


@given(captions=st.dictionaries(CELLS.filter(str.isprintable).filter(bool), CELLS))
def test_a_table_gives_its_captions_back(captions: dict[str, str]) -> None:
    words = {photo: " ".join(caption.split()) for photo, caption in captions.items()}
    assert read_table(write_table(words), words, "t.csv") == words


def test_a_photo_that_is_not_there_is_named_with_its_line() -> None:
    with pytest.raises(BadInput, match=r"t\.csv, line 2: there is no photo z.png"):
        read_table("photo,caption\nz.png,a\n", {"a.png"}, "t.csv")
