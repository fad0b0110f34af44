"""Deliver results to where users want them: a bucket, or a repository of the hub."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Chunks = Iterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A file to deliver; each call of `read` returns its bytes from the start."""

    path: str
    bytes: int
    sha256: str
    read: Callable[[], Chunks]


class Deliverer(Protocol):
    """Delivers results. Every call may raise `BadInput`, which is final, or `Unreachable`."""

    def check(self, project: str, address: str) -> None:
        """Raise `BadInput` if the project's results may not be delivered there, as far as that is known without a request."""
        ...

    def put(self, project: str, address: str, files: Sequence[Outgoing]) -> Iterator[tuple[Outgoing, ...]]:
        """Deliver files; yield those that have arrived. Delivering the same file again does no harm."""
        ...
