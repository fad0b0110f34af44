"""Photos as people have them: a folder of files, some turned, some transparent, some no image at all.

What a file is, its bytes say, not its name. No file makes more than `PIXELS_MAX` pixels in memory.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageCms, UnidentifiedImageError
from PIL.ExifTags import Base as Exif
from PIL.Image import Transpose
from PIL.JpegImagePlugin import JpegImageFile

from gangline.core.errors import BadInput
from gangline.core.files import is_safe_path
from gangline.data.buckets import Size
from gangline.data.captions import COUNTED, is_caption

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".apng", ".webp", ".avif", ".bmp", ".tif", ".tiff", ".gif")
UNREADABLE = (".heic", ".heif", ".jxl", ".psd", ".svg", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2")
FORMATS = ("PNG", "WEBP", "AVIF", "BMP", "TIFF", "GIF")  # and JPEG; Pillow knows others that call programs
PIXELS_MAX = 89_000_000
JPEG = b"\xff\xd8\xff"
UPRIGHT = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}


@dataclass(frozen=True, slots=True)
class Found:
    """Photos in the order of their names, the size of each as a person sees it, and sentences on what is not used."""

    photos: list[Path]
    sizes: list[Size]
    passed_over: list[str]


def find_photos(folder: Path) -> Found:
    """Every image in `folder` and in its subfolders that are named as kohya does, `10_sks dog`, each read to its last byte.

    Captions are left to `captions`. Raises `BadInput` that names the folder, or the image that cannot be read.
    """
    if not folder.exists():
        raise BadInput(f"there is no folder {folder}", hint="give the path of a folder of photos")
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder", hint=f"did you mean {folder.parent}?")
    photos: list[Path] = []
    passed_over: list[str] = []
    for path in _candidates(folder):
        because = _why_not(path)
        if because:
            passed_over.append(f"{shown(path)} is passed over: {because}")
        else:
            photos.append(path)
    if not photos:
        raise BadInput(
            f"{folder} holds no photos" + "".join(f"; {sentence}" for sentence in passed_over[:3]),
            hint=f"put images there ({', '.join(SUFFIXES)})",
        )
    sizes = [_checked(path, folder, passed_over) for path in photos]
    return Found(photos, sizes, passed_over)


def shown(path: Path) -> str:
    """A name that is fit to be printed, whatever it is."""
    return path.name if path.name.isprintable() else repr(path.name)


def read_photo(path: Path) -> Image.Image:
    """The picture as a person sees it: its first frame, upright, in sRGB, transparency over white. Raises `BadInput`."""
    with opened(path) as image:
        return _as_seen(image)


def read_alpha(path: Path) -> Image.Image | None:
    """How opaque each pixel of the upright photo is, in mode L; None where all of it is."""
    with opened(path) as image:
        plain = _eight_bits(image)
        return _upright(image, _alpha(plain)) if plain.has_transparency_data else None


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """The image in a file, loaded. What a decoder raises on damaged bytes nobody has listed: all of it is `BadInput`."""
    try:
        with _open(path) as image:
            image.load()
            yield image
    except BadInput:
        raise
    except UnidentifiedImageError:
        raise BadInput(f"{shown(path)} is not an image: {_kind(path)}", hint="take it out of the folder") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large(path, "") from None
    except PermissionError:
        raise BadInput(f"{shown(path)} may not be read", hint="change its permissions, or take it out") from None
    except Exception as error:
        raise BadInput(
            f"{shown(path)} cannot be read to its end: {error or type(error).__name__}",
            hint="the file is damaged: replace it or take it out",
        ) from None


def _candidates(folder: Path) -> list[Path]:
    """What lies in the folder and in subfolders with a number before their names, but for captions."""
    try:
        entries = sorted(folder.iterdir())
        counted = [path for path in entries if path.is_dir() and COUNTED.fullmatch(path.name)]
        below = [inner for path in counted for inner in path.iterdir()]
    except OSError as error:
        raise BadInput(f"{error.filename} may not be read: {error.strerror}", hint="change its permissions") from None
    files = [path for path in entries if path not in counted] + below
    return sorted(path for path in files if not is_caption(path))


def _why_not(path: Path) -> str:
    """Why what lies in a folder of photos is none, or nothing; for an image that cannot be used, `BadInput`."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return "photos are taken from the folder itself and from folders named like `10_sks dog`"
    if path.name.startswith("."):
        return "a hidden file"
    if suffix in UNREADABLE:
        raise BadInput(f"{shown(path)} is in a format that is not read here", hint="save it as JPEG or PNG")
    if suffix in SUFFIXES and not path.is_file():
        raise BadInput(f"{shown(path)} is no file: a link that leads nowhere", hint="take it out of the folder")
    if suffix in SUFFIXES or (not suffix and path.is_file() and _is_image(path)):
        return ""
    return "not an image"


def _is_image(path: Path) -> bool:
    try:
        with _open(path):
            return True
    except (OSError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return False


def _checked(path: Path, folder: Path, told: list[str]) -> Size:
    if not is_safe_path(path.relative_to(folder).as_posix()):
        raise BadInput(f"{path.name!r} is a name that not every system can have", hint="rename it")
    with opened(path) as image:
        seen = _as_seen(image)
        frames = getattr(image, "n_frames", 1)
    if frames > 1:
        told.append(f"{shown(path)} has {frames} frames: the first is taken")
    return Size(width=seen.width, height=seen.height)


def _open(path: Path) -> Image.Image:
    """Of a JPEG too large for memory a half, a quarter or an eighth, which its coding allows; others of that size are refused."""
    with path.open("rb") as file:
        start = file.read(len(JPEG))
    if start == JPEG:
        image = JpegImageFile(path)
        pixels = image.width * image.height
        if pixels > PIXELS_MAX and "progressive" in image.info:  # its decoder holds all of it at once
            raise _too_large(path, f"progressive, {image.width} × {image.height}")
        part = next(part for part in (1, 2, 4, 8) if pixels <= PIXELS_MAX * part**2)
        if part > 1:
            image.draft(image.mode, (image.width // part, image.height // part))
        return image
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        image = Image.open(path, formats=FORMATS)
    if image.width * image.height > PIXELS_MAX:
        raise _too_large(path, f"{image.width} × {image.height}")
    return image


def _too_large(path: Path, size: str) -> BadInput:
    return BadInput(
        f"{shown(path)} has too many pixels to be read safely" + (f" ({size})" if size else ""),
        hint=f"make it smaller first: {PIXELS_MAX // 1_000_000} megapixels at the most",
    )


def _kind(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(512).lstrip().lower()
    if not start:
        return "it is empty"
    return "it is a web page" if start.startswith((b"<!doctype", b"<html")) else "nothing that can be read as one"


def _as_seen(image: Image.Image) -> Image.Image:
    return _upright(image, _over_white(_eight_bits(image)))


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey becomes 8-bit grey; 16-bit colours are read as 8 bits."""
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
    """By the colour profile in the file, where it has one that fits; inks without one as screens show them."""
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


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(Exif.Orientation, 1))
    except Exception:  # a damaged note on a picture is no damage to the picture
        return 1
