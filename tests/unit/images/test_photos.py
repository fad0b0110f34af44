"""A folder of photos is taken as a person sees it: every image is used as it looks, or refused with its name and what to do."""

import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngImageFile

from gangline.core.errors import BadInput
from gangline.data.images.buckets import Size
from gangline.data.images.photos import find_photos
from gangline.data.images.pixels import read_alpha, read_photo

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def picture(size: tuple[int, int] = (40, 30), colour: tuple[int, ...] = RED, mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, colour)


def half_and_half() -> Image.Image:
    """Red on the left, blue on the right."""
    image = picture()
    image.paste(BLUE, (20, 0, 40, 30))
    return image


def colour_at(image: Image.Image, place: tuple[int, int] = (5, 5)) -> tuple[int, ...]:
    found = image.getpixel(place)
    assert isinstance(found, tuple)
    return found


def looks(image: Image.Image, colour: tuple[int, int, int], place: tuple[int, int] = (5, 5)) -> None:
    assert image.mode == "RGB"
    assert max(abs(a - b) for a, b in zip(colour_at(image, place), colour, strict=True)) <= 3, colour_at(image, place)


def refused(path: Path, *parts: str) -> None:
    """Both ways: alone, and as one of a folder."""
    for read in (lambda: read_photo(path), lambda: find_photos(path.parent)):
        with pytest.raises(BadInput) as error:
            read()
        for part in (path.name, *parts):
            assert part in error.value.message, error.value.message
        assert error.value.hint


def png(width: int, height: int, bits: int, kind: int, rows: bytes) -> bytes:
    """A PNG by hand: what Pillow does not write."""
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


# --- what looks like something is taken as it looks ---


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "avif", "bmp", "tif", "gif"])
def test_every_common_format_is_read(tmp_path: Path, suffix: str) -> None:
    picture(colour=BLUE).save(tmp_path / f"a.{suffix}")
    looks(read_photo(tmp_path / f"a.{suffix}"), BLUE)
    assert find_photos(tmp_path).sizes == [Size(width=40, height=30)]


def test_inks_become_colours(tmp_path: Path) -> None:
    picture(colour=(0, 255, 255, 0), mode="CMYK").save(tmp_path / "adobe.jpg", quality=95)
    assert b"Adobe" in (tmp_path / "adobe.jpg").read_bytes(), "stored inverted, as Adobe's programs do"
    looks(read_photo(tmp_path / "adobe.jpg"), RED)
    picture(colour=(0, 255, 255, 0), mode="CMYK").save(tmp_path / "inks.tif")
    looks(read_photo(tmp_path / "inks.tif"), RED)


def profile_with_red_and_blue_swapped() -> bytes:
    plain = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    swapped = plain.replace(b"rXYZ", b"....").replace(b"bXYZ", b"rXYZ").replace(b"....", b"bXYZ")
    return swapped.replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be")).replace(b"sRGB", b"swap")


