"""Backups of a database: one file for both engines, which each of them can restore."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from gangline.adapters.store.backups.archive import BackupFile
from gangline.adapters.store.backups.snapshot import DatabaseSnapshot
from gangline.core.errors import GanglineError

log = logging.getLogger("gangline.store")


def snapshot(database: str) -> AbstractContextManager[DatabaseSnapshot]:
    """Open what a database holds at one moment, while servers write to it. Raises `GanglineError` if it cannot be read."""
    if "://" in database:
        from gangline.adapters.store.backups.postgres import postgres_snapshot

        return postgres_snapshot(database)
    from gangline.adapters.store.backups.sqlite import sqlite_snapshot

    return sqlite_snapshot(Path(database))


def load_backup(database: str, backup: BackupFile, *, replace: bool, publish: Callable[[], None]) -> None:
    """Put a backup's rows into a database that is empty, or that they replace: all or none of them.

    `publish` is called once everything was read and is right, just before the rows are there. Whatever workers held when the backup was
    made, they hold no more. Raises `GanglineError` with nothing changed.
    """
    if "://" in database:
        from gangline.adapters.store.backups.postgres import load_into_postgres

        load_into_postgres(database, backup, replace=replace, publish=publish)
        return
    from gangline.adapters.store.backups.sqlite import load_into_sqlite

    load_into_sqlite(Path(database), backup, replace=replace, publish=publish)


def count_rows(database: str) -> None:
    """Have the database count what was loaded into it, for its plans. If it cannot, it does so by itself sooner or later."""
    if "://" in database:
        from gangline.adapters.store.backups.postgres import count_rows_of_postgres

        try:
            count_rows_of_postgres(database)
        except GanglineError as error:
            log.warning("the rows are restored, but not counted yet: %s", error.message)


def integrity_of(database: str) -> str:
    """Return what is damaged in a database, in a sentence; empty if nothing is. Raises `GanglineError` if it cannot be read."""
    if "://" in database:
        return ""  # its own checksums and constraints hold there
    from gangline.adapters.store.backups.sqlite import damage_of_sqlite

    return damage_of_sqlite(Path(database))
