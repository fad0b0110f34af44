"""Inspect photos that a server has downloaded for a user, in a separate process: `python -m gangline.data.images.imported FOLDER`.

Files from strangers are decoded here and nowhere else in the server, within limits of memory and time; a file that crashes the decoder ends
only this process. `FOLDER/fetched` has the downloads; photos and captions are in `FOLDER/photos` afterwards. The answer is a line of JSON.
"""

import json
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

from gangline.core.errors import UserError
from gangline.data.images.captions import find_captions, read_captions
from gangline.data.images.photos import find_photos
from gangline.data.images.zips import ZipBounds, unpack_zip

FETCHED, PHOTOS = "fetched", "photos"
MEMORY_BYTES_MAX = 4 * 2**30
CPU_S_MAX = 1800
REFUSED = 65
TOLD_MAX = 20
"""Limit of sentences: an archive from a stranger could cause ten thousand."""


def inspect_folder(folder: Path, bounds: ZipBounds, *, all_are_photos: bool) -> dict[str, Any]:
    """Return the names of photos and captions below `PHOTOS`, and sentences on what was skipped. Raise `UserError` if the files cannot be
    used.

    With `all_are_photos` the user named each file, so one that is not a photo is an error.
    """
    fetched, photos = folder / FETCHED, folder / PHOTOS
    shutil.rmtree(photos, ignore_errors=True)
    photos.mkdir()
    zips = sorted(fetched.glob("*.zip"))
    for path in zips:
        bounds = unpack_zip(path, photos if len(zips) == 1 else photos / path.stem, bounds)
    for path in sorted(fetched.rglob("*")):
        if path.is_file() and path not in zips:
            to = photos / path.relative_to(fetched)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.hardlink_to(path)
    found = find_photos(photos)
    if all_are_photos and found.skipped:
        first = found.skipped[0]
        raise UserError(f"{first.name} is not a photo: {first.because}", hint="give only addresses of photos")
    names = [path.relative_to(photos).as_posix() for path in found.photos]
    told = found.warnings
    read_captions(photos, names, "the prompt", told.append)
    return {"photos": names, "captions": find_captions(photos, names), "told": told[:TOLD_MAX]}


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    folder, wanted = Path(sys.argv[1]), json.loads(sys.argv[2])
    try:
        answer = inspect_folder(folder, ZipBounds(**wanted["bounds"]), all_are_photos=wanted["all_are_photos"])
    except UserError as error:
        sys.stdout.write(json.dumps({"message": error.message, "hint": error.hint}))
        return REFUSED
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
