"""Find photos as users have them: in a folder of files, some rotated, some transparent, some not images at all."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from PIL import Image

from gangline.core.datasets.roles import COUNTED, SUFFIXES, is_caption
from gangline.core.errors import BadInput
from gangline.core.files import is_safe_path
from gangline.data.images.buckets import Size
from gangline.data.images.pixels import Unreadable, as_seen, opened, printable_path, recognised
from gangline.posix import cores

T = TypeVar("T")
U = TypeVar("U")
READERS = min(4, cores())
"""Threads that read photos for a plan: decoders release the interpreter lock. There are few, because each holds a photo in memory, up to
some hundred megabytes for 89 megapixels; a server, whose memory is limited, reads one at a time."""
UNREADABLE = (".heic", ".heif", ".jxl", ".psd", ".svg", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2")


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not used as a photo, by its name in messages, and the reason."""

    name: str
    because: str

    def __str__(self) -> str:
        return f"{self.name} is skipped: {self.because}"


@dataclass(frozen=True, slots=True)
class FoundPhotos:
    """Photos sorted by name, each one's size as a person sees it, the files that are skipped, and sentences on photos that are used in
    part."""

    photos: list[Path]
    sizes: list[Size]
    skipped: list[SkippedFile]
    partial: list[str]

    @property
    def warnings(self) -> list[str]:
        return [*map(str, self.skipped), *self.partial]


def find_photos(folder: Path, *, threads: int = 1) -> FoundPhotos:
    """Find every image in `folder` and in subfolders that are named like kohya's, `10_sks dog`, and read each to its last byte.

    Captions are left to `captions`; `threads` read in parallel. Raise `BadInput` that names the folder, or the first image that cannot be
    read.
    """
    if not folder.exists():
        raise BadInput(
            f"there is no folder {folder}",
            hint="give a folder of photos, or a data set that `gangline datasets ls` lists",
        )
    if not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder", hint=f"did you mean {folder.parent}?")
    photos: list[Path] = []
    skipped: list[SkippedFile] = []
    for path in photo_entries(folder):
        because = why_no_photo(path)
        if because:
            skipped.append(SkippedFile(printable_path(path), because))
        else:
            photos.append(path)
    if not photos:
        raise BadInput(
            f"{folder} holds no photos" + "".join(f"; {each}" for each in skipped[:3]),
            hint=f"put images there ({', '.join(SUFFIXES)})",
        )
    read = read_each(lambda path: _checked(path, folder), photos, threads)
    partial = [sentence for _, sentence in read if sentence]
    return FoundPhotos(photos, [size for size, _ in read], skipped, partial)


def read_each(read: Callable[[T], U], wanted: Iterable[T], threads: int) -> list[U]:
    """Return the result of `read` for each, in order, computed by threads. Raise the error of the first that fails."""
    with ThreadPoolExecutor(threads, thread_name_prefix="photos") as readers:
        return list(readers.map(read, wanted))


def photo_entries(folder: Path) -> list[Path]:
    """Return the entries of the folder and of subfolders with a number before their names, except captions."""
    try:
        entries = sorted(folder.iterdir())
        counted = [path for path in entries if path.is_dir() and COUNTED.fullmatch(path.name)]
        below = [inner for path in counted for inner in path.iterdir()]
    except OSError as error:
        raise BadInput(f"{error.filename} may not be read: {error.strerror}", hint="change its permissions") from None
    files = [path for path in entries if path not in counted] + below
    return sorted(path for path in files if not is_caption(path))


def why_no_photo(path: Path) -> str:
    """Return why an entry of a folder of photos is skipped, or "". Raise `BadInput` for an image that cannot be used."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return "photos are taken from the folder itself and from folders named like `10_sks dog`"
    if path.name.startswith("."):
        return "a hidden file"
    if suffix in UNREADABLE:
        raise BadInput(f"{printable_path(path)} is in a format that is not supported", hint="save it as JPEG or PNG")
    if suffix in SUFFIXES and not path.is_file():
        raise BadInput(f"{printable_path(path)} is a broken link", hint="take it out of the folder")
    if suffix in SUFFIXES or (not suffix and path.is_file() and _is_image(path)):
        return ""
    return "not an image"


def _is_image(path: Path) -> bool:
    try:
        with path.open("rb") as file, recognised(file):
            return True
    except Unreadable:
        return True  # an image that is too large
    except (OSError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return False


def _checked(path: Path, folder: Path) -> tuple[Size, str]:
    """Return the photo's size, and a sentence if only its first frame is used."""
    if not is_safe_path(path.relative_to(folder).as_posix()):
        raise BadInput(f"the name {path.name!r} is not possible on every system", hint="rename it")
    with opened(path) as image:
        seen = as_seen(image)
        frames = getattr(image, "n_frames", 1)
    told = f"{printable_path(path)} has {frames} frames: only the first is used" if frames > 1 else ""
    return Size(width=seen.width, height=seen.height), told
