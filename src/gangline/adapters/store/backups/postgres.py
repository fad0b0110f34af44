"""Backups of PostgreSQL: a snapshot of one transaction; a restore is one transaction, too."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, cast

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import DependentObjectsStillExist

from gangline.adapters.store.backups.archive import BackupFile
from gangline.adapters.store.backups.snapshot import (
    BATCH,
    FENCES,
    DatabaseSnapshot,
    parents_first,
    refuse_strange_tables,
)
from gangline.adapters.store.postgres import MIGRATING, PATIENCE, PostgresStore, database_place, unusable
from gangline.adapters.store.statements import migrations, refuse_newer
from gangline.core.errors import UserError

VERSIONS = "gangline_schema"
VERSION_AND_TIME = """
SELECT MAX(version), CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) FROM gangline_schema
"""
ADD_VERSION = "INSERT INTO gangline_schema (version) VALUES (%s)"
CREATED = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
COLUMNS = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = ANY(%s) ORDER BY table_name, ordinal_position
"""
REFERENCES = """
SELECT DISTINCT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND connamespace = current_schema()::regnamespace
"""
SERVERS = """
SELECT COUNT(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'gangline' AND pid <> pg_backend_pid()
"""
LOOKS = 20
REPLACE = "let --replace put the backup in its place, and all that Gangline has there now is lost"

Connection = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def postgres_snapshot(url: str) -> Iterator[DatabaseSnapshot]:
    if PostgresStore.schema_of(url) == 0:
        raise UserError(f"there is nothing of Gangline in the database {database_place(url)}")
    with _connected(url) as connection:

        def rows(table: str) -> Iterator[Sequence[Sequence[Any]]]:
            with connection.cursor("backup") as cursor:
                cursor.execute(cast(LiteralString, f"SELECT {', '.join(tables[table])} FROM {table}"))  # noqa: S608 - our own names
                while found := cursor.fetchmany(BATCH):
                    yield found

        tables = _hold_tables(connection)
        version, made_ms = connection.execute(VERSION_AND_TIME).fetchone() or (0, 0)
        refuse_newer(version, database_place(url))
        yield DatabaseSnapshot(version, made_ms, tables, rows)


def _hold_tables(connection: Connection) -> dict[str, tuple[str, ...]]:
    """Begin the transaction that reads, with a lock on each table before its snapshot is taken, and return the tables with their columns.

    To an older snapshot a table that a migrating server makes again would be empty. Such a server waits until the backup is made.
    """
    names = tuple[str, ...]()
    while True:
        if names:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            locked = ", ".join((VERSIONS, *names))
            connection.execute(cast(LiteralString, f"LOCK TABLE {locked} IN ACCESS SHARE MODE"))
        tables = _tables(connection)
        if tuple(tables) == names:
            return tables
        names = tuple(tables)
        connection.rollback()


def load_into_postgres(url: str, backup: BackupFile, *, replace: bool, publish: Callable[[], None]) -> None:
    with _connected(url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,))
        if connection.execute("SELECT to_regclass(%s)", (VERSIONS,)).fetchone() != (None,):
            _make_room(connection, url, replace=replace)
        _fill(connection, backup)
        publish()


def count_rows_of_postgres(url: str) -> None:
    with _connected(url) as connection:
        connection.execute(cast(LiteralString, f"ANALYZE {', '.join(_tables(connection))}"))


def _make_room(connection: Connection, url: str, *, replace: bool) -> None:
    place = database_place(url)
    version, _ = connection.execute(VERSION_AND_TIME).fetchone() or (0, 0)
    known = migrations()[-1][0]
    if version > known:
        raise UserError(
            f"the database {place} was written by a newer Gangline (schema {version}; this one knows up to {known}), "
            "whose tables this one does not all know",
            hint="restore into an empty database",
        )
    if not replace:
        raise UserError(f"the database {place} is not empty", hint=REPLACE)
    _refuse_servers(connection, url)
    try:
        connection.execute(cast(LiteralString, f"DROP TABLE IF EXISTS {', '.join((*_names(), VERSIONS))}"))
    except DependentObjectsStillExist as error:
        what = (error.diag.message_detail or str(error)).splitlines()[0]
        raise UserError(
            f"something that is not Gangline's depends on its tables in the database {place}: {what}",
            hint="drop that first, or restore into an empty database",
        ) from None


def _refuse_servers(connection: Connection, url: str) -> None:
    """Raise `UserError` where a server is connected, and stays so: one that was just stopped is still listed for a moment."""
    for _ in range(LOOKS):
        if connection.execute(SERVERS).fetchone() == (0,):
            return
        connection.execute("SELECT pg_stat_clear_snapshot(), pg_sleep(0.1)")
    raise UserError(f"a server is connected to the database {database_place(url)}", hint="stop all servers first")


def _fill(connection: Connection, backup: BackupFile) -> None:
    manifest = backup.manifest
    connection.execute(cast(LiteralString, f"CREATE TABLE {VERSIONS} (version BIGINT PRIMARY KEY)"))
    for number, text in migrations():
        if number <= manifest.schema:
            connection.execute(cast(LiteralString, text))
            connection.execute(cast(LiteralString, ADD_VERSION), (number,))
    tables = _tables(connection)
    refuse_strange_tables(backup.name, {name: of.columns for name, of in manifest.tables.items()}, tables)
    references = {name: set[str]() for name in tables}
    for table, other in connection.execute(cast(LiteralString, REFERENCES)):
        if table in tables and other in tables:  # the schema may have tables of other programs
            references[table].add(other)
    ordered = parents_first(references)
    for table in reversed(ordered):  # what a migration put there
        connection.execute(cast(LiteralString, f"DELETE FROM {table}"))  # noqa: S608
    for table in ordered:
        _copy(connection, backup, table)
    for statement in FENCES:
        connection.execute(cast(LiteralString, statement))


def _copy(connection: Connection, backup: BackupFile, table: str) -> None:
    columns = ", ".join(backup.manifest.tables[table].columns)
    into = cast(LiteralString, f"COPY {table} ({columns}) FROM STDIN")
    with connection.cursor() as cursor, cursor.copy(into) as copy:
        for rows in backup.rows(table):
            copy.write("".join(map(_line, rows)))


def _line(row: Sequence[Any]) -> str:
    return "\t".join(map(_value, row)) + "\n"


def _value(value: Any) -> str:
    """Write a value as COPY takes it. A zero byte, which PostgreSQL's text cannot hold, becomes U+FFFD, as a store writes it."""
    if value is None:
        return "\\N"
    if not isinstance(value, str):
        return repr(value)
    return value.translate(ESCAPED) if SPECIAL.search(value) else value


SPECIAL = re.compile(r"[\\\t\n\r\0]")
ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\ufffd"})


def _names() -> list[str]:
    return [name for _, text in migrations() for name in CREATED.findall(text)]


def _tables(connection: Connection) -> dict[str, tuple[str, ...]]:
    """Return Gangline's tables with their columns: a database may have others."""
    found: dict[str, tuple[str, ...]] = {}
    for table, column in connection.execute(cast(LiteralString, COLUMNS), (_names(),)):
        found[table] = (*found.get(table, ()), column)
    return found


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    """Yield a connection in one transaction. It is no server's, so it may read tables as a whole."""
    try:
        with psycopg.connect(make_conninfo(url, application_name="gangline backup", **PATIENCE)) as connection:
            yield connection
    except psycopg.Error as error:
        raise unusable(url, error) from None
