"""Zips of photos are unpacked as they were packed, and no zip does anything else."""

import io
import json
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from gangline.core.errors import BadInput
from gangline.data.images.imported import FETCHED, PHOTOS, REFUSED
from gangline.data.images.zips import ZipBounds, unpack_zip


def picture(colour: str = "red") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(out, "PNG")
    return out.getvalue()


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return path


def unpacked(path: Path, bounds: ZipBounds = ZipBounds()) -> list[str]:  # noqa: B008 - it is frozen
    folder = path.parent / "out"
    folder.mkdir()
    unpack_zip(path, folder, bounds)
    return sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())


def test_files_keep_their_names_without_the_folder_that_was_packed(tmp_path: Path) -> None:
    files = {"dogs/a.png": b"a", "dogs/a.txt": b"sks dog", "dogs/metadata.jsonl": b"{}"}
    noise = {"__MACOSX/dogs/._a.png": b"x", "dogs/.DS_Store": b"x", "dogs/._a.png": b"x"}
    assert unpacked(packed(tmp_path / "dogs.zip", files | noise)) == ["a.png", "a.txt", "metadata.jsonl"]
    assert (tmp_path / "out" / "a.txt").read_bytes() == b"sks dog"


def test_a_folder_with_repeats_is_part_of_the_names(tmp_path: Path) -> None:
    assert unpacked(packed(tmp_path / "dogs.zip", {"dogs/10_sks dog/a.png": b"a"})) == ["10_sks dog/a.png"]


@pytest.mark.parametrize(
    "name", ["../a.png", "/a.png", "x/../../a.png", "a\\..\\b.png", "C:/a.png", "a//b.png", "a\nb.png"]
)
def test_a_name_that_leads_out_is_refused_before_a_byte_is_unpacked(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="leads out of it"):
        unpacked(packed(tmp_path / "dogs.zip", {"good.png": b"a", name: b"a"}))
    assert list((tmp_path / "out").iterdir()) == [] and not (tmp_path / "a.png").exists()


def test_links_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("a.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "dogs.zip", "w") as out:
        out.writestr(link, "/etc/passwd")
    with pytest.raises(BadInput, match=r"holds a\.png, which is not a regular file"):
        unpacked(tmp_path / "dogs.zip")


def test_archives_in_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="another archive"):
        unpacked(packed(tmp_path / "dogs.zip", {"a.png": b"a", "inner.zip": b"PK"}))


def test_a_zip_that_swells_is_stopped_by_what_it_says(tmp_path: Path) -> None:
    path = packed(tmp_path / "dogs.zip", {f"{n}.png": bytes(10**6) for n in range(20)})
    assert path.stat().st_size < 10**5
    with pytest.raises(BadInput, match="unpacks to"):
        unpacked(path, ZipBounds(bytes_max=10**7))
    assert list((tmp_path / "out").iterdir()) == []


def test_and_by_what_it_does_where_it_says_less(tmp_path: Path) -> None:
    """The lengths in its directory are lies."""
    path = packed(tmp_path / "dogs.zip", {"a.png": bytes(10**6)})
    content = path.read_bytes()
    lie = content.replace(struct.pack("<I", 10**6), struct.pack("<I", 1000))
    assert lie != content
    path.write_bytes(lie)
    with pytest.raises(BadInput):
        unpacked(path, ZipBounds(file_bytes_max=5000))
    assert sum(each.stat().st_size for each in (tmp_path / "out").rglob("*") if each.is_file()) <= 5000


def test_one_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"a\.png of dogs\.zip unpacks to more than 1 MB"):
        unpacked(packed(tmp_path / "dogs.zip", {"a.png": bytes(2 * 10**6)}), ZipBounds(file_bytes_max=10**6))


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds 11 files, more than 10"):
        unpacked(packed(tmp_path / "dogs.zip", {f"{n}.png": b"" for n in range(11)}), ZipBounds(files_max=10))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: b"",
        lambda c: c[: len(c) // 2],
        lambda c: b"<html>" + c[:10],
        lambda c: c.replace(b"\x89PNG", b"\x00PNG"),
    ],
)
def test_what_is_no_whole_zip_is_refused_in_words(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    with zipfile.ZipFile(tmp_path / "dogs.zip", "w") as out:
        out.writestr("a.png", picture())
    path = tmp_path / "dogs.zip"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(BadInput, match=r"dogs\.zip cannot be unpacked"):
        unpacked(path)


def test_a_file_and_a_folder_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot also be the folder"):
        unpacked(packed(tmp_path / "dogs.zip", {"a": b"", "a/b.png": b"", "c.png": b""}))


def test_a_zip_with_a_password_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "dogs.zip", {"a.png": b"a"})
    content = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + offset] |= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match="encrypted"):
        unpacked(path)


# What a server has fetched


def looked_at(folder: Path, *, all_are_photos: bool = False) -> tuple[int, dict]:
    wanted = json.dumps({"bounds": {}, "all_are_photos": all_are_photos})
    command = [sys.executable, "-m", "gangline.data.images.imported", str(folder), wanted]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def test_photos_and_captions_of_a_zip_are_found_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / FETCHED).mkdir()
    packed(tmp_path / FETCHED / "dogs.zip", {"d/1.png": picture(), "d/1.txt": b"sks dog", "d/notes.doc": b"x"})
    for _ in range(2):  # a server that died in the midst of it looks again
        code, found = looked_at(tmp_path)
        assert (code, found["photos"], found["captions"]) == (0, ["1.png"], ["1.txt"])
        assert found["told"] == ["notes.doc is skipped: not an image"]
    assert (tmp_path / PHOTOS / "1.png").read_bytes() == picture()


def test_a_photo_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / FETCHED).mkdir()
    (tmp_path / FETCHED / "dog.png").write_bytes(picture()[:60])
    code, found = looked_at(tmp_path)
    assert code == REFUSED and found["message"].startswith("dog.png cannot be read to its end")


def test_what_was_named_as_a_photo_and_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FETCHED).mkdir()
    (tmp_path / FETCHED / "dog.png").write_bytes(picture())
    (tmp_path / FETCHED / "page").write_bytes(b"<html>sign in first</html>")
    assert looked_at(tmp_path)[1]["photos"] == ["dog.png"]
    code, found = looked_at(tmp_path, all_are_photos=True)
    assert (code, found["message"]) == (REFUSED, "page is not a photo: not an image")


def test_an_animation_that_was_named_as_a_photo_is_one_by_its_first_frame(tmp_path: Path) -> None:
    (tmp_path / FETCHED).mkdir()
    frames = [Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / FETCHED / "dog.gif", save_all=True, append_images=frames[1:])
    code, found = looked_at(tmp_path, all_are_photos=True)
    assert (code, found["photos"]) == (0, ["dog.gif"]), found
    assert found["told"] == ["dog.gif has 2 frames: only the first is used"]


def test_a_damaged_member_and_folders_without_end_are_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.zip"
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.png", bytes(range(256)) * 40)
    content = bytearray(damaged.read_bytes())
    content[45:55] = b"\xff" * 10
    damaged.write_bytes(content)
    deep = tmp_path / "deep.zip"
    with zipfile.ZipFile(deep, "w") as packed:
        packed.writestr("a/" * 900 + "a.png", b"")
    for path, said in ((damaged, "cannot be unpacked"), (deep, "nested more than")):
        with pytest.raises(BadInput, match=said):
            unpack_zip(path, tmp_path / path.stem, ZipBounds())
