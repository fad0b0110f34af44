"""Download data that a script needs, from a bucket or a folder into a folder of this machine, before the script starts."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EXDEV
from pathlib import Path
from random import Random
from threading import Event

from gangline.core.canonical import digest
from gangline.core.errors import BadInput, Unreachable, UserError
from gangline.core.files import is_safe_path
from gangline.core.jobs.retry import retry_s
from gangline.core.words import counted
from gangline.data.place import DataPlace, Entry

AT_ONCE = 8
BUFFER_BYTES = 1 << 20
TRIES_MAX = 8
GB = 10**9


def download_data(
    place: DataPlace, to: Path, notes: Path, say: Callable[[str], None], stopped: Callable[[], bool] = lambda: False
) -> int:
    """Return how many bytes were downloaded. Files that `notes` lists as downloaded and unchanged at the source are skipped. Raises
    `UserError`, `Unreachable`."""
    entries = place.entries()
    if not entries:
        raise BadInput(
            f"there is nothing at {place.uri}", hint="--data takes ADDRESS:FOLDER, e.g. s3://BUCKET/photos:images"
        )
    unsafe = next((entry.name for entry in entries if not is_safe_path(entry.name)), None)
    if unsafe is not None:
        raise BadInput(f"{unsafe!r} in {place.uri} does not have a safe file name", hint="rename it there")
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder {to} cannot be created: {error.strerror}", hint="name another FOLDER in --data ADDRESS:FOLDER"
        ) from None
    noted = _read(notes)
    lacking = [entry for entry in entries if not _is_here(entry, place, to, noted)]
    wanted, room = sum(entry.bytes for entry in lacking), shutil.disk_usage(to).free
    if wanted > room:
        raise UserError(
            f"the disk is too small for {place.uri}: {wanted / GB:.1f} GB are needed, {room / GB:.1f} are free",
            hint="make room, or name a folder on a larger disk in --data",
        )
    if not lacking:
        return 0
    say(f"downloading {counted(len(lacking), 'file')} ({wanted / 1e6:.1f} MB) from {place.uri} to {to}")
    downloaded = dict[str, str]()

    def fetch(entry: Entry) -> None:
        _fetch(entry, place, to, notes, stopped)
        if not stopped():
            downloaded[str(to / entry.name)] = _mark(place, entry)

    try:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(fetch, lacking))
    finally:
        notes.write_text(json.dumps(noted | downloaded))
    return wanted


def _fetch(entry: Entry, place: DataPlace, to: Path, notes: Path, stopped: Callable[[], bool]) -> None:
    """Download to a file beside the notes first, so that the script's folder never holds half a file."""
    coming, goal = notes.with_name(f".coming-{digest(entry.name)[:16]}"), to / entry.name
    goal.parent.mkdir(parents=True, exist_ok=True)
    for tries in range(TRIES_MAX):
        try:
            with place.open(entry.name) as source, coming.open("wb") as file:
                while piece := source.read(BUFFER_BYTES):
                    if stopped():
                        return
                    file.write(piece)
            if coming.stat().st_size == entry.bytes:
                _put(coming, goal)
                return
        except Unreachable:
            if tries == TRIES_MAX - 1:
                raise
        except OSError as error:
            raise UserError(
                f"{goal} cannot be written: {error.strerror}", hint="name another FOLDER in --data ADDRESS:FOLDER"
            ) from None
        Event().wait(retry_s(tries, Random(entry.name)))  # noqa: S311 - jitter
    raise Unreachable(f"{entry.name} in {place.uri} could not be downloaded completely")


def _put(coming: Path, goal: Path) -> None:
    """Move the file into place atomically, also from another disk."""
    try:
        coming.replace(goal)
    except OSError as error:
        if error.errno != EXDEV:
            raise
        beside = goal.with_name(f".{goal.name}.coming")
        shutil.move(coming, beside)
        beside.replace(goal)


def _is_here(entry: Entry, place: DataPlace, to: Path, noted: dict[str, str]) -> bool:
    path = to / entry.name
    return noted.get(str(path)) == _mark(place, entry) and path.is_file() and path.stat().st_size == entry.bytes


def _mark(place: DataPlace, entry: Entry) -> str:
    return f"{place.uri} {entry.name} {entry.bytes} {entry.mark}"


def _read(notes: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        found = json.loads(notes.read_text())
        return found if isinstance(found, dict) else {}
    return {}
