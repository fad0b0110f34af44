"""Backups of SQLite: one transaction reads a snapshot beside the writer; a restore is a file that gets its name at the end."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from gangline.adapters.store.backups.archive import BackupFile
from gangline.adapters.store.backups.snapshot import BATCH, FENCES, DatabaseSnapshot, refuse_strange_tables
from gangline.adapters.store.sqlite import SqliteStore
from gangline.adapters.store.statements import migrations, refuse_newer
from gangline.core.errors import Damaged, GanglineError, UserError

TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
REPLACE = "let --replace put the backup in its place, and all that is in it now is lost"


@contextmanager
def sqlite_snapshot(path: Path) -> Iterator[DatabaseSnapshot]:
    if SqliteStore.schema_of(path) == 0:
        raise UserError(f"there is no database at {path}", hint="name the server's folder with --home")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:

        def rows(table: str) -> Iterator[Sequence[Sequence[Any]]]:
            cursor = connection.execute(f"SELECT {', '.join(tables[table])} FROM {table}")  # noqa: S608 - names of our own schema
            while found := cursor.fetchmany(BATCH):
                yield found

        try:
            connection.execute("BEGIN")
            version = connection.execute("PRAGMA user_version").fetchone()[0]  # from here on it reads one moment
            made_ms = time.time_ns() // 1_000_000
            refuse_newer(version, str(path))
            tables = _tables(connection)
            yield DatabaseSnapshot(version, made_ms, tables, rows)
        except sqlite3.Error as error:
            raise GanglineError(f"the database {path} cannot be read: {error}", hint="gangline backup check") from None


def load_into_sqlite(path: Path, backup: BackupFile, *, replace: bool, publish: Callable[[], None]) -> None:
    """The caller holds the lock of the home, so that no server has the database open."""
    if path.exists() and path.stat().st_size and not replace:
        raise UserError(f"there is a database at {path}", hint=REPLACE)
    partial = path.with_name(f".{path.name}.restoring")
    _remove(partial)
    try:
        with closing(sqlite3.connect(partial, isolation_level=None)) as connection:
            _fill(connection, backup)
        publish()
        _fold(path)
        partial.replace(path)
    except (sqlite3.Error, OSError) as error:
        raise GanglineError(
            f"the backup cannot be restored to {path}: {error}", hint="check that its disk has room"
        ) from None
    finally:
        _remove(partial)


def _fill(connection: sqlite3.Connection, backup: BackupFile) -> None:
    manifest = backup.manifest
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    for number, text in migrations():
        if number <= manifest.schema:
            connection.executescript(text)
    tables = _tables(connection)
    refuse_strange_tables(backup.name, {name: of.columns for name, of in manifest.tables.items()}, tables)
    connection.execute("BEGIN")
    for table, of in manifest.tables.items():
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - what a migration put there
        places = ", ".join("?" * len(of.columns))
        insert = f"INSERT INTO {table} ({', '.join(of.columns)}) VALUES ({places})"  # noqa: S608
        for rows in backup.rows(table):
            connection.executemany(insert, rows)
    if lost := connection.execute("PRAGMA foreign_key_check").fetchone():
        raise Damaged(f"{backup.name} is damaged: a row of {lost[0]} refers to none of {lost[2]}")
    for statement in FENCES:
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.execute(f"PRAGMA user_version = {manifest.schema}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_mode = WAL")  # as a store has it; it writes what is in memory to the disk
    _sync(connection)


def _sync(connection: sqlite3.Connection) -> None:
    """Have the file on the disk before it gets its name."""
    place = connection.execute("PRAGMA database_list").fetchone()[2]
    file = os.open(place, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _fold(path: Path) -> None:
    """Take what stands beside the old file into it: a log of one database would damage another one of the same name."""
    if path.exists():
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _tables(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    names = [row[0] for row in connection.execute(TABLES)]
    return {name: tuple(row[1] for row in connection.execute(f"PRAGMA table_info({name})")) for name in names}


def damage_of_sqlite(path: Path) -> str:
    """Read the whole file, its indexes and its references."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                return found
            lost = connection.execute("PRAGMA foreign_key_check").fetchone()
            return f"a row of {lost[0]} refers to none of {lost[2]}" if lost else ""
    except sqlite3.Error as error:
        return str(error)
