"""Find what of a folder belongs to a data set: photos, captions beside them, and masks. No picture is decoded: the server checks them."""

from dataclasses import dataclass
from pathlib import Path

from gangline.core.datasets.roles import MASKS, SUFFIXES
from gangline.core.datasets.sidecars import sidecar_files, sidecar_folders
from gangline.core.errors import BadInput
from gangline.core.files import is_safe_path
from gangline.data.images.captions import find_captions
from gangline.data.images.photos import SkippedFile, photo_entries, why_no_photo
from gangline.data.images.pixels import printable_path
from gangline.data.links import refuse_link_out


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFolder:
    """Files by their paths in a data set, and those that are left out, with the reasons."""

    files: dict[str, Path]
    skipped: list[SkippedFile]


def find_dataset_files(folder: Path, masks: Path | None = None) -> DatasetFolder:
    """Find the photos of a folder with captions and masks; these are below `masks`, or in its own folder of that name.

    Raise `BadInput` if there are no photos, or a file has a name that is not possible everywhere.
    """
    if not folder.exists():
        raise BadInput(f"there is no folder {folder}", hint="give a folder of photos, or a .zip of them")
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder", hint="give a folder of photos, or a .zip of them")
    own = folder / MASKS if masks is None and (folder / MASKS).is_dir() else masks
    photos, skipped = list[str](), list[SkippedFile]()
    for path in photo_entries(folder):
        because = why_no_photo(path)
        if not because:
            photos.append(path.relative_to(folder).as_posix())
        elif path != folder / MASKS:
            skipped.append(SkippedFile(printable_path(path), because))
    if not photos:
        raise BadInput(f"{folder} holds no photos", hint=f"put images there ({', '.join(SUFFIXES)})")
    files = {name: folder / name for name in (*photos, *find_captions(folder, photos))}
    found = DatasetFolder(files=files | (_masks(own, photos) if own else {}), skipped=skipped)
    for name, path in found.files.items():
        if not is_safe_path(name):
            raise BadInput(f"the name {path.name!r} is not possible on every system", hint="rename it")
    return found


def _masks(folder: Path, photos: list[str]) -> dict[str, Path]:
    if not folder.is_dir():
        raise BadInput(
            f"the folder of masks {folder} does not exist", hint="give a folder with a picture for each photo"
        )
    names = [
        path.relative_to(folder).as_posix()
        for parent in sidecar_folders(photos)
        for path in (folder / parent).glob("[!.]*.*")
    ]
    found = sorted({*sidecar_files(photos, names).values()})
    for name in found:
        refuse_link_out(folder, name)
    return {f"{MASKS}/{name}": folder / name for name in found}
