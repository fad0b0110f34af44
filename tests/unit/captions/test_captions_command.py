"""`gangline captions` on a folder of photos: a table out, a table in, an editor in between."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gangline.cli.captions.table import read_table, write_table
from gangline.core.display import FORMULA, table_cell, text_of_cell
from gangline.core.errors import BadInput
from tests.conftest import Typed

LINES = st.text(st.characters(exclude_categories=("C", "Z")), max_size=20)


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
        ("photo,caption\na.png,one\na.png,two\n", "line 3: a.png is in the table twice"),
        ("photo,caption\n../a.png,one\n", "line 2: there is no photo ../a.png"),
        ("photo,caption\na.png,one,two\n", "line 2: there are 3 cells"),
        ('photo,caption\na.png,"one\n', "unexpected end of data"),
        ("photo,caption\na.png," + "x" * 200_000, "field larger than field limit"),
    ],
)
def test_a_table_that_is_none_changes_nothing(
    table: str, says: str, photos: Path, typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(table)
    code, _, said = typed("captions", "import", photos, tmp_path / "t.csv")
    assert code == 2 and says in said
    assert (photos / "a.txt").read_text() == "a dog\n"


def test_bytes_that_are_no_text_are_no_table(photos: Path, typed: Typed, tmp_path: Path) -> None:
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
    assert "there is no table to read" in typed("captions", "import", photos)[2]
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
        ({"notes.md": b""}, "is no model that writes captions"),
        ({"a.onnx": b"", "b.onnx": b"", "t.csv": b""}, "has 2 .onnx files"),
        ({"a.onnx": b""}, "needs exactly one .csv file"),
        ({"config.json": b"{}", "pytorch_model.bin": b""}, "and pytorch_model.bin would run code of its own"),
    ],
)
def test_a_folder_that_holds_no_model_is_refused_before_anything_is_uploaded(
    files: dict[str, bytes], says: str, photos: Path, typed: Typed, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name, content in files.items():
        (model / name).write_bytes(content)
    code, _, said = typed("captions", "write", photos, "--model", model, "--server", "http://127.0.0.1:9")
    assert code == 2 and says in said


@given(text=LINES)
def test_a_cell_is_no_formula_and_gives_its_text_back(text: str) -> None:
    assert text_of_cell(table_cell(text)) == text
    assert not table_cell(text).startswith(FORMULA)


@given(captions=st.dictionaries(LINES.filter(bool), LINES))
def test_a_table_gives_its_captions_back(captions: dict[str, str]) -> None:
    assert read_table(write_table(captions), captions, "t.csv") == captions


def test_a_photo_that_is_not_there_is_named_with_its_line() -> None:
    with pytest.raises(BadInput, match=r"t\.csv, line 2: there is no photo z.png"):
        read_table("photo,caption\nz.png,a\n", {"a.png"}, "t.csv")
