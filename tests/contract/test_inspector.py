"""The program that looks at pictures of strangers: within limits, and one bad file harms no other."""

import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from gangline.adapters.places.inspector import LOST, TOO_MUCH, ProgramInspector
from gangline.compose.places import INSPECT
from gangline.core.errors import NotFound, Unreachable
from gangline.core.files import is_sha256
from gangline.ports.places.inspector import ReadFile, StoredCaption
from tests.service.datasets.conftest import named, picture


def reading(content: bytes):
    def chunks() -> Iterator[bytes]:
        yield content

    return chunks


def sha256(content: bytes) -> str:
    return named("x", content)["sha256"]


def test_pictures_are_looked_at_and_what_is_none_is_named_without_harm_to_the_others(tmp_path: Path) -> None:
    contents = (picture(1, (300, 200), "WEBP"), b"words", picture(2, (40, 40), "JPEG"))
    found = ProgramInspector(tmp_path / "looked", INSPECT).pictures({sha256(each): reading(each) for each in contents})
    first, words, last = (found[sha256(each)] for each in contents)
    assert (first.format, first.width, first.height, len(first.likeness)) == ("WEBP", 300, 200, 16)
    assert Image.open(io.BytesIO(first.thumbnail)).size == (256, 171)
    assert words.because.startswith("is not an image") and not words.thumbnail
    assert last.width == 40 and not last.because
    assert list((tmp_path / "looked").iterdir()) == [], "nothing is left on the disk"


def test_bytes_that_are_not_those_of_the_name_are_not_looked_at(tmp_path: Path) -> None:
    found = ProgramInspector(tmp_path, INSPECT).pictures({sha256(b"one"): reading(picture(1))})
    assert [(each.because, each.may_pass) for each in found.values()] == [(LOST, True)]


def missing() -> Iterator[bytes]:
    raise NotFound("it is not there")


@pytest.mark.parametrize("read", [missing, reading(b"other words")], ids=["no bytes", "other bytes"])
def test_a_caption_that_is_not_in_the_store_is_named(tmp_path: Path, read: ReadFile) -> None:
    inspector = ProgramInspector(tmp_path, INSPECT)
    caption = StoredCaption(sha256=sha256(b"a dog"), read=read)
    assert inspector.texts({"a.png": (9, 9)}, {}, {"a.txt": caption}).because == f"a.txt {LOST}"
    whole = replace(caption, read=reading(b"a dog"))
    assert inspector.texts({"a.png": (9, 9)}, {}, {"a.txt": whole}).because == ""


def test_pictures_that_are_not_reached_in_time_may_be_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.adapters.places.inspector.LOOK_ALL_S", -1)
    found = ProgramInspector(tmp_path, INSPECT).pictures({sha256(picture(1)): reading(picture(1))})
    assert [(each.because, each.may_pass) for each in found.values()] == [(TOO_MUCH, True)]


def test_a_panorama_has_a_small_copy_of_its_shape(tmp_path: Path) -> None:
    wide = picture(1, (6000, 20))
    found = ProgramInspector(tmp_path, INSPECT).pictures({sha256(wide): reading(wide)})
    assert Image.open(io.BytesIO(found[sha256(wide)].thumbnail)).size == (256, 1)


CRASHES = """
import json, os, sys
from pathlib import Path
folder = Path(sys.argv[1])
asked = json.loads((folder / "question.json").read_text())["pictures"]
if any((folder / "files" / name).read_bytes() == b"bomb" for name in asked):
    os.abort()
for name in asked:
    (folder / "files" / (name + ".jpg")).write_bytes(b"small")
print(json.dumps({name: {"format": "PNG", "width": 1, "height": 1, "sharpness": 1, "likeness": "0"} for name in asked}))
"""


def test_a_file_that_ends_the_program_is_found_among_the_others(tmp_path: Path) -> None:
    contents = [f"photo {number}".encode() for number in range(6)] + [b"bomb"]
    inspector = ProgramInspector(tmp_path, (sys.executable, "-c", CRASHES))
    found = inspector.pictures({sha256(each): reading(each) for each in contents})
    assert len(found) == 7 and all(map(is_sha256, found))
    assert {key for key, each in found.items() if each.because == TOO_MUCH and each.may_pass} == {sha256(b"bomb")}


def test_where_the_program_does_not_start_no_file_is_to_blame(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="does not start"):
        ProgramInspector(tmp_path, (sys.executable, "-c", "raise SystemExit(1)")).pictures(
            {sha256(b"a"): reading(b"a")}
        )


def test_a_small_copy_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the server")
    links = CRASHES.replace('write_bytes(b"small")', f"symlink_to({str(secret)!r})")
    with pytest.raises(OSError, match=r"symbolic link|loop"):
        ProgramInspector(tmp_path / "looked", (sys.executable, "-c", links)).pictures({sha256(b"a"): reading(b"a")})


def test_a_decoder_gets_no_secret_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret of the server")
    tells = (
        "import json, os; print(json.dumps({'because': os.environ.get('AWS_SECRET_ACCESS_KEY', 'none'), 'notes': []}))"
    )
    found = ProgramInspector(tmp_path, (sys.executable, "-c", tells)).texts({}, {}, {})
    assert found.because == "none"
