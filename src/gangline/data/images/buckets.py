"""Decide how a picture is cut to a size that a batch can have. Pure, except for `cut_view`, which makes pixels.

Buckets of several aspect ratios and about one area come from NovelAI ("Improvements on Stable Diffusion", 2022). SDXL is conditioned on
each picture's original size and on where it was cut (Podell et al. 2023, §2.2).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from PIL import Image

if TYPE_CHECKING:
    import numpy as np  # not at runtime: the command line plans without it

ASPECT_MAX = 2
STEP = 64
STEPS_LEAST = 8  # smaller pictures have finer steps, if the base can


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Size:
    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width} × {self.height}"

    @property
    def area(self) -> int:
        return self.width * self.height


def targets(resolution: int, aspect_buckets: bool, unit: int) -> list[Size]:
    """Return the sizes that pictures are cut to, whose sides are multiples of `unit`, as the base needs."""
    if not aspect_buckets:
        return [Size(width=resolution, height=resolution)]
    return buckets(resolution, max(unit, STEP) if resolution >= STEPS_LEAST * STEP else unit)


def buckets(resolution: int, step: int) -> list[Size]:
    """Return sizes of at most resolution² pixels, with sides that are multiples of `step`, from 1:2 to 2:1, narrow ones first."""
    step = min(step, resolution)
    sides = range(step, resolution * ASPECT_MAX + 1, step)
    widest = [Size(width=width, height=resolution**2 // width // step * step) for width in sides]
    wide = {size for size in widest if size.height <= size.width <= size.height * ASPECT_MAX}
    return sorted(wide | {Size(width=size.height, height=size.width) for size in wide})


def nearest(size: Size, among: list[Size]) -> Size:
    """Return the bucket with the closest aspect, by the ratio of the two; of equals the one with more pixels."""

    def distance(bucket: Size) -> tuple[Fraction, int]:
        ratio = Fraction(size.width * bucket.height, size.height * bucket.width)
        return max(ratio, 1 / ratio), -bucket.area

    return min(among, key=distance)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The part of an upright photo of size `original` that is seen: scaled to `scaled`, cut to `target` at (left, top), and maybe
    mirrored."""

    original: Size
    scaled: Size
    target: Size
    left: int
    top: int
    mirrored: bool = False

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom in pixels of the photo."""
        across, down = self.original.width / self.scaled.width, self.original.height / self.scaled.height
        right, bottom = self.left + self.target.width, self.top + self.target.height
        return (
            self.left * across,
            self.top * down,
            min(right * across, self.original.width),
            min(bottom * down, self.original.height),
        )

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """SDXL's conditioning: original height and width, top and left of the cut in the scaled picture (mirrored like it), target height
        and width."""
        left = self.scaled.width - self.target.width - self.left if self.mirrored else self.left
        return self.original.height, self.original.width, self.top, left, self.target.height, self.target.width


def views(
    size: Size,
    bucket: Size,
    *,
    crop: Literal["center", "random"] = "center",
    crops: int = 1,
    flip: bool = False,
    rng: "np.random.Generator | None" = None,
) -> list[View]:
    """Return the centre, or `crops` positions that `rng` draws; with `flip`, each of them mirrored too.

    Every photo gets the same number, though positions may coincide: a photo that fits its bucket has only one.
    """
    scaled = covering(size, bucket)
    room = scaled.width - bucket.width, scaled.height - bucket.height
    if crop == "center":
        places = [(room[0] // 2, room[1] // 2)]
    else:
        assert rng is not None, "random places are drawn"
        places = [(int(rng.integers(room[0] + 1)), int(rng.integers(room[1] + 1))) for _ in range(crops)]
    return [
        View(original=size, scaled=scaled, target=bucket, left=left, top=top, mirrored=mirrored)
        for left, top in places
        for mirrored in ((False, True) if flip else (False,))
    ]


def covering(size: Size, target: Size) -> Size:
    """Return `size` scaled so that `target` just fits into it."""
    if size.width * target.height <= size.height * target.width:
        height = _rounded(size.height * target.width, size.width)
        return Size(width=target.width, height=max(height, target.height))
    width = _rounded(size.width * target.height, size.height)
    return Size(width=max(width, target.width), height=target.height)


def _rounded(part: int, whole: int) -> int:
    return (2 * part + whole) // (2 * whole)


def cut_view(image: Image.Image, view: View, how: Image.Resampling = Image.Resampling.LANCZOS) -> Image.Image:
    """Scale and cut in one step. Scaling the box alone equals scaling the whole and cutting then, in memory that the target bounds.

    `image` is the whole photo, or another size of the whole photo.
    """
    across, down = image.width / view.original.width, image.height / view.original.height
    left, top, right, bottom = view.box
    box = left * across, top * down, min(right * across, image.width), min(bottom * down, image.height)
    seen = image.resize((view.target.width, view.target.height), how, box=box)
    return seen.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if view.mirrored else seen
