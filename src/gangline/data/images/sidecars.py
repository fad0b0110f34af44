"""Which files belong to which photos, by their names alone."""

from collections.abc import Iterable
from pathlib import PurePosixPath


def sidecar_files(photos: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """The file of each photo that has one: `dog.txt` or `dog.jpg.txt` is `dog.jpg`'s. Of two, the last in order of names."""
    named = {PurePosixPath(file).with_suffix(""): file for file in sorted(files)}
    found = {
        photo: named.get(PurePosixPath(photo), named.get(PurePosixPath(photo).with_suffix(""))) for photo in photos
    }
    return {photo: file for photo, file in found.items() if file}


def sidecar_folders(photos: Iterable[str]) -> list[str]:
    """The folders that can hold what belongs to photos."""
    return sorted({".", *(str(PurePosixPath(photo).parent) for photo in photos)})
