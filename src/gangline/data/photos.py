"""Photos as people have them: a folder of files, some turned, some transparent, some no image at all."""

import warnings
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from gangline.core.errors import BadInput

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
PIXELS_MAX = 120_000_000


def find_photos(folder: Path) -> list[Path]:
    """Every file of `folder`, by name, each of which must be an image that can be read to its last byte.

    Hidden files are passed over. Raises `BadInput` that names the folder or the file.
    """
    if not folder.exists():
        raise BadInput(f"there is no folder {folder}", hint="give the path of a folder of photos")
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder", hint=f"did you mean {folder.parent}?")
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    if not files:
        raise BadInput(f"{folder} holds no photos", hint=f"put images there ({', '.join(SUFFIXES)})")
    for path in files:
        read_photo(path)
    return files


def read_photo(path: Path) -> Image.Image:
    """The picture as a person sees it: turned upright, in RGB, transparency over white. Raises `BadInput`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                if image.width * image.height > PIXELS_MAX:
                    raise BadInput(
                        f"{path.name} is {image.width} × {image.height} pixels, more than can be read safely",
                        hint="make it smaller first",
                    )
                return _upright_rgb(image)
    except UnidentifiedImageError:
        raise BadInput(f"{path.name} is not an image", hint="take it out of the folder") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadInput(f"{path.name} has too many pixels to be read safely", hint="make it smaller first") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise BadInput(
            f"{path.name} cannot be read to its end: {error}",
            hint="the file is damaged: replace it or take it out",
        ) from None


def _upright_rgb(image: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16") or upright.mode == "I":
        upright = upright.point(lambda value: value / 256).convert("L")
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        layer = upright.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return upright.convert("RGB")


def crop_square(image: Image.Image, side: int) -> Image.Image:
    """The largest centred square of `image`, scaled to `side` × `side` pixels."""
    return ImageOps.fit(image, (side, side), Image.Resampling.LANCZOS)
