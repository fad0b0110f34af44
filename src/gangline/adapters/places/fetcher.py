"""The `Fetcher` port: download photos from URLs and buckets into a folder of the server's home, one folder for each job."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Protocol

from gangline.adapters.places.looking import LOOK_S, answer_of
from gangline.adapters.places.web import Web
from gangline.core.display import printable
from gangline.core.errors import BadInput, Unreachable
from gangline.core.files import is_safe_path, partial_name
from gangline.core.places.places import ZIP, PhotoPlace, PhotoSource, file_names, source_of
from gangline.core.server.sources import FetchingSettings
from gangline.ports.places.fetcher import Brought, Check, FetchedPhotos

FETCHED, PHOTOS = "fetched", "photos"
ZIP_BEGINS = b"PK\x03\x04"
UNWANTED = ("__MACOSX", ".DS_Store", "Thumbs.db")


class ReadableBucket(Protocol):
    def list(self, prefix: str) -> Iterator[tuple[str, int]]: ...

    def fetch(self, key: str, to: Path, *, bytes_max: int, seconds: float, check: Check) -> int: ...


OpenBucket = Callable[[PhotoSource, str], ReadableBucket]
"""Opens the bucket of this name with the credentials of this source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A file to download, and its path below the folder."""

    name: str
    address: str
    caption: str = ""


class PlacesFetcher:
    """Downloads photos below `folder`. `look` is the command that checks a folder's files in a separate process
    (`data/images/imported.py`), since they come from strangers."""

    def __init__(
        self,
        folder: Path,
        settings: FetchingSettings,
        sources: Mapping[str, PhotoSource],
        web: Web,
        open_bucket: OpenBucket,
        look: Sequence[str],
    ) -> None:
        self._folder, self._settings, self._sources = folder, settings, sources
        self._web, self._open_bucket, self._look = web, open_bucket, tuple(look)

    def check(self, project: str, places: Sequence[PhotoPlace]) -> None:
        if len(places) > self._settings.files_max:
            raise BadInput(f"{len(places):,} photos are named, more than {self._settings.files_max:,}")
        for place in places:
            if place.address.startswith("s3://"):
                source_of(place.address, project, self._sources, "read")

    def bring(self, job: str, project: str, places: Sequence[PhotoPlace], check: Check) -> Iterator[Brought]:
        fetched = self._folder / job / FETCHED
        fetched.mkdir(parents=True, exist_ok=True)
        wanted = self._wanted(project, places)
        left = self._settings.bytes_max
        for number, each in enumerate(wanted):
            yield Brought(number, len(wanted))
            left -= self._fetch(each, fetched / each.name, project, left, check, alone=len(places) == 1)
            if each.caption:
                (fetched / each.name).with_suffix(".txt").write_text(each.caption, encoding="utf-8")
        yield Brought(len(wanted), len(wanted))

    def look(self, job: str, places: Sequence[PhotoPlace], check: Check) -> FetchedPhotos:
        folder = self._folder / job
        bounds = {name: getattr(self._settings, name) for name in ("files_max", "file_bytes_max", "bytes_max")}
        are_many = places[0].is_folder or any((folder / FETCHED).glob(f"*{ZIP}"))
        asked = json.dumps({"bounds": bounds, "all_are_photos": not are_many})
        answer = answer_of([*self._look, str(folder), asked], check, seconds=LOOK_S)
        if answer is None:
            raise Unreachable("the photos could not be checked: the program that decodes them did not finish")
        if "message" in answer:
            raise BadInput(answer["message"], hint=answer["hint"])
        return FetchedPhotos(**{name: tuple(answer[name]) for name in ("photos", "captions", "told")})

    def open(self, job: str, name: str) -> BufferedIOBase:
        try:
            return (self._folder / job / PHOTOS / name).open("rb")
        except OSError as error:
            raise Unreachable(f"{name} cannot be read here: {error.strerror}") from None

    def forget(self, job: str) -> None:
        shutil.rmtree(self._folder / job, ignore_errors=True)

    def kept(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []

    def _wanted(self, project: str, places: Sequence[PhotoPlace]) -> list[_Wanted]:
        if not (len(places) == 1 and places[0].is_folder):
            named = zip(file_names(places), places, strict=True)
            return [_Wanted(name=name, address=place.address, caption=place.caption) for name, place in named]
        found, size = list[_Wanted](), 0
        bucket, prefix = self._bucket(places[0].address, project)
        for key, bytes in bucket.list(prefix):
            name = key.removeprefix(prefix)
            if _is_unwanted(name):
                continue
            if not is_safe_path(name):
                raise BadInput(f"the name {printable(key)} is not possible on every system", hint="rename it")
            size += bytes
            found.append(_Wanted(name=name, address=f"{places[0].address}{name}"))
            if len(found) > self._settings.files_max or size > self._settings.bytes_max:
                most = f"{self._settings.files_max:,} files or {self._settings.bytes_max / 1e9:,.1f} GB"
                raise BadInput(f"{places[0].address} holds more than {most}", hint="name a folder with fewer photos")
        if not found:
            raise BadInput(f"there is nothing at {places[0].address}", hint="is its name right?")
        return sorted(found, key=lambda each: each.name)

    def _fetch(self, wanted: _Wanted, to: Path, project: str, left: int, check: Check, *, alone: bool) -> int:
        """Download a file and return its length in bytes. It gets its name only when it is complete."""
        here = next((path for path in (to, to.with_suffix(ZIP)) if path.is_file()), None)
        if here:
            return here.stat().st_size
        to.parent.mkdir(parents=True, exist_ok=True)
        partial = to.with_name(partial_name(to.name))
        most = left if alone else min(left, self._settings.file_bytes_max)
        bounds = {"bytes_max": max(1, most), "seconds": self._settings.file_s, "check": check}
        if wanted.address.startswith("s3://"):
            bucket, key = self._bucket(wanted.address, project)
            size = bucket.fetch(key, partial, **bounds)
        else:
            size = self._web.fetch(wanted.address, partial, **bounds)
        if _is_zip(partial) and to.suffix.lower() != ZIP:
            if not alone:
                raise BadInput(f"{to.name} is a zip, not a photo", hint="give a zip as the only address")
            to = to.with_suffix(ZIP)
        elif to.suffix.lower() != ZIP and size > self._settings.file_bytes_max:
            partial.unlink()
            most = self._settings.file_bytes_max / 1e6
            raise BadInput(f"{to.name} has {size / 1e6:,.0f} MB, more than {most:,.0f} MB", hint="make it smaller")
        partial.rename(to)
        return size

    def _bucket(self, address: str, project: str) -> tuple[ReadableBucket, str]:
        """Return the bucket and the key in it. The source is looked up each time, since an operator may have changed the sources."""
        source = source_of(address, project, self._sources, "read")
        name, _, key = address.removeprefix("s3://").partition("/")
        return self._open_bucket(source, name), key


def _is_unwanted(name: str) -> bool:
    """Return whether it is a bucket's folder marker, or a file that operating systems leave behind."""
    return not name or name.endswith("/") or any(part in UNWANTED or part.startswith("._") for part in name.split("/"))


def _is_zip(path: Path) -> bool:
    with path.open("rb") as content:
        return content.read(len(ZIP_BEGINS)) == ZIP_BEGINS
