"""Encrypts the values of secrets under a key that is not in the database."""

from typing import Protocol


class Sealer(Protocol):
    def seal(self, project: str, name: str, value: str) -> str:
        """Return the value encrypted; only `open` for the same project and name returns it again."""
        ...

    def open(self, project: str, name: str, sealed: str) -> str | None:
        """Return the value; None if it was sealed under a key that is not known here, for another name, or is damaged."""
        ...

    def is_current(self, sealed: str) -> bool:
        """Return whether it was sealed under the key that `seal` uses."""
        ...

    @property
    def current(self) -> str:
        """Return the id of the key that `seal` uses. It tells nothing of the key."""
        ...

    def derive(self, key: str, *parts: str) -> bytes | None:
        """Return 32 bytes that follow from the key of this id and from the parts, and from which neither can be found; None if the key is
        not known here."""
        ...
