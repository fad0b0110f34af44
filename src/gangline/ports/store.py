"""The store: short reads, and guarded writes that happen together or not at all."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Row(Protocol):
    """A row by the names of its columns; `**row` and `dict(row)` work."""

    def keys(self) -> Iterable[str]: ...

    def __getitem__(self, column: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Write:
    """A named statement and its values. A `guard` must change a row, or nothing of its transaction happens."""

    name: str
    values: dict[str, Any]
    guard: bool = False


class Store(Protocol):
    def now_ms(self) -> int:
        """The time that every decision uses, in milliseconds UTC."""
        ...

    def load(self, name: str, /, **values: object) -> list[Row]:
        """The rows of a named query, as they are now."""
        ...

    def apply(self, *writes: Write) -> bool:
        """All of `writes` in one transaction, durable on return. False, and nothing changed, where a guard held it off."""
        ...

    def change(self, name: str, /, **values: object) -> list[Row]:
        """One statement that returns the rows it changed, as they are now; durable on return."""
        ...


def guard(name: str, /, **values: object) -> Write:
    return Write(name, values, guard=True)


def write(name: str, /, **values: object) -> Write:
    return Write(name, values)
