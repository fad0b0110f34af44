"""Match files to photos by their names alone."""

from collections.abc import Iterable
from pathlib import PurePosixPath


def sidecar_files(photos: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """Return the file of each photo that has one: `dog.txt` or `dog.jpg.txt` belongs to `dog.jpg`. Of several, the last in order of name
    wins."""
    named = {PurePosixPath(file).with_suffix(""): file for file in sorted(files)}
    found = {
        photo: named.get(PurePosixPath(photo), named.get(PurePosixPath(photo).with_suffix(""))) for photo in photos
    }
    return {photo: file for photo, file in found.items() if file}


def sidecar_folders(photos: Iterable[str]) -> list[str]:
    """Return the folders that can hold files for these photos."""
    return sorted({".", *(str(PurePosixPath(photo).parent) for photo in photos)})
