"""Choose the picture that stands in a message, among the files of a job."""

from collections.abc import Mapping

from gangline.core.runs.contract import GRID, PHOTOS, SAMPLES
from gangline.core.runs.retention import PREVIEWS

PICTURE_BYTES_MAX = 4_000_000
"""A larger picture is left out: mail servers and chats refuse long messages."""
_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


def picture_shown(files: Mapping[str, int]) -> str | None:
    """Return the file that shows best what a job has learned, given the bytes of each file by its path: the grid of its result, else the
    first sample of its result, else that of its last step; None if there is none that is small enough."""
    pictures = [
        path
        for path, size in files.items()
        if path.startswith(f"{SAMPLES}/") and path.endswith((".png", ".jpg")) and 0 < size <= PICTURE_BYTES_MAX
    ]
    grid, photos = f"{SAMPLES}/{GRID}", f"{SAMPLES}/{PHOTOS}"
    if grid in pictures:
        return grid
    of_result = [path for path in pictures if not path.startswith(PREVIEWS) and path != photos]
    of_steps = [path for path in pictures if path.startswith(PREVIEWS)]
    last = max((path.rpartition("/")[0] for path in of_steps), default="")
    return min(of_result or [path for path in of_steps if path.rpartition("/")[0] == last], default=None)


def picture_type(content: bytes) -> str | None:
    """Return the media type of a PNG or JPEG by its first bytes; None for anything else, whatever its name says."""
    return next((kind for signature, kind in _SIGNATURES.items() if content.startswith(signature)), None)
