"""An object store that this server itself serves: the operations that the HTTP routes of its signed URLs need."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol


class ObjectServer(Protocol):
    def check(self, method: str, key: str, what: str, expires_ms: int, signature: str, now_ms: int) -> None:
        """Raise `Denied` unless the URL was signed here for this operation and has not expired."""
        ...

    def locate(self, key: str) -> Path:
        """Return the path of an object. Raise `NotFound` if there is none."""
        ...

    async def receive(self, key: str, what: str, body: AsyncIterator[bytes]) -> None:
        """Store an upload of exactly the bytes that were signed.

        Raise `Damaged` if the bytes differ, `BadInput` if the key is taken by other bytes, `NotFound` if the upload that this is a part of
        has ended.
        """
        ...
