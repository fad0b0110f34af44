"""Photos are decoded once, ahead, by processes: in order, bounded, named where they are damaged, and with no process left behind."""

import io
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gangline.core.errors import BadInput
from gangline.data.images import ahead
from gangline.data.images.ahead import decoded, processes_for
from gangline.data.images.buckets import Size, cut_view, views
from gangline.data.images.decoder import as_asked, as_json
from gangline.data.images.decoding import Asked, DecodedView
from gangline.data.images.pixels import read_alpha, read_photo, upright_size
from gangline.posix import descendants
from tests.processes import words_of

TARGET = Size(width=64, height=64)
FORMATS = ("jpg", "png", "webp", "avif", "tif", "bmp", "gif")


def photo(path: Path, number: int, mode: str = "RGB") -> Path:
    rng = np.random.default_rng(number)
    size = (70, 90 + number, len(mode))
    Image.fromarray(rng.integers(0, 255, size, dtype=np.uint8), mode).save(path)
    return path


def asked_of(path: Path, mask: Path | None = None) -> Asked:
    width, height = upright_size(path)
    return Asked(photo=path, mask=mask, views=tuple(views(Size(width=width, height=height), TARGET, flip=True)))


@pytest.fixture
def asked(tmp_path: Path) -> list[Asked]:
    """With their transparency as a mask, with a mask of their own, with none."""
    Image.linear_gradient("L").resize((9, 7)).save(tmp_path / "mask.png")
    found = []
    for number in range(9):
        path = photo(tmp_path / f"{number}.png", number if number % 3 != 1 else 0, "RGBA" if number % 2 else "RGB")
        found.append(asked_of(path, (None, tmp_path / "mask.png", path)[number % 3]))
    return found


def as_before(asked: Asked) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Each view by itself, from a file that is read for it."""
    found = []
    for view in asked.views:
        pixels, mask = np.asarray(cut_view(read_photo(asked.photo), view)), None
        if asked.mask:
            whole = read_alpha(asked.photo) if asked.mask == asked.photo else read_photo(asked.mask).convert("L")
            mask = np.asarray(cut_view(whole or Image.new("L", (9, 7), 255), view, Image.Resampling.BILINEAR))
        found.append((pixels, mask))
    return found


def same(seen: list[DecodedView], before: list[tuple[np.ndarray, np.ndarray | None]]) -> bool:
    return len(seen) == len(before) and all(
        np.array_equal(one.pixels, pixels)
        and (one.mask is None if mask is None else one.mask is not None and np.array_equal(one.mask, mask))
        for one, (pixels, mask) in zip(seen, before, strict=True)
    )


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_each_view_is_what_reading_its_photo_for_it_alone_gives(asked: list[Asked], processes: int) -> None:
    found = list(decoded(asked, processes))
    assert len(found) == len(asked)
    assert all(same(seen, as_before(each)) for seen, each in zip(found, asked, strict=True))
    assert no_decoder_is_left()


def test_what_is_asked_goes_through_a_line_of_json(asked: list[Asked]) -> None:
    assert [as_asked(as_json(each)) for each in asked] == asked


def no_decoder_is_left() -> bool:
    return not decoders()


def decoders() -> list[int]:
    """Processes that decode for this one, or for one that it started."""
    return [pid for pid in descendants(os.getpid()) if words_of(pid).endswith("images.decoder\0")]


@pytest.mark.parametrize("processes", [0, 2])
def test_a_damaged_photo_is_named_when_its_turn_has_come(asked: list[Asked], processes: int) -> None:
    whole = asked[4].photo.read_bytes()
    asked[4].photo.write_bytes(whole[: len(whole) // 2])
    with closing(decoded(asked, processes)) as coming:
        for each in asked[:4]:
            assert same(next(coming), as_before(each))
        with pytest.raises(BadInput, match=r"4\.png cannot be read to its end") as refused:
            next(coming)
    assert refused.value.hint == "the file is damaged: replace it or take it out"
    assert no_decoder_is_left()


def test_who_stops_in_the_midst_leaves_no_process(asked: list[Asked]) -> None:
    with closing(decoded(asked * 20, 2)) as coming:
        next(coming)
        assert len(decoders()) == 2
    assert no_decoder_is_left()


def one_at_a_time(asked: list[Asked], monkeypatch: pytest.MonkeyPatch) -> Generator[list[DecodedView]]:
    monkeypatch.setattr(ahead, "BYTES_AHEAD", 0)
    return decoded(asked, 2)


def test_no_more_is_decoded_ahead_than_the_bytes_allow(
    asked: list[Asked], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A photo is there only when the one before it was taken."""
    kept = [each.photo.rename(tmp_path / f"kept-{number}") for number, each in enumerate(asked)]
    with closing(one_at_a_time(asked, monkeypatch)) as coming:
        for each, file in zip(asked, kept, strict=True):
            file.rename(each.photo)
            assert same(next(coming), as_before(each))