def test_colours_are_those_of_the_profile_in_the_file(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png", icc_profile=profile_with_red_and_blue_swapped())
    looks(read_photo(tmp_path / "a.png"), BLUE)


@pytest.mark.parametrize("profile", [b"no profile at all", profile_with_red_and_blue_swapped()])
def test_a_profile_that_does_not_fit_is_as_none(tmp_path: Path, profile: bytes) -> None:
    picture(colour=(0, 255, 255, 0), mode="CMYK").save(tmp_path / "a.jpg", quality=95, icc_profile=profile)
    looks(read_photo(tmp_path / "a.jpg"), RED)


def test_16_bits_of_grey_become_8(tmp_path: Path) -> None:
    Image.fromarray(np.full((30, 40), 0x80FF, dtype=np.uint16)).save(tmp_path / "a.png")
    assert colour_at(read_photo(tmp_path / "a.png")) == (128, 128, 128)
    Image.fromarray(np.full((30, 40), 0x80FF, dtype=np.uint16)).save(tmp_path / "a.tif")
    assert colour_at(read_photo(tmp_path / "a.tif")) == (128, 128, 128)
    (tmp_path / "big-endian.tif").write_bytes(
        b"MM\0*\0\0\0\x0a\x80\xff"
        + struct.pack(">H", 9)
        + b"".join(
            struct.pack(">HHIHH", tag, 3, 1, value, 0)
            for tag, value in [
                (256, 1),
                (257, 1),
                (258, 16),
                (259, 1),
                (262, 1),
                (273, 8),
                (277, 1),
                (278, 1),
                (279, 2),
            ]
        )
        + bytes(4)
    )
    assert colour_at(read_photo(tmp_path / "big-endian.tif"), (0, 0)) == (128, 128, 128)


def test_16_bits_of_each_colour_become_8(tmp_path: Path) -> None:
    row = b"\0" + struct.pack(">HHH", 0x80FF, 0x4000, 0xFFFF) * 40
    (tmp_path / "a.png").write_bytes(png(40, 30, 16, 2, row * 30))
    assert colour_at(read_photo(tmp_path / "a.png")) == (128, 64, 255)


def with_transparency(kind: str) -> Image.Image:
    clear = picture(colour=(255, 0, 0, 0), mode="RGBA")
    clear.paste((255, 0, 0, 255), (20, 0, 40, 30))
    if kind == "palette":
        indexed = Image.new("P", (40, 30), 0)
        indexed.putpalette([*BLUE, *RED])
        indexed.paste(1, (20, 0, 40, 30))
        indexed.info["transparency"] = 0
        return indexed
    return clear.convert(kind)


@pytest.mark.parametrize(("kind", "opaque"), [("RGBA", RED), ("LA", (76, 76, 76)), ("palette", RED)])
def test_what_is_transparent_is_white(tmp_path: Path, kind: str, opaque: tuple[int, int, int]) -> None:
    with_transparency(kind).save(tmp_path / "a.png")
    seen = read_photo(tmp_path / "a.png")
    looks(seen, WHITE)
    looks(seen, opaque, (30, 5))


def test_half_transparent_red_is_pink(tmp_path: Path) -> None:
    picture(colour=(255, 0, 0, 128), mode="RGBA").save(tmp_path / "a.webp", lossless=True)
    looks(read_photo(tmp_path / "a.webp"), (255, 127, 127))


def test_a_palette_and_black_and_white_are_colours(tmp_path: Path) -> None:
    half_and_half().convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "a.gif")
    looks(read_photo(tmp_path / "a.gif"), BLUE, (30, 5))
    Image.new("1", (40, 30), 1).save(tmp_path / "b.png")
    looks(read_photo(tmp_path / "b.png"), WHITE)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif"])
def test_of_an_animation_the_first_frame_is_taken_and_told(tmp_path: Path, suffix: str) -> None:
    frames = [picture(colour=BLUE), picture(colour=GREEN)]
    picture().save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames)
    looks(read_photo(tmp_path / f"a.{suffix}"), RED)
    assert find_photos(tmp_path).warnings == [f"a.{suffix} has 3 frames: only the first is used"]


def test_the_second_picture_that_phones_hide_in_a_jpeg_is_none_of_ours(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[picture(colour=BLUE)])
    looks(read_photo(tmp_path / "a.jpg"), RED)
    assert find_photos(tmp_path).warnings == []


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photo_is_upright(tmp_path: Path, orientation: int, suffix: str) -> None:
    corner = Image.new("RGB", (48, 32), WHITE)
    corner.paste(RED, (0, 0, 16, 16))
    stored = {1: [], 2: [0], 3: [3], 4: [1], 5: [5], 6: [2], 7: [6], 8: [4]}[
        orientation
    ]  # each the undoing of its turn
    for turn in stored:
        corner = corner.transpose(Image.Transpose(turn))
    exif = Image.Exif()
    exif[0x0112] = orientation
    corner.save(tmp_path / f"a.{suffix}", exif=exif, quality=95)
    seen = read_photo(tmp_path / f"a.{suffix}")
    assert seen.size == (48, 32)
    looks(seen, RED)
    looks(seen, WHITE, (40, 5))
    looks(seen, WHITE, (5, 25))


