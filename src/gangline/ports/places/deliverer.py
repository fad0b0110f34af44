"""Results are put where users want them: in a bucket, or a repository of the hub."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Chunks = Iterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A file to deliver; `read` gives its bytes from the start, each time."""

    path: str
    bytes: int
    sha256: str
    read: Callable[[], Chunks]


class Deliverer(Protocol):
    """Every call may raise `BadInput`, which is final, or `Unreachable`."""

    def check(self, project: str, address: str) -> None:
        """Whether results of the project may be put there, as far as can be told without asking anybody."""
        ...

    def put(self, project: str, address: str, files: Sequence[Outgoing]) -> Iterator[tuple[Outgoing, ...]]:
        """Put these there; yields those that have arrived. To put the same again is no harm."""
        ...
