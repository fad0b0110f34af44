"""The SQL store: short reads, and guarded writes that are applied together or not at all."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Row(Protocol):
    """A row, indexed by column names; `**row` and `dict(row)` work."""

    def keys(self) -> Iterable[str]: ...

    def __getitem__(self, column: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Write:
    """A named statement and its values. A `guard` must change a row, or its complete transaction is rolled back."""

    name: str
    values: dict[str, Any]
    guard: bool = False


class StoreReader(Protocol):
    def load(self, name: str, /, **values: object) -> list[Row]:
        """Return the current rows of a named query."""
        ...


class Store(StoreReader, Protocol):
    @property
    def failures(self) -> int:
        """Return how many statements failed since the store was opened because the database did not answer or could not be used."""
        ...

    def schemas(self) -> tuple[int, int]:
        """Return the version of the database's schema, read now, and the one that this program writes. Raise `Unreachable`."""
        ...

    def now_ms(self) -> int:
        """Return the time in milliseconds UTC; every decision uses this clock."""
        ...

    def apply(self, *writes: Write) -> bool:
        """Apply all of `writes` in one transaction, durable on return. Return False, with nothing changed, if a guard changed no row."""
        ...

    def change(self, name: str, /, **values: object) -> list[Row]:
        """Execute one statement and return the rows that it changed; durable on return."""
        ...


def guard(name: str, /, **values: object) -> Write:
    return Write(name, values, guard=True)


def write(name: str, /, **values: object) -> Write:
    return Write(name, values)
