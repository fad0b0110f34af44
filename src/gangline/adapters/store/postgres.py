"""The store on PostgreSQL, for several servers and for production."""

import logging
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, LiteralString, TypeVar, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from gangline.adapters.store.session import Session
from gangline.adapters.store.statements import migrations, refuse_newer
from gangline.core.errors import GanglineError, Unreachable
from gangline.ports.store import Row, Write

T = TypeVar("T")

PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Connection settings that detect a database that vanished without closing the connection."""
WAIT_S = 8.0
"""A request waits this long for a connection, then reports that the database does not answer."""
CLOCK_S = 10.0
"""The database's clock is read again after this long."""
SKEW_S_MAX = 5.0
TRIES_MAX = 4
MIGRATING = 0x67616E67
"""The number of the advisory lock that a migrating server holds."""
LOCK_WAIT_S = 3
"""A migration waits this long for a table, then lets other transactions continue and retries."""
OPTIONS = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off -c TimeZone=UTC"
"""Every statement uses its index, and one plan, whatever the statistics say of a table that was empty a moment ago."""

UNDONE = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.UniqueViolation,
    errors.ForeignKeyViolation,
)
"""Errors by which a concurrent transaction undid this one completely, so that a retry may succeed. A row that this one refers to may have
been deleted after it was read."""
AWAY = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)

log = logging.getLogger("gangline.store")


class PostgresStore:
    """The store. Each call uses a connection of the pool alone. Raises `Unreachable` if the database does not answer."""

    def __init__(self, url: str, *, connections_max: int = 16) -> None:
        conninfo = _conninfo(url)
        _migrate(conninfo)
        self._pool = ConnectionPool[Session](
            conninfo,
            connection_class=Session,
            min_size=1,
            max_size=connections_max,
            kwargs={"autocommit": True},
            timeout=WAIT_S,
            open=True,
        )
        self.failures = 0
        self._clock = _Clock(self._read_clock)

    @staticmethod
    def schema_of(url: str) -> int:
        """Return the version of the schema; 0 if there is none. Raises `GanglineError`."""
        conninfo = _conninfo(url)
        try:
            with psycopg.connect(conninfo, autocommit=True) as connection:
                return _version(connection)
        except psycopg.Error as error:
            raise unusable(conninfo, error) from None

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def schemas(self) -> tuple[int, int]:
        return self._ask(_version), migrations()[-1][0]

    def load(self, name: str, /, **values: object) -> list[Row]:
        return self._ask(lambda session: cast(list[Row], session.run(name, values).rows()))

    def change(self, name: str, /, **values: object) -> list[Row]:
        return self._ask(lambda session: cast(list[Row], session.run(name, values).rows()))

    def apply(self, *writes: Write) -> bool:
        return self._ask(lambda session: _apply(session, writes))

    def close(self) -> None:
        self._pool.close()

    def _ask(self, work: Callable[[Session], T]) -> T:
        """Run the work, and retry after a conflict with another transaction or a lost connection: the caller would do the same, and every
        write may be repeated."""
        for _ in range(TRIES_MAX - 1):
            try:
                return self._once(work)
            except PoolTimeout as error:
                self.failures += 1
                raise _away(error) from None
            except UNDONE:
                continue
            except AWAY:
                self._pool.check()
        try:
            return self._once(work)
        except AWAY as error:
            self.failures += 1
            raise _away(error) from None

    def _once(self, work: Callable[[Session], T]) -> T:
        session = self._pool.getconn()
        try:
            return work(session)
        finally:
            self._pool.putconn(session)  # rolls back a transaction that is still open

    def _read_clock(self) -> int:
        sql = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
        return self._ask(lambda session: session.execute(sql).fetchall())[0][0]


class _Clock:
    """The database's clock, extrapolated by this machine's monotonic clock between two readings. It never goes back."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._lock = Lock()
        self._last_ms = 0
        self._look()
        skew_s = (self._last_ms - time.time() * 1000) / 1000
        if abs(skew_s) > SKEW_S_MAX:
            log.warning(
                "this machine's clock differs from the database's by %.0f s; the server uses the database's", skew_s
            )

    def now_ms(self) -> int:
        if time.monotonic() - self._looked_s > CLOCK_S:
            self._looked_s += 1  # so that other threads do not read it too
            try:
                self._look()
            except Unreachable:
                log.warning("the database's clock cannot be read; the server continues with this machine's")
        with self._lock:
            self._last_ms = max(self._last_ms, self._offset_ms + time.monotonic_ns() // 1_000_000)
            return self._last_ms

    def _look(self) -> None:
        before_ms = time.monotonic_ns() // 1_000_000
        now_ms = self._read()
        with self._lock:
            self._looked_s = time.monotonic()
            self._offset_ms = now_ms - before_ms
            self._last_ms = max(self._last_ms, now_ms)


def _apply(session: Session, writes: Sequence[Write]) -> bool:
    if len(writes) == 1:  # one statement is a transaction by itself
        return session.run(writes[0].name, writes[0].values).changed > 0 or not writes[0].guard
    return session.transact([(write.name, write.values, write.guard) for write in writes])


def _conninfo(url: str) -> str:
    try:
        return make_conninfo(url, options=OPTIONS, application_name="gangline", **PATIENCE)
    except psycopg.ProgrammingError as error:
        raise GanglineError(
            f"the database's address is not valid: {_sentence(error)}",
            hint="write it as postgresql://USER:PASSWORD@HOST:5432/DATABASE",
        ) from None


def _migrate(conninfo: str) -> None:
    """Apply the migrations that the database lacks, one server at a time."""
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATING,))
            for number, text in migrations():
                if number > _version(connection):
                    _take_step(connection, number, text)
            refuse_newer(_version(connection), database_place(conninfo))
            connection.execute("UPDATE gangline_schema SET version = version WHERE version = 0")  # checks write access
    except psycopg.Error as error:
        raise unusable(conninfo, error) from None


def unusable(conninfo: str, error: psycopg.Error) -> GanglineError:
    return GanglineError(
        f"the database {database_place(conninfo)} cannot be used: {_sentence(error)}",
        hint="check that it is running, that user and password are right, and that the user may create tables",
    )


def _version(connection: psycopg.Connection[Any]) -> int:
    there = connection.execute("SELECT to_regclass('gangline_schema')").fetchone()
    if there == (None,):
        return 0
    found = connection.execute("SELECT MAX(version) FROM gangline_schema").fetchone()
    assert found is not None
    return found[0]


def _take_step(connection: psycopg.Connection[Any], number: int, text: str) -> None:
    """Apply one migration in one transaction. Running requests have priority."""
    done = False
    while not done:
        try:
            with connection.transaction():
                connection.execute(cast(LiteralString, f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'"))
                connection.execute(cast(LiteralString, text))
                connection.execute("CREATE TABLE IF NOT EXISTS gangline_schema (version BIGINT PRIMARY KEY)")
                connection.execute("INSERT INTO gangline_schema (version) VALUES (%s)", (number,))
            done = True
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            log.info("migration %d waits for a table that is in use", number)


def database_place(conninfo: str) -> str:
    """Return the database's name and host, without the password."""
    parts = conninfo_to_dict(conninfo)
    return f"{parts.get('dbname') or 'postgres'} at {parts.get('host') or 'localhost'}:{parts.get('port') or 5432}"


def _away(error: Exception) -> Unreachable:
    return Unreachable(f"the database does not answer: {_sentence(error)}")


def _sentence(error: Exception) -> str:
    """Return the first line of an error, where the server puts the reason."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[0].removeprefix("FATAL:").strip() if lines else type(error).__name__
