"""Look at pictures and captions of a data set, in a separate process: `python -m gangline.data.images.sets.inspected FOLDER QUESTION`.

Files from strangers are decoded here, within limits of memory and time; a file that crashes the decoder ends only this process. For
`{"pictures": [NAME, …]}` the answer has what each file of FOLDER is, and FOLDER/NAME.jpg is a small copy of it. For `{"photos": …}` the
captions in FOLDER are read. An answer is a line of JSON.
"""

import json
import resource
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from PIL import Image, ImageFilter, ImageStat

from gangline.core.datasets.sidecars import sidecar_files
from gangline.core.errors import BadInput
from gangline.data.images.buckets import Size
from gangline.data.images.captions import read_captions
from gangline.data.images.masks import check_fits
from gangline.data.images.pixels import Unreadable, as_seen, loaded

MEMORY_BYTES_MAX = 4 * 2**30
CPU_S_MAX = 240
"""The time of all pictures of one call. One of 89 megapixels takes some seconds."""
THUMBNAIL, QUALITY = 256, 80
LOOKED_AT = 512
"""Pixels of the longer side at which sharpness is measured, so that it says the same of a photo in any size."""
LAPLACIAN = ImageFilter.Kernel((3, 3), (0, 1, 0, 1, -4, 1, 0, 1, 0), scale=1, offset=128)
ACROSS, DOWN = 9, 8
NOTES_MAX = 20


def inspect_pictures(folder: Path, names: list[str]) -> dict[str, Any]:
    """Return what each file is, by its name. A small copy of each is written beside it."""
    return {name: _inspected(folder / name, folder / f"{name}.jpg") for name in names}


def _inspected(path: Path, thumbnail: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file, loaded(file) as image:
            kind, seen = image.format or "", as_seen(image)
    except Unreadable as error:
        return {"because": error.because}
    _small(seen).save(thumbnail, "JPEG", quality=QUALITY)
    return {
        "format": kind,
        "width": seen.width,
        "height": seen.height,
        "sharpness": sharpness(seen),
        "likeness": difference_hash(seen),
    }


def _small(image: Image.Image) -> Image.Image:
    """Return a small copy. The picture is averaged to about twice the size first, as a copy of all of it may take 270 MB."""
    factor = max(image.size) // (2 * THUMBNAIL)
    small = image.reduce(factor) if factor > 1 else image.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return small


def sharpness(image: Image.Image) -> float:
    """Return the variance of the Laplacian of an RGB image (Pech-Pacheco et al., ICPR 2000), reduced to 512 pixels."""
    grey = image.convert("L")
    grey.thumbnail((LOOKED_AT, LOOKED_AT))
    edges = grey.filter(LAPLACIAN)
    if min(edges.size) < 3:  # the filter leaves the outermost pixels as they were
        return 0.0
    return round(ImageStat.Stat(edges.crop((1, 1, edges.width - 1, edges.height - 1))).var[0], 3)


def difference_hash(image: Image.Image) -> str:
    """Return 64 bits in hexadecimal: in an image of 9 × 8 pixels, whether each one is brighter than its right neighbour."""
    pixels = image.convert("L").resize((ACROSS, DOWN), Image.Resampling.LANCZOS).tobytes()
    rows = (pixels[start : start + ACROSS] for start in range(0, ACROSS * DOWN, ACROSS))
    bits = [left > right for row in rows for left, right in pairwise(row)]
    return f"{sum(bit << place for place, bit in enumerate(reversed(bits))):016x}"


def inspect_texts(
    folder: Path, photos: dict[str, tuple[int, int]], masks: dict[str, tuple[int, int]]
) -> dict[str, Any]:
    """Read the captions in a folder, whose photos have these sizes, and compare the masks' shapes with their photos'."""
    notes: list[str] = []
    try:
        read_captions(folder, sorted(photos), "the prompt", notes.append)
        found = sidecar_files(photos, masks)
        for photo, mask in sorted(found.items()):
            check_fits(mask, _size(masks[mask]), _size(photos[photo]))
    except BadInput as error:
        return {"because": error.message, "notes": []}
    if masks:
        notes += [
            f"{photo} has no mask, so the loss counts all of it" for photo in sorted(photos.keys() - found.keys())
        ]
        notes += [f"the mask {mask} belongs to no photo" for mask in sorted(masks.keys() - {*found.values()})]
    return {"because": "", "notes": notes[:NOTES_MAX]}


def _size(sides: tuple[int, int]) -> Size:
    return Size(width=sides[0], height=sides[1])


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    folder = Path(sys.argv[1])
    asked = json.loads((folder / "question.json").read_text())
    if "pictures" in asked:
        answer = inspect_pictures(folder / "files", asked["pictures"])
    else:
        answer = inspect_texts(folder / "files", asked["photos"], asked["masks"])
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
