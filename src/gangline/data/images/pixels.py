"""Read images as users have them, from a file or bytes: some rotated, some transparent, some not images at all.

The format follows from a file's bytes, not from its name. No file makes more than `PIXELS_MAX` pixels in memory.
"""

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import SEEK_CUR, BytesIO
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from PIL import Image, ImageCms, UnidentifiedImageError
from PIL.ExifTags import Base as Exif
from PIL.Image import Transpose
from PIL.JpegImagePlugin import JpegImageFile

from gangline.core.errors import BadInput

FORMATS = ("PNG", "WEBP", "AVIF", "BMP", "TIFF", "GIF")  # and JPEG; for some other formats Pillow calls programs
PIXELS_MAX = 89_000_000
ONE_AT_A_TIME = Lock()
"""Warning filters belong to the whole process: two threads that change them at once leave them changed."""
JPEG = b"\xff\xd8\xff"
ON_ITS_SIDE = (5, 6, 7, 8)
UPRIGHT = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}


class Unreadable(Exception):
    """Raised for bytes that are no usable image. `kind` is one of a few phrases, for counting; `because` follows the file's name in a
    sentence."""

    def __init__(self, kind: str, because: str, hint: str) -> None:
        super().__init__(because)
        self.kind = kind
        self.because = because
        self.hint = hint


def read_photo(path: Path) -> Image.Image:
    """Return the image as a person sees it: its first frame, upright, in sRGB, transparency over white. Raise `BadInput` if it is
    unreadable."""
    with opened(path) as image:
        return as_seen(image)


def read_alpha(path: Path) -> Image.Image | None:
    """Return the opacity of each pixel of the upright photo, in mode L, or None if it has no transparency."""
    with opened(path) as image:
        plain = _eight_bits(image)
        return _upright(image, _alpha(plain)) if plain.has_transparency_data else None


def read_both(path: Path) -> tuple[Image.Image, Image.Image | None]:
    """Return the results of `read_photo` and `read_alpha` from one decode."""
    with opened(path) as image:
        plain = _eight_bits(image)
        return as_seen(image), _upright(image, _alpha(plain)) if plain.has_transparency_data else None


def upright_size(path: Path) -> tuple[int, int]:
    """Return width and height of the result of `read_photo`. No pixel is decoded, except of a PNG with metadata at its end.

    Raise `BadInput`, though not for every file whose pixels are damaged.
    """
    with _by_name(path), path.open("rb") as file, _unreadable(file), recognised(file) as image:
        turned = image.format != "TIFF" and _turn_in_header(image, file) in ON_ITS_SIDE  # a TIFF's size is upright
        return (image.height, image.width) if turned else image.size


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open and load the image in a file. Raise `BadInput` that names the file."""
    with _by_name(path), path.open("rb") as file, loaded(file) as image:
        yield image


@contextmanager
def _by_name(path: Path) -> Iterator[None]:
    try:
        yield
    except Unreadable as error:
        raise BadInput(f"{printable_path(path)} {error.because}", hint=error.hint) from None
    except PermissionError:
        raise BadInput(
            f"{printable_path(path)} may not be read", hint="change its permissions, or take it out"
        ) from None


@contextmanager
def loaded(file: BinaryIO, *, at_least: int | None = None) -> Iterator[Image.Image]:
    """Load the image in `file`. Any error of a decoder becomes `Unreadable`: there is no list of what damaged bytes make them raise.

    A JPEG may be decoded at a half, a quarter or an eighth of its size, as long as no side gets below `at_least` pixels.
    """
    with _unreadable(file):
        image = recognised(file)
        if at_least and image.format == "JPEG":
            image.draft(None, _covering(image, at_least))
        image.load()
    with image:
        yield image


@contextmanager
def _unreadable(file: BinaryIO) -> Iterator[None]:
    try:
        yield
    except UnidentifiedImageError:
        raise Unreadable("not an image", f"is not an image: {_kind(file)}", "take it out of the folder") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("") from None
    except Unreadable:
        raise
    except Exception as error:
        because = f"cannot be read to its end: {error or type(error).__name__}"
        raise Unreadable("damaged", because, "the file is damaged: replace it or take it out") from None


def recognised(file: BinaryIO) -> Image.Image:
    """Open an image without decoding it. A JPEG too large for memory is opened at a half, a quarter or an eighth of its size.

    Other formats cannot be reduced while decoding: raise `Unreadable` if they are too large, or Pillow's errors.
    """
    start = file.read(len(JPEG))
    file.seek(0)
    if start == JPEG:
        image = JpegImageFile(file)
        pixels = image.width * image.height
        if (
            pixels > PIXELS_MAX and "progressive" in image.info
        ):  # the decoder of progressive files holds all coefficients at once
            raise _too_large(f" (progressive, {image.width} × {image.height})")
        part = next(part for part in (1, 2, 4, 8) if pixels <= PIXELS_MAX * part**2)
        if part > 1:
            image.draft(image.mode, (image.width // part, image.height // part))
        return image
    with ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        image = Image.open(file, formats=FORMATS)
    if image.width * image.height > PIXELS_MAX:
        raise _too_large(f" ({image.width} × {image.height})")
    return image


def as_seen(image: Image.Image) -> Image.Image:
    """Return the loaded image as a person sees it: upright, in sRGB, transparency over white."""
    return _upright(image, _over_white(_eight_bits(image)))


def is_upright_rgb(image: Image.Image) -> bool:
    """Return whether the image's pixels already are as a person sees them."""
    plain = image.mode == "RGB" and not image.has_transparency_data and not image.info.get("icc_profile")
    return plain and _orientation(image) not in UPRIGHT


