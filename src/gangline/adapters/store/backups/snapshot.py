"""What both engines share: tables and their rows, and what a restore changes so that nobody holds what was held before."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from gangline.core.errors import Damaged

BATCH = 1000
"""Rows that are read, written and inserted at a time."""
FENCES = (
    "UPDATE attempt SET fencing = fencing + 1000000 WHERE EXISTS "
    "(SELECT 1 FROM job WHERE job.id = attempt.job AND job.fencing = attempt.fencing AND job.ended_ms IS NULL)",
    "UPDATE job SET fencing = fencing + 1000000 WHERE fencing > 0 AND ended_ms IS NULL",
    "UPDATE lease SET fencing = fencing + 1000000",
    "UPDATE project SET facts = facts + 1000000",
    "UPDATE service SET ticker = '', turn_ends_ms = 0",
    "DELETE FROM session",
)
"""What a restore changes before anybody sees the rows: leases with another fencing number than any worker knows, facts that continue behind
those that readers saw, no turn of a server that is gone, and no session of the page. Numbers jump so far that none which was given after
the backup was made is given again. A job's number stays that of its newest attempt, which is how that one is found."""


@dataclass(frozen=True, slots=True)
class DatabaseSnapshot:
    """A database at one moment, `made_ms` by its own clock: its schema, the columns of each table, and its rows in parts."""

    schema: int
    made_ms: int
    tables: Mapping[str, tuple[str, ...]]
    rows: Callable[[str], Iterator[Sequence[Sequence[Any]]]]


def parents_first(references: Mapping[str, set[str]]) -> list[str]:
    """Return tables in an order in which each comes after those that it refers to."""
    known = {table: {other for other in others if other != table} for table, others in references.items()}
    return list(TopologicalSorter(known).static_order())


def refuse_strange_tables(
    name: str, backed_up: Mapping[str, tuple[str, ...]], here: Mapping[str, tuple[str, ...]]
) -> None:
    """Raise `Damaged` unless a backup has the tables and columns of its schema."""
    if {table: set(columns) for table, columns in backed_up.items()} != {
        table: set(columns) for table, columns in here.items()
    }:
        raise Damaged(f"{name} is damaged: its tables are not those of its schema", hint="use another backup")
