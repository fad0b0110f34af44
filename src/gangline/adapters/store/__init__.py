"""The store: the same SQL on SQLite and PostgreSQL."""

from pathlib import Path
from typing import TYPE_CHECKING

from gangline.adapters.store.statements import migrations
from gangline.core.errors import GanglineError

if TYPE_CHECKING:
    from gangline.adapters.store.postgres import PostgresStore
    from gangline.adapters.store.sqlite import SqliteStore


def open_store(database: str) -> "SqliteStore | PostgresStore":
    """Open `postgresql://…`, or the path of a SQLite file. Raises `GanglineError` if it cannot be used."""
    if "://" not in database:
        from gangline.adapters.store.sqlite import SqliteStore

        return SqliteStore(Path(database))
    return _postgres(database)(database)


def schema_of(database: str) -> tuple[int, int]:
    """Return the version of its schema, 0 if there is none yet, and the one that this Gangline writes. Nothing is changed.

    Raises `GanglineError` if it cannot be used.
    """
    if "://" not in database:
        from gangline.adapters.store.sqlite import SqliteStore

        found = SqliteStore.schema_of(Path(database))
    else:
        found = _postgres(database).schema_of(database)
    return found, migrations()[-1][0]


def _postgres(database: str) -> "type[PostgresStore]":
    if not database.startswith(("postgresql://", "postgres://")):
        raise GanglineError(
            f"a database at {database.split(':', 1)[0]}:// is not supported",
            hint="write it as postgresql://USER:PASSWORD@HOST:5432/DATABASE",
        )
    try:
        from gangline.adapters.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise GanglineError(f"{error.name} is not installed", hint="pip install 'gangline[postgres]'") from None
    return PostgresStore
