"""The store on SQLite: embedded, in WAL mode, one writer at a time."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from gangline.adapters.store.statements import migrations, refuse_newer, statements
from gangline.core.errors import GanglineError, Unreachable
from gangline.ports.store import Row, Write

BUSY_S = 30
AWAY = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
}
"""Errors of the machine at the moment, not of the statement."""

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
RESTORE = (
    "stop the server, restore the file from a backup and delete the -wal and -shm files beside it: what was recorded since is lost "
    "(jobs, checkpoints, bills), the files in store/ stay; without a backup `sqlite3 FILE .recover` may save a part"
)


class SqliteStore:
    """The store. Each thread has a connection for reading and never waits for the writer; `synchronous = FULL` makes a commit durable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._writing = threading.Lock()
        self._opened: list[sqlite3.Connection] = []
        self.failures = 0
        self._migrate()

    @staticmethod
    def schema_of(path: Path) -> int:
        """Return the version of the schema of a file that may be in use; 0 if it does not exist. Raises `GanglineError`."""
        if not path.exists():
            return 0
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if damage != "ok":
                    raise GanglineError(f"the database file {path} is damaged: {damage}", hint=RESTORE)
                return connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            hint = RESTORE if _is_damage(error) else "check that this user may read it"
            raise GanglineError(f"the database {path} cannot be read: {error}", hint=hint) from None

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def schemas(self) -> tuple[int, int]:
        try:
            found = self._connection().execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise self._meaning(error) from None
        return found, migrations()[-1][0]

    def load(self, name: str, /, **values: object) -> list[Row]:
        try:
            return self._connection().execute(statements()[name], values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._meaning(error) from None

    def apply(self, *writes: Write) -> bool:
        try:
            return self._apply(writes)
        except sqlite3.DatabaseError as error:
            raise self._meaning(error) from None

    def _apply(self, writes: tuple[Write, ...]) -> bool:
        with self._writing:
            connection = self._connection()
            if len(writes) == 1:  # one statement is a transaction by itself
                changed = connection.execute(statements()[writes[0].name], writes[0].values).rowcount
                return changed > 0 or not writes[0].guard
            connection.execute("BEGIN IMMEDIATE")
            try:
                for write in writes:
                    changed = connection.execute(statements()[write.name], write.values).rowcount
                    if write.guard and changed == 0:
                        connection.execute("ROLLBACK")
                        return False
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return True

    def change(self, name: str, /, **values: object) -> list[Row]:
        try:
            with self._writing:
                return self._connection().execute(statements()[name], values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._meaning(error) from None

    def close(self) -> None:
        for connection in self._opened:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            self._local.connection = self._open()
        return self._local.connection

    def _open(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=BUSY_S, check_same_thread=False, cached_statements=256
            )
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise GanglineError(
                f"the database {self._path} cannot be opened: {error}",
                hint=RESTORE if _is_damage(error) else "check that its folder exists and is writable",
            ) from None
        self._opened.append(connection)
        return connection

    def _migrate(self) -> None:
        connection = self._connection()
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            refuse_newer(version, str(self._path))
            for number, text in migrations():
                if number > version:
                    connection.executescript(f"BEGIN IMMEDIATE; {text}; PRAGMA user_version = {number}; COMMIT;")
        except sqlite3.DatabaseError as error:
            raise self._meaning(error) from None

    def _meaning(self, error: sqlite3.DatabaseError) -> Exception:
        if _is_damage(error) or _code(error) in AWAY:
            self.failures += 1
        if _is_damage(error):
            return Unreachable(f"the database file {self._path} is damaged: {error}", hint=RESTORE)
        if _code(error) in AWAY:
            return Unreachable(
                f"the database cannot be used: {error}", hint="check whether its disk is full or read-only"
            )
        return error


def _is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in DAMAGED


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's error code; 0 for an error of Python's module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
