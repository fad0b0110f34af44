"""Make a row of a data set. An image is decoded once, and encoded only if its bytes cannot be stored as they are."""

import hashlib
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import pyarrow as pa
from PIL import ExifTags, Image
from PIL.JpegImagePlugin import JpegImageFile

from gangline.data.images.buckets import Size
from gangline.data.images.pixels import Unreadable, as_seen, is_upright_rgb, loaded
from gangline.data.place import printable_name
from gangline.data.sources import Item

ImageFormat = Literal["keep", "jpeg", "webp", "png"]
LOSSLESS = ("PNG", "BMP", "TIFF", "GIF")
DHASH = 9, 8
UPRIGHT = 1

OWN = pa.schema(
    [
        pa.field("image", pa.large_binary(), metadata={"lance-encoding:compression": "none"}),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("captions", pa.list_(pa.string())),
        pa.field("sha256", pa.string()),
        pa.field("dhash", pa.int64()),
        pa.field("source", pa.string()),
    ]
)
"""`width` and `height` are those of `image`, upright; `sha256` is that of the source's bytes, in hexadecimal; `dhash` is a perceptual hash:
images that are equal when reduced to 9 × 8 grey pixels have the same."""

SEEN = OWN.remove(0).append(pa.field("aspect", pa.float64()))
"""The columns that conditions may use besides the source's; `aspect` is width ÷ height."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storing:
    """How images are stored. With `keep`, bytes stay as they are if possible: upright, RGB, no larger than `short_side`."""

    format: ImageFormat = "keep"
    quality: int = 95
    short_side: int | None = None


def image_row(item: Item, storing: Storing) -> dict[str, Any]:
    """Return the row of an item. Raise `Unreadable` if its image cannot be decoded or stored."""
    content = item.image or b""
    try:
        with loaded(BytesIO(content), at_least=storing.short_side) as image:
            if item.latents and image.getexif().get(ExifTags.Base.Orientation, UPRIGHT) != UPRIGHT:
                raise Unreadable(
                    "rotated by its EXIF, unlike its latents", "is rotated by its EXIF, unlike its latents", ""
                )
            stored, picture = _stored(content, image, storing)
            grey = picture.resize(DHASH, Image.Resampling.BOX, reducing_gap=2.0).convert("L")
    except (OSError, ValueError) as error:
        raise Unreadable("damaged", f"cannot be stored: {error}", "") from None
    return {
        "image": stored,
        "width": picture.width,
        "height": picture.height,
        "captions": list(item.captions),
        "sha256": hashlib.sha256(content).hexdigest(),
        "dhash": dhash(grey),
        "source": printable_name(item.name),
        "aspect": picture.width / picture.height,
        **item.columns,
        **item.latents,
    }


def dhash(grey: Image.Image) -> int:
    """Return the difference hash (Krawetz, "Kind of like that", 2013) of 9 × 8 pixels as a signed 64-bit number.

    Each pixel but the last of a row gives one bit: whether it is darker than the next.
    """
    width, height = DHASH
    pixels = grey.tobytes()
    bits = 0
    for row in range(height):
        for column in range(width - 1):
            bits = bits << 1 | (pixels[row * width + column] < pixels[row * width + column + 1])
    return bits - (1 << 64) if bits >> 63 else bits


def fitted(size: Size, short_side: int | None) -> Size:
    """Return the size scaled down so that its shorter side is at most `short_side`, with the same aspect."""
    short = min(size.width, size.height)
    if short_side is None or short <= short_side:
        return size
    return Size(width=round(size.width * short_side / short), height=round(size.height * short_side / short))


def _stored(content: bytes, image: Image.Image, storing: Storing) -> tuple[bytes, Image.Image]:
    """Return the bytes to store, and the image that they show."""
    before = Size(width=image.width, height=image.height)
    plain = is_upright_rgb(image)
    picture = image if plain else as_seen(image)
    wanted = fitted(Size(width=picture.width, height=picture.height), storing.short_side)
    if (picture.width, picture.height) != (wanted.width, wanted.height):
        picture = picture.resize((wanted.width, wanted.height), Image.Resampling.LANCZOS)
    own = image.format or ""
    unchanged = plain and wanted == before and _whole(content, image)
    if unchanged and (storing.format == "keep" or storing.format == own.lower()):
        return content, picture
    form = storing.format if storing.format != "keep" else ("png" if own in LOSSLESS else "jpeg")
    return _encoded(picture, form, storing.quality), picture


def _whole(content: bytes, image: Image.Image) -> bool:
    """Return whether the decoder read all pixels. Only that of JPEG can be asked for fewer."""
    if image.format != "JPEG":
        return True
    with JpegImageFile(BytesIO(content)) as header:
        return header.size == image.size


def _encoded(picture: Image.Image, form: str, quality: int) -> bytes:
    file = BytesIO()
    match form:
        case "jpeg":
            picture.save(file, "JPEG", quality=quality, subsampling=0 if quality >= 90 else 2)
        case "webp":
            picture.save(file, "WEBP", quality=quality, method=4)
        case _:
            picture.save(file, "PNG")
    return file.getvalue()
