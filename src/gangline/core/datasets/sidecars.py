"""Match files to photos by their names alone."""

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath


def sidecar_files(photos: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """Return the file of each photo that has one: `dog.txt` or `dog.jpg.txt` belongs to `dog.jpg`. Of several, the last in order of name
    wins. If there is a photo `dog`, too, `dog.txt` is that one's alone."""
    named = {PurePosixPath(file).with_suffix(""): file for file in sorted(files)}
    places = {PurePosixPath(photo): photo for photo in photos}
    found = dict[str, str]()
    for place, photo in places.items():
        stem = place.with_suffix("")
        file = named.get(place) or (None if stem in places else named.get(stem))
        if file:
            found[photo] = file
    return found


def own_files(photos: Collection[str], files: Iterable[str]) -> dict[str, str]:
    """Return the file that a new caption of each photo is written into: its own one as `sidecar_files` says, or a new name.

    Where several photos have one stem, `dog.jpg` and `dog.png`, neither gets `dog.txt`, which both would have: its file is `dog.jpg.txt`.
    """
    stems = Counter(_stem(photo) for photo in photos)
    found = sidecar_files(photos, files)
    names = dict[str, str]()
    for photo in photos:
        place = PurePosixPath(photo)
        if stems[_stem(photo)] == 1:
            names[photo] = found.get(photo) or f"{place.with_suffix('')}.txt"
        else:
            has_own = photo in found and PurePosixPath(found[photo]).with_suffix("") == place
            names[photo] = found[photo] if has_own else f"{photo}.txt"
    return names


def _stem(photo: str) -> str:
    """Return the stem in lower case: some disks do not tell `Dog.txt` from `dog.txt`."""
    return str(PurePosixPath(photo).with_suffix("")).casefold()


def sidecar_folders(photos: Iterable[str]) -> list[str]:
    """Return the folders that can hold files for these photos."""
    return sorted({".", *(str(PurePosixPath(photo).parent) for photo in photos)})