def test_a_process_that_is_ended_from_outside_is_replaced(asked: list[Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(one_at_a_time(asked, monkeypatch)) as coming:
        next(coming)
        (first,) = decoders()
        os.kill(first, signal.SIGKILL)
        for each in asked[1:]:
            assert same(next(coming), as_before(each))
        assert first not in decoders()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_to_the_trainer_end_no_decoder(
    asked: list[Asked], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    with closing(one_at_a_time(asked, monkeypatch)) as coming:
        next(coming)
        before = decoders()
        for pid in before:
            os.kill(pid, number)
        assert len(list(coming)) == len(asked) - 1
    assert len(before) == 1


CRASHES = "import os, sys; sys.stdin.readline(); os.kill(os.getpid(), {})"


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (signal.SIGSEGV, BadInput, r"0\.png crashes its decoder \(SIGSEGV\)"),
        (signal.SIGKILL, MemoryError, r"the process that decodes 0\.png was killed, perhaps because memory ran out"),
    ],
)
def test_a_photo_that_ends_its_decoder_twice_is_named(
    asked: list[Asked], monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], says: str
) -> None:
    monkeypatch.setattr(ahead, "DECODER", (sys.executable, "-c", CRASHES.format(int(number))))
    with pytest.raises(kind, match=says):
        list(decoded(asked[:1], 1))


PARENT = """
import sys
from pathlib import Path
from gangline.data.images.ahead import decoded
from gangline.data.images.decoder import as_asked
import json
coming = decoded([as_asked(json.loads(sys.argv[1]))] * 1000, 2)
next(coming)
print("decoding", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_decoders_end_with_their_trainer_however_that_ends(asked: list[Asked], number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, json.dumps(as_json(asked[0]))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout and parent.stdout.readline() == b"decoding\n"
        ends = [os.pidfd_open(pid) for pid in decoders()]
        assert len(ends) == 2
        parent.send_signal(number)
        parent.wait()
    for end in ends:
        assert select.select([end], [], [], 30)[0], "a decoder outlives its trainer"
        os.close(end)


def test_few_photos_start_no_process_and_many_no_more_than_there_are_cores() -> None:
    assert [processes_for(photos, 4) for photos in (0, 1, 20, 23, 24, 40, 10_000)] == [0, 0, 0, 0, 2, 3, 4]
    assert processes_for(10_000, 192) == 16


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_of_a_photo_is_known_from_its_header(tmp_path: Path, suffix: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    path = tmp_path / f"a.{suffix}"
    said: dict[str, Any] = {} if suffix in ("bmp", "gif") else {"exif": exif}
    Image.new("RGB", (48, 32), "red").save(path, **said)
    assert upright_size(path) == read_photo(path).size


@pytest.mark.parametrize("suffix", [suffix for suffix in FORMATS if suffix not in ("tif", "avif", "webp")])
def test_no_pixel_is_decoded_for_it(tmp_path: Path, suffix: str) -> None:
    path = photo(tmp_path / f"a.{suffix}", 5)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="cannot be read to its end"):
        read_photo(path)
    assert upright_size(path) == (95, 70)


def test_what_a_png_says_of_itself_at_its_end_is_found(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    file = io.BytesIO()
    Image.new("RGB", (48, 32), "red").save(file, "PNG", exif=exif)
    content = file.getvalue()
    start = content.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(content[start : start + 4])
    last = content.index(b"IEND") - 4
    path = tmp_path / "a.png"
    path.write_bytes(content[:start] + content[end:last] + content[start:end] + content[last:])
    assert upright_size(path) == read_photo(path).size == (32, 48)


def test_a_jpeg_too_large_for_memory_has_the_size_at_which_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.new("L", (9600, 9600)).save(path)
    assert upright_size(path) == read_photo(path).size == (4800, 4800)


@pytest.mark.parametrize("content", [b"", b"<html>", b"text", b"\xff\xd8\xff"])
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(BadInput, match=r"a\.jpg"):
        upright_size(tmp_path / "a.jpg")