def test_a_damaged_note_on_a_photo_does_not_make_it_unreadable(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12\xff\xff")
    looks(read_photo(tmp_path / "a.jpg"), RED)


def test_the_bytes_say_what_a_file_is_not_its_name(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png", format="JPEG")
    picture(colour=BLUE).save(tmp_path / "b.jpg", format="WEBP")
    picture(colour=GREEN).save(tmp_path / "no suffix", format="PNG")
    looks(read_photo(tmp_path / "a.png"), RED)
    looks(read_photo(tmp_path / "b.jpg"), BLUE)
    assert [path.name for path in find_photos(tmp_path).photos] == ["a.png", "b.jpg", "no suffix"]


def test_names_with_spaces_and_in_any_script_are_names(tmp_path: Path) -> None:
    names = ["my dog (1).png", "собака.png", "犬 🐕.png"]
    for name in names:
        picture().save(tmp_path / name)
    assert sorted(path.name for path in find_photos(tmp_path).photos) == sorted(names)


# --- sizes ---


def test_a_jpeg_too_large_for_memory_is_read_smaller(tmp_path: Path) -> None:
    Image.new("L", (20_000, 20_000), 200).save(tmp_path / "a.jpg", quality=10)
    seen = read_photo(tmp_path / "a.jpg")
    assert seen.size == (5000, 5000)
    looks(seen, (200, 200, 200))


def test_a_progressive_jpeg_too_large_for_memory_is_refused(tmp_path: Path) -> None:
    Image.new("L", (10_000, 10_000), 200).save(tmp_path / "a.jpg", quality=10, progressive=True)
    refused(tmp_path / "a.jpg", "too many pixels", "10000 × 10000")


@pytest.mark.parametrize("side", [10_000, 12_000, 20_000, 2**31 - 1])
def test_a_small_file_of_huge_pixels_is_refused_unread(tmp_path: Path, side: int) -> None:
    (tmp_path / "bomb.png").write_bytes(png(side, side, 8, 2, bytes(100)))
    refused(tmp_path / "bomb.png")


# --- what is no photo ---


def test_other_files_among_the_photos_are_skipped_with_a_warning(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    others = ["Thumbs.db", ".DS_Store", "._a.png", "clip.mp4", "notes.json", "desktop.ini", "README"]
    for name in others:
        (tmp_path / name).write_bytes(b"\0\1 something else")
    (tmp_path / "old").mkdir()
    found = find_photos(tmp_path)
    assert [path.name for path in found.photos] == ["a.png"]
    assert {each.name for each in found.skipped} == {*others, "old"}


def test_captions_among_the_photos_are_no_news(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    for name in ("a.txt", "a.caption", "metadata.jsonl"):
        (tmp_path / name).write_text("")
    assert find_photos(tmp_path).warnings == []


def test_folders_named_as_kohya_does_are_looked_into(tmp_path: Path) -> None:
    for name in ("b.png", "10_sks dog/a.png", "2_/c.png", "other/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture().save(tmp_path / name)
    found = find_photos(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found.photos] == ["10_sks dog/a.png", "2_/c.png", "b.png"]
    assert found.warnings[0].startswith("other is skipped: ")


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (b"", "it is empty"),
        (b"\n<!DOCTYPE html><html>404</html>", "it is a web page"),
        (b"\0\1\2\3" * 100, "its format is not known"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF", "its format is not known"),
    ],
)
def test_what_is_named_a_photo_and_is_none_is_refused(tmp_path: Path, content: bytes, because: str) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    refused(tmp_path / "a.jpg", "is not an image", because)


def test_a_format_that_is_not_read_is_refused_not_lost(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    (tmp_path / "b.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(BadInput, match=r"b\.HEIC is in a format that is not supported"):
        find_photos(tmp_path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "gif", "tif", "bmp"])
def test_a_photo_that_is_cut_off_is_refused(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / f"a.{suffix}")
    content = (tmp_path / f"a.{suffix}").read_bytes()
    (tmp_path / f"a.{suffix}").write_bytes(content[: len(content) // 2])
    refused(tmp_path / f"a.{suffix}", "cannot be read to its end")


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder that everybody may enter, and to be somebody who may not read everything."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            if root:
                os.seteuid(0)


def as_owner(make: Callable[[], object]) -> None:
    now = os.geteuid()
    if os.getuid() == 0:
        os.seteuid(0)
    make()
    if os.getuid() == 0:
        os.seteuid(now)


def test_a_photo_that_may_not_be_read_is_named(nobody: Path) -> None:
    as_owner(lambda: picture().save(nobody / "a.png"))
    as_owner(lambda: (nobody / "a.png").chmod(0))
    refused(nobody / "a.png", "may not be read")


def test_a_folder_that_may_not_be_read_is_named(nobody: Path) -> None:
    as_owner(lambda: (nobody / "10_dog").mkdir(mode=0))
    with pytest.raises(BadInput, match="10_dog may not be read"):
        find_photos(nobody)


def test_links_are_followed_unless_they_lead_nowhere(tmp_path: Path) -> None:
    picture().save(tmp_path / "elsewhere.png")
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.png").symlink_to(tmp_path / "elsewhere.png")
    (folder / "5_self").symlink_to(folder)
    assert [path.relative_to(folder).as_posix() for path in find_photos(folder).photos] == ["5_self/a.png", "a.png"]
    (folder / "loop.png").symlink_to(folder / "loop.png")
    with pytest.raises(BadInput, match=r"loop\.png is a broken link"):
        find_photos(folder)


@pytest.mark.parametrize("name", ["two\nlines.png", "12:30.png", 'a".png'])
def test_a_name_that_not_every_system_can_have_is_told_before_anything_is_sent(tmp_path: Path, name: str) -> None:
    picture().save(tmp_path / name)
    with pytest.raises(BadInput) as error:
        find_photos(tmp_path)
    assert repr(name) in error.value.message
    assert error.value.hint == "rename it"


def test_a_folder_without_a_usable_image_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"film")
    with pytest.raises(BadInput, match=r"holds no photos; clip\.mp4 is skipped: not an image") as error:
        find_photos(tmp_path)
    assert ".jpg" in error.value.hint


@given(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"]), st.data())
@settings(max_examples=300)
def test_whatever_the_bytes_are_there_is_a_picture_or_one_sentence(kind: str, data: st.DataObject) -> None:
    written = BytesIO()
    half_and_half().save(written, format=kind)
    content = bytearray(written.getvalue())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
        Path(file.name).write_bytes(content)
        for read in (read_photo, read_alpha):
            try:
                read(Path(file.name))
            except BadInput as refusal:
                assert Path(file.name).name in refusal.message


# --- several at once ---

READERS = 4


def test_several_photos_are_read_at_once_and_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits in Pillow's decoder until the others are there: read one after another, the first would wait in vain."""
    for number in range(2 * READERS):
        picture((40 + number, 30)).save(tmp_path / f"{number}.png")
    together, prepare = Barrier(READERS), PngImageFile.load_prepare

    def wait(image: PngImageFile) -> None:
        together.wait(20)
        prepare(image)

    monkeypatch.setattr(PngImageFile, "load_prepare", wait)
    found = find_photos(tmp_path, threads=READERS)
    assert [size.width for size in found.sizes] == [40 + number for number in range(2 * READERS)]


def test_of_several_photos_that_cannot_be_read_the_first_by_name_is_named(tmp_path: Path) -> None:
    for number in range(4 * READERS):
        picture().save(tmp_path / f"{number:02d}.png")
    for number in (3, 5, 9):
        (tmp_path / f"{number:02d}.png").write_bytes(b"no photo")
    for threads in (1, READERS):
        with pytest.raises(BadInput, match=r"^03\.png is not an image"):
            find_photos(tmp_path, threads=threads)


def test_what_is_told_of_photos_that_are_read_at_once_comes_in_their_order(tmp_path: Path) -> None:
    for number in range(2 * READERS):
        picture().save(tmp_path / f"{number}.gif", save_all=True, append_images=[picture(colour=BLUE)])
    told = [f"{number}.gif has 2 frames: only the first is used" for number in range(2 * READERS)]
    assert find_photos(tmp_path, threads=READERS).warnings == told


def test_one_at_a_time_changes_the_warnings_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow's of large pictures are errors while it looks at a header: two that change this at once leave it so for everybody."""
    for name in "ab":
        picture().save(tmp_path / f"{name}.png")
    both, look, met = Barrier(2), Image.open, list[int]()

    def wait(*given: Any, **named: Any) -> Image.Image:
        with suppress(BrokenBarrierError):
            met.append(both.wait(1))
        return look(*given, **named)

    monkeypatch.setattr(Image, "open", wait)
    find_photos(tmp_path, threads=2)
    assert met == []
