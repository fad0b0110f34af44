"""The object store: bytes under write-once keys, reached through signed URLs that expire."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stat:
    """What the store says of an object. `sha256` is None where it attests none."""

    bytes: int
    sha256: str | None


class Objects(Protocol):
    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> str:
        """A URL (or a path on this server) that takes exactly these bytes, once. Putting them again is no error."""
        ...

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> str: ...

    def stat(self, key: str) -> Stat | None:
        """None where there is no such object."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """A small object, by the server itself. Writing the same again is no error."""
        ...

    def read(self, key: str) -> bytes:
        """Raises `NotFound`."""
        ...

    def delete(self, key: str) -> None:
        """If it is gone already, so much the better."""
        ...
