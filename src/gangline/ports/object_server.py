"""An object store that this server itself serves: what the HTTP route of its signed URLs needs."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol


class ObjectServer(Protocol):
    def check(self, method: str, key: str, what: str, expires_ms: int, signature: str, now_ms: int) -> None:
        """Raises `Denied` unless the URL was signed here for this and has not expired."""
        ...

    def locate(self, key: str) -> Path:
        """Raises `NotFound`."""
        ...

    async def receive(self, key: str, what: str, body: AsyncIterator[bytes]) -> None:
        """Raises `Damaged` where the bytes are not those that were signed for, `BadInput` where the key is taken, `NotFound` where
        the upload that they are a part of has ended."""
        ...
