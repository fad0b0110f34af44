"""Photos that users name by their address are brought into a folder of this server's, and looked at."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Protocol

from gangline.core.places.places import PhotoPlace

Check = Callable[[], None]
"""Whether it is still to go on: asked each second of a wait, it raises what ends the fetch."""


@dataclass(frozen=True, slots=True)
class Brought:
    """How far it is: so many files of so many, 0 of 0 while that is not known."""

    done: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPhotos:
    """What lies in the folder after a look: names of photos and of captions, and sentences on what is not used."""

    photos: tuple[str, ...]
    captions: tuple[str, ...]
    told: tuple[str, ...]


class Fetcher(Protocol):
    """Every call may raise `BadInput`, whose sentence is for the user and final, or `Unreachable`: later it may go well."""

    def check(self, project: str, places: Sequence[PhotoPlace]) -> None:
        """Whether these may be fetched for the project, as far as can be told without asking anybody."""
        ...

    def bring(self, job: str, project: str, places: Sequence[PhotoPlace], check: Check) -> Iterator[Brought]:
        """Fetch what is not here yet, a file a step. What came before this server was stopped is not fetched again."""
        ...

    def look(self, job: str, places: Sequence[PhotoPlace], check: Check) -> FetchedPhotos:
        """Unpack and check all that was brought."""
        ...

    def open(self, job: str, name: str) -> BufferedIOBase:
        """A photo or a caption that `look` found."""
        ...

    def forget(self, job: str) -> None:
        """Delete what was brought. If it is gone already, so much the better."""
        ...

    def kept(self) -> list[str]:
        """Jobs for which something is here."""
        ...
