"""The object store: bytes under write-once keys, reached through signed URLs that expire.

A file that goes up in parts becomes an object only when this server completes its upload; until then, and after it was
aborted or completed, the URLs of its parts reach nothing that anybody reads. Every call but the signing ones may raise
`Unreachable`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gangline.core.files import Signed


@dataclass(frozen=True, slots=True)
class Stat:
    """What the store says of an object. `sha256` is what it attests (see `attestations`); None where it attests nothing."""

    bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A part of an upload, as it was declared or as the store has it; then `sha256` is None where the store does not say."""

    bytes: int
    sha256: str | None

    def is_as(self, declared: "UploadPart") -> bool:
        """A store that says nothing has checked it when it came, or cannot."""
        return self.bytes == declared.bytes and self.sha256 in (None, declared.sha256)


class Objects(Protocol):
    @property
    def creates_only(self) -> bool:
        """Whether a name that is taken keeps its bytes, whoever writes: of two who `write` it, one is refused."""
        ...

    def in_parts(self, bytes: int) -> bool:
        """Whether a file of this length goes up in parts here: a long one, and any where a PUT could change what is there."""
        ...

    def sign_put(self, key: str, *, bytes: int, sha256: str, now_ms: int, seconds: float) -> Signed:
        """A request that puts exactly these bytes, once. Again it is no error, or answered 412 and changes nothing."""
        ...

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> Signed: ...

    def begin(self, key: str) -> str:
        """The id of a new upload in parts."""
        ...

    def sign_part(self, key: str, upload: str, number: int, part: UploadPart, *, now_ms: int, seconds: float) -> Signed:
        """A request that puts exactly this as the part `number` (from 1). Again it is no error, while the upload is open."""
        ...

    def put_part(self, key: str, upload: str, number: int, content: bytes) -> None:
        """A part (from 1), put by the server itself. Raises `NotFound` where the upload has ended."""
        ...

    def parts(self, key: str, upload: str) -> Mapping[int, UploadPart] | None:
        """What has come of an open upload, by number; None where there is none such."""
        ...

    def complete(self, key: str, upload: str, parts: Sequence[UploadPart]) -> None:
        """Make an object of just these parts. Where one is missing or not what was declared, the upload has ended, or the key is
        taken, nothing changes: `stat` says what is there."""
        ...

    def abort(self, key: str, upload: str) -> None:
        """If it is gone already, so much the better."""
        ...

    def uploads(self, key: str) -> list[str]:
        """The ids of the open uploads of this very key."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """The keys below the folder `prefix`; all keys, where it is empty."""
        ...

    def stat(self, key: str) -> Stat | None:
        """None where there is no such object."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """A small object, by the server itself. Writing the same again is no error; other bytes are `BadInput`."""
        ...

    def read(self, key: str) -> bytes:
        """Raises `NotFound`."""
        ...

    def chunks(self, key: str) -> Iterator[bytes]:
        """All of it, a piece at a time. Raises `NotFound`, before or after the first piece."""
        ...

    def read_back(self, key: str) -> str:
        """The SHA-256 of all that lies there, read anew whatever its length. Raises `NotFound`."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Those that are gone already, so much the better."""
        ...
