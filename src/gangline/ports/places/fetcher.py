"""Download photos that users name by address into a folder of this server, and check them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Protocol

from gangline.core.places.places import PhotoPlace

Check = Callable[[], None]
"""Called once a second during a download; it raises the error that ends the download."""


@dataclass(frozen=True, slots=True)
class Brought:
    """The progress: `done` files `of` all; 0 of 0 while their number is unknown."""

    done: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPhotos:
    """The contents of the folder after a check: names of photos and of captions, and sentences about files that are not used."""

    photos: tuple[str, ...]
    captions: tuple[str, ...]
    told: tuple[str, ...]


class Fetcher(Protocol):
    """Downloads photos.

    Every call may raise `BadInput`, which is final and whose sentence is for the user, or `Unreachable`, which may pass.
    """

    def check(self, project: str, places: Sequence[PhotoPlace]) -> None:
        """Raise `BadInput` if the project may not download these, as far as that is known without a request."""
        ...

    def bring(self, job: str, project: str, places: Sequence[PhotoPlace], check: Check) -> Iterator[Brought]:
        """Download the missing files, one per step. Files that arrived before this server was restarted are not downloaded again."""
        ...

    def look(self, job: str, places: Sequence[PhotoPlace], check: Check) -> FetchedPhotos:
        """Unpack and check everything that was downloaded."""
        ...

    def open(self, job: str, name: str) -> BufferedIOBase:
        """Open a photo or a caption that `look` found."""
        ...

    def forget(self, job: str) -> None:
        """Delete a job's downloads. It is no error if they are gone."""
        ...

    def kept(self) -> list[str]:
        """Return the jobs for which there are downloads."""
        ...
