"""The object store: bytes under write-once keys, accessed by signed URLs that expire.

A file that is uploaded in parts becomes an object only when this server completes the upload. Until then, and after it was aborted or
completed, the URLs of its parts reach nothing that anybody reads. Every call except the signing ones may raise `Unreachable`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gangline.core.files import Signed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stat:
    """The store's record of an object. `sha256` is the checksum that it attests (see `attestations`), or None if it attests none."""

    bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A part of an upload, as it was declared, or as the store has it; then `sha256` is None if the store does not return it."""

    bytes: int
    sha256: str | None

    def is_as(self, declared: "UploadPart") -> bool:
        """Return whether this part is the declared one. A store without a checksum has verified the part on arrival, or cannot."""
        return self.bytes == declared.bytes and self.sha256 in (None, declared.sha256)


class Objects(Protocol):
    @property
    def creates_only(self) -> bool:
        """Return whether a key that is taken keeps its bytes, whoever writes: of two concurrent calls of `write`, one is refused."""
        ...

    def at_once(self, asks: Iterable[Callable[[], T]]) -> list[T]:
        """Call what makes requests of this store, several at a time if it is far away. Return the answers in order."""
        ...

    def in_parts(self, bytes: int) -> bool:
        """Return whether a file of this length is uploaded in parts: a long one, and any if a PUT could overwrite an object."""
        ...

    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> Signed:
        """Return a request that uploads exactly these bytes, once. Repeating it is no error, or is answered 412, and changes nothing."""
        ...

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> Signed: ...

    def begin(self, key: str) -> str:
        """Begin an upload in parts and return its id."""
        ...

    def sign_part(self, key: str, upload: str, number: int, part: UploadPart, *, now_ms: int, seconds: float) -> Signed:
        """Return a request that uploads exactly this as part `number` (from 1). Repeating it is no error while the upload is open."""
        ...

    def put_part(self, key: str, upload: str, number: int, content: bytes) -> None:
        """Upload a part (numbered from 1) from the server itself. Raise `NotFound` if the upload has ended."""
        ...

    def parts(self, key: str, upload: str) -> Mapping[int, UploadPart] | None:
        """Return the parts of an open upload that have arrived, by number; None if there is no such upload."""
        ...

    def complete(self, key: str, upload: str, parts: Sequence[UploadPart]) -> None:
        """Join exactly these parts into an object.

        If one is missing or differs from its declaration, the upload has ended, or the key is taken, nothing changes: `stat` shows what is
        there.
        """
        ...

    def abort(self, key: str, upload: str) -> None:
        """Abort an upload. It is no error if it is gone."""
        ...

    def uploads(self, key: str) -> list[str]:
        """Return the ids of the open uploads of exactly this key."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the keys below the folder `prefix`; all keys if it is empty."""
        ...

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the same keys, each with the length of its object."""
        ...

    def stat(self, key: str) -> Stat | None:
        """Return the store's record of an object; None if there is none."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Write a small object from the server itself. Writing the same bytes again is no error; for other bytes, raise `BadInput`."""
        ...

    def read(self, key: str) -> bytes:
        """Return the content of an object. Raise `NotFound` if there is none."""
        ...

    def chunks(self, key: str) -> Iterator[bytes]:
        """Yield the content of an object piece by piece. Raise `NotFound`, before or after the first piece."""
        ...

    def read_back(self, key: str) -> str:
        """Read an object completely and return its SHA-256. Raise `NotFound` if there is none."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. It is no error if some are gone."""
        ...