def printable_path(path: Path) -> str:
    """Return the file's name in a printable form."""
    return path.name if path.name.isprintable() else repr(path.name)


def _covering(image: Image.Image, side: int) -> tuple[int, int]:
    part = min(image.width, image.height) / side
    return (round(image.width / part), round(image.height / part)) if part > 1 else image.size


def _too_large(size: str) -> Unreadable:
    because = f"has too many pixels to be read safely{size}"
    return Unreadable("too many pixels", because, f"reduce it to at most {PIXELS_MAX // 1_000_000} megapixels")


def _kind(file: BinaryIO) -> str:
    file.seek(0)
    start = file.read(512).lstrip().lower()
    if not start:
        return "it is empty"
    return "it is a web page" if start.startswith((b"<!doctype", b"<html")) else "its format is not known"


def _eight_bits(image: Image.Image) -> Image.Image:
    """Convert 16-bit grey to 8 bits; Pillow already reads 16-bit colours as 8 bits."""
    if image.mode == "I" or image.mode.startswith("I;16"):
        return image.convert("I").point(lambda value: value / 256).convert("L")
    return image


def _over_white(image: Image.Image) -> Image.Image:
    colours = _in_srgb(image)
    if not image.has_transparency_data:
        return colours
    white = Image.new("RGB", image.size, "white")
    white.paste(colours, mask=_alpha(image))
    return white


def _alpha(image: Image.Image) -> Image.Image:
    return (image if "A" in image.getbands() else image.convert("RGBA")).getchannel("A")


def _in_srgb(image: Image.Image) -> Image.Image:
    """Convert by the file's colour profile, if it has a valid one; CMYK without a profile is converted as screens show it."""
    profile = image.info.get("icc_profile")
    plain = image if image.mode in ("RGB", "L", "CMYK") else image.convert("RGB")
    if not profile:
        return plain.convert("RGB")
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        if "srgb" in ImageCms.getProfileDescription(source).lower():
            return plain.convert("RGB")
        converted = ImageCms.profileToProfile(plain, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return plain.convert("RGB")
    assert converted is not None
    return converted


def _upright(image: Image.Image, seen: Image.Image) -> Image.Image:
    turn = UPRIGHT.get(_orientation(image))
    return seen.transpose(turn) if turn is not None else seen


def _turn_in_header(image: Image.Image, file: BinaryIO) -> int:
    """Return the orientation without decoding. Only if a PNG has metadata after its pixels does Pillow have to decode them first."""
    if image.format != "PNG" or _speaks_at_its_end(file):
        return _orientation(image)
    try:
        return _orientation_in(Image.Image.getexif(image))
    except Exception:  # damaged metadata, as in `_orientation`
        return 1


def _speaks_at_its_end(file: BinaryIO) -> bool:
    """Return whether chunks of a PNG that may hold its orientation follow its pixels."""
    place, pixels = file.tell(), False
    file.seek(8)
    try:
        while len(head := file.read(8)) == 8:
            length, kind = struct.unpack(">I4s", head)
            if pixels and kind in (b"eXIf", b"tEXt", b"zTXt", b"iTXt"):
                return True
            pixels = pixels or kind == b"IDAT"
            file.seek(length + 4, SEEK_CUR)
        return False
    finally:
        file.seek(place)


def _orientation(image: Image.Image) -> int:
    try:
        return _orientation_in(image.getexif())
    except Exception:  # damaged metadata does not make the pixels unusable
        return 1


def _orientation_in(exif: Image.Exif) -> int:
    return int(exif.get(Exif.Orientation, 1))
