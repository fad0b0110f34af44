"""Look at pictures of strangers: what each is, and a small copy of it; and at the captions and masks that belong to them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

ReadFile = Callable[[], Iterator[bytes]]
"""Returns the bytes of a file from its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCaption:
    """A caption file: its bytes, and the SHA-256 that they must have."""

    sha256: str
    read: ReadFile


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedPicture:
    """What a picture shows. `because` says why it cannot be used; then nothing else is known. `may_pass`: another look may find
    otherwise, as that is no fact of its content.

    `sharpness` is the variance of its Laplacian, `likeness` its difference hash, `thumbnail` a JPEG of at most 256 pixels.
    """

    because: str = ""
    may_pass: bool = False
    format: str = ""
    width: int = 0
    height: int = 0
    sharpness: float = 0.0
    likeness: str = ""
    thumbnail: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedTexts:
    """`because` says why captions or masks cannot be used ("": they can); `notes` are sentences on what may be unintended."""

    because: str
    notes: tuple[str, ...]


class PhotoInspector(Protocol):
    """Every call may raise `Unreachable`, which may pass."""

    def pictures(self, files: Mapping[str, ReadFile]) -> Mapping[str, InspectedPicture]:
        """Return what each picture is, by its SHA-256, within 65 minutes and the time to read them. One that is not in the store, or takes
        too much memory or time, cannot be used now."""
        ...

    def texts(
        self,
        photos: Mapping[str, tuple[int, int]],
        masks: Mapping[str, tuple[int, int]],
        captions: Mapping[str, StoredCaption],
    ) -> InspectedTexts:
        """Check the captions and masks of photos. Photos and masks are given with their sizes, by their paths in one folder each. A caption
        that is not in the store, or has other bytes there, is named in `because`."""
        ...
