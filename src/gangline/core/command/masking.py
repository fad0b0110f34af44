"""Mask secrets in what a command prints, although a secret may come in pieces."""

import re
from collections.abc import Iterable

from gangline.core.access import SECRET_MIN

MASK = b"***"


class Masking:
    """Masks each value, and each line of a value that has several, if that is long enough to be one. Of values that overlap, the leftmost
    is masked, and the longest of those that begin there.

    What may be the beginning of a value is held back until it is known.
    """

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in (value, *value.splitlines()) if len(part) >= SECRET_MIN}
        self._secrets = sorted((part.encode() for part in parts), key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, self._secrets)) or rb"\b\B")
        self._held = b""

    def hides(self, text: str) -> bool:
        return self._any.search(text.encode(errors="replace")) is not None

    def feed(self, content: bytes) -> bytes:
        """Return what can be shown so far."""
        content, shown, at = self._held + content, b"", 0
        while True:
            begins = self._beginning(content, at)
            found = self._any.search(content, at)
            if found is None or begins <= found.start():
                break
            shown += content[at : found.start()] + MASK
            at = found.end()
        self._held = content[begins:]
        return shown + content[at:begins]

    def rest(self) -> bytes:
        """Return what was held back, once nothing more comes."""
        rest, self._held = self._any.sub(MASK, self._held), b""
        return rest

    def _beginning(self, content: bytes, at: int) -> int:
        """Return where, from `at` on, the content ends with the beginning of a value that is not whole; its length if nowhere."""
        return min((_beginning(content, at, secret) for secret in self._secrets), default=len(content))


def _beginning(content: bytes, at: int, secret: bytes) -> int:
    found = content.find(secret[:1], max(at, len(content) - len(secret) + 1))
    while found >= 0 and not secret.startswith(content[found:]):
        found = content.find(secret[:1], found + 1)
    return len(content) if found < 0 else found
