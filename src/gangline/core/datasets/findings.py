"""What a check of a version finds: why it cannot be used, and what its owner may want to look at."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gangline.core.datasets.near import NearPhotos, near_photos
from gangline.core.datasets.roles import FileRole
from gangline.core.display import as_words, printable
from gangline.core.words import counted

TINY_BELOW = 512
"""Pixels of the shorter side: what a base of the smallest resolution is trained on."""
BLURRED_BELOW = 25.0
"""Variance of the Laplacian of a photo of at most 512 pixels: `benchmarks/datasets.py` prints those of sharp and of blurred photos."""
LISTED_MAX = 100
NOTES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPicture:
    """A picture of a version, and what was found of its content: `because` says why it cannot be used."""

    path: str
    role: FileRole
    because: str
    width: int
    height: int
    sharpness: float
    likeness: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LikePhotos:
    """Two photos that look alike: `distance` of 64 bits of their hashes (dHash) differ; 0 for the same picture."""

    first: str
    second: str
    distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoFinding:
    """A photo, and the number for which it is listed: its sharpness, or its shorter side in pixels."""

    path: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFindings:
    """Advice on a version that was checked. Of each kind the first hundred are listed; the counts are of all.

    `blurred` are photos whose sharpness (the variance of the Laplacian at 512 pixels) is low, `tiny` those with a side below 512 pixels.
    `notes` are sentences about captions and masks.
    """

    duplicates_count: int = 0
    duplicates: tuple[LikePhotos, ...] = ()
    blurred_count: int = 0
    blurred: tuple[PhotoFinding, ...] = ()
    tiny_count: int = 0
    tiny: tuple[PhotoFinding, ...] = ()
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetJudgement:
    """The end of a check: why the version is refused ("": it is ready), and what was found."""

    because: str
    findings: DatasetFindings

    @property
    def state(self) -> str:
        return "refused" if self.because else "ready"


def judge_version(pictures: Sequence[SeenPicture], refusal: str, notes: Sequence[str]) -> DatasetJudgement:
    """Return whether a version can be trained on, and advice. `refusal` and `notes` are about its captions and masks."""
    unusable = [picture for picture in pictures if picture.because]
    photos = [picture for picture in pictures if picture.role == "photo" and not picture.because]
    because = _why_refused(unusable, len(pictures)) or refusal
    near = near_photos([(photo.path, photo.likeness) for photo in photos])
    blurred = sorted((photo.sharpness, photo.path) for photo in photos if photo.sharpness < BLURRED_BELOW)
    sides = sorted((min(photo.width, photo.height), photo.path) for photo in photos)
    tiny = [(side, path) for side, path in sides if side < TINY_BELOW]
    return DatasetJudgement(
        because=as_words(because),
        findings=DatasetFindings(
            duplicates_count=len(near.pairs),
            duplicates=tuple(
                LikePhotos(first=first, second=second, distance=distance)
                for first, second, distance in near.pairs[:LISTED_MAX]
            ),
            blurred_count=len(blurred),
            blurred=tuple(PhotoFinding(path=path, value=round(value, 1)) for value, path in blurred[:LISTED_MAX]),
            tiny_count=len(tiny),
            tiny=tuple(PhotoFinding(path=path, value=float(side)) for side, path in tiny[:LISTED_MAX]),
            notes=tuple(as_words(note) for note in (*_of_search(near), *notes))[:NOTES_MAX],
        ),
    )


def _why_refused(unusable: Sequence[SeenPicture], count: int) -> str:
    if not unusable:
        return ""
    first, rest = unusable[0], len(unusable) - 1
    others = (
        f", and {'1 other is' if rest == 1 else f'{rest:,} others are'} unusable, of {counted(count, 'picture')}"
        if rest
        else ""
    )
    return f"{printable(first.path)} {first.because}{others}"


def _of_search(near: NearPhotos) -> list[str]:
    return [] if near.complete else ["too many photos look alike to compare all of them with each other"]
