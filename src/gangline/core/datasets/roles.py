"""What a file of photos is for, by its name alone: a photo, a caption beside it, or a mask; and what its folder's name says."""

import re
from pathlib import PurePath, PurePosixPath
from typing import Literal

from gangline.core.specs.sections.subjects import REPEATS_MAX

FileRole = Literal["photo", "caption", "mask"]
SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".apng", ".webp", ".avif", ".bmp", ".tif", ".tiff", ".gif")
BESIDE = (".txt", ".caption")
METADATA = "metadata.jsonl"
COUNTED = re.compile(r"(\d+)_(.*)")
"""A folder of kohya's convention: the photos in `10_sks dog` are seen ten times as often, as "sks dog"."""
MASKS = "masks"
"""The folder of a data set that has the masks, each with the path of its photo below it."""


def is_caption(path: PurePath) -> bool:
    return not path.name.startswith(".") and (path.suffix.lower() in BESIDE or path.name == METADATA)


def role_of(path: str) -> FileRole | None:
    """Return what the file at a path of a data set is for. None: a data set has no use for it."""
    place = PurePosixPath(path)
    if place.parts[0] == MASKS and len(place.parts) > 1:
        return "mask" if _may_be_photo(PurePosixPath(*place.parts[1:])) else None
    if is_caption(place) and _is_where_photos_are(place):
        return "caption"
    return "photo" if _may_be_photo(place) else None


def photo_of_mask(path: str) -> str:
    """Return the path of a mask below the folder of masks: that of its photo, but for the suffix."""
    return path.removeprefix(f"{MASKS}/")


def words_of_folder(photo: str) -> str:
    """Return the caption that the name of a photo's folder states; "" if it states none."""
    return _of_folder(photo)[1]


def repeats_of_folder(photo: str) -> int:
    """Return how often a pass over all photos includes this one, by the name of its folder."""
    return _of_folder(photo)[0]


def _of_folder(photo: str) -> tuple[int, str]:
    counted = COUNTED.fullmatch(PurePosixPath(photo).parent.name)
    if not counted or not 1 <= int(counted[1]) <= REPEATS_MAX:
        return 1, ""
    return int(counted[1]), counted[2].strip()


def _may_be_photo(place: PurePosixPath) -> bool:
    shown = not place.name.startswith(".")
    return shown and place.suffix.lower() in (*SUFFIXES, "") and _is_where_photos_are(place)


def _is_where_photos_are(place: PurePosixPath) -> bool:
    return len(place.parts) == 1 or (len(place.parts) == 2 and COUNTED.fullmatch(place.parts[0]) is not None)
