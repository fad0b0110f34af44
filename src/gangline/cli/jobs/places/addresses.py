"""Photos of `gangline train` that are no folder: a zip of this machine, addresses that the server fetches from, or a data set."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gangline.cli.output import say
from gangline.core.datasets.names import is_dataset_reference
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.places.places import parse_places, places_to_json

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.core.datasets.views import DatasetVersionView

LIST_BYTES_MAX = 1_000_000


def addresses_of(given: str) -> list[dict[str, Any]] | None:
    """Return the addresses of photos elsewhere: one address, several between commas, or `@FILE` with one a line, each
    with its caption after it. Return None for photos on this machine. Raises `BadInput`."""
    if given.startswith("@"):
        return places_to_json(parse_places([_line(line) for line in _lines(Path(given[1:]))]))
    if "://" not in given:
        return None
    several = given.replace(",http", "\nhttp").split("\n")
    return places_to_json(parse_places(several if len(several) > 1 else given))


def dataset_of(client: "Client", given: str) -> "DatasetVersionView | None":
    """Return the version of a data set that a text names; None if it may name none, or a file or folder here has that name.

    A name without `@` that no data set has is a path, too. Raises `NotFound` and `BadInput`.
    """
    if not is_dataset_reference(given) or Path(given).exists():
        return None
    try:
        found = client.datasets.find(given)
    except (NotFound, Unreachable):
        if "@" in given:
            raise
        return None
    if found.reference != given:
        say(f"{given} is {found.reference}, the newest version that is ready")
    return found


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > LIST_BYTES_MAX:
            raise BadInput(
                f"{path} is too large for a list of URLs (at most {LIST_BYTES_MAX / 1e6:g} MB)",
                hint="put the photos into one zip",
            )
        found = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is not a text file"
        raise BadInput(f"{path} cannot be read: {why}", hint="give a file with a URL on each line") from None
    wanted = [line for line in found if line and not line.startswith("#")]
    if not wanted:
        raise BadInput(f"{path} contains no URL", hint="give a file with a URL on each line")
    return wanted


def _line(line: str) -> dict[str, str]:
    url, *caption = line.split(maxsplit=1)
    return {"url": url, **({"caption": caption[0]} if caption else {})}


@contextmanager
def unpacked(photos: Path) -> Iterator[Path]:
    """Yield the folder of photos; a zip is unpacked into a folder that exists until the context ends. Raises
    `BadInput`."""
    if photos.suffix.lower() != ".zip" or not photos.is_file():
        yield photos
        return
    from gangline.data.images.zips import ZipBounds, unpack_zip

    with TemporaryDirectory(prefix="gangline-") as folder:
        into = Path(folder) / photos.stem
        into.mkdir()
        unpack_zip(photos, into, ZipBounds())
        yield into
