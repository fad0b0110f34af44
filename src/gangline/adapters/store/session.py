"""A connection to PostgreSQL: named statements, prepared once, several of them in one round trip.

It uses libpq as psycopg wraps it, because psycopg's cursors cost the server six times the CPU for such small statements
(`benchmarks/queue.py` prints both).
"""

import re
import select
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from gangline.adapters.store.statements import statements

PARAMETER = re.compile(r"(?<!:):(\w+)")
HELD_OFF = errors.DivisionByZero
"""The error of a guarded statement that changed no row: it divides one by the number of rows."""
FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)


class Session(psycopg.Connection[Any]):
    """A connection that runs statements by their names."""

    def __init__(self, pgconn: PGconn, *arguments: Any) -> None:
        super().__init__(pgconn, *arguments)
        self.prepared = set[bytes]()

    def run(self, name: str, values: Mapping[str, object]) -> "Executed":
        """Run one statement, which is a transaction by itself."""
        statement = self._prepared_as(name, guarded=False)
        result = self.pgconn.exec_prepared(statement.key, statement.encode(values))  # type: ignore[arg-type]
        return Executed(self._checked(result))

    def transact(self, calls: Sequence[tuple[str, Mapping[str, object], bool]]) -> bool:
        """Run a transaction in one round trip: statements, their values, and whether each must change a row. If one of those changes none,
        it fails at once, so that later statements take no lock; everything is rolled back and False returned."""
        sent = [(self._prepared_as(name, guarded), values) for name, values, guarded in calls]
        results = self.send(
            b"BEGIN", *((statement.key, statement.encode(values)) for statement, values in sent), b"COMMIT"
        )
        for result in results:
            if result.status in FAILED:
                lost = self._error(result)
                self.send(b"ROLLBACK")
                if isinstance(lost, HELD_OFF):
                    return False
                raise lost
        return True

    def send(self, *commands: "bytes | tuple[bytes, list[bytes | None]]") -> list[PGresult]:
        """Send several commands, or prepared statements with their values, in one round trip. None runs after a failure."""
        connection = self.pgconn
        connection.enter_pipeline_mode()
        for command in commands:
            if isinstance(command, bytes):
                connection.send_query_params(command, None)
            else:
                connection.send_query_prepared(*command)  # type: ignore[arg-type]
        connection.pipeline_sync()
        results = self._results()
        connection.exit_pipeline_mode()
        return results

    def _prepared_as(self, name: str, guarded: bool) -> "_Statement":
        statement = _Statement.of(name, guarded)
        if statement.key not in self.prepared:
            self._checked(self.pgconn.prepare(statement.key, statement.text))
            self.prepared.add(statement.key)
        return statement

    def _checked(self, result: PGresult) -> PGresult:
        if result.status in FAILED:
            raise self._error(result)
        return result

    def _error(self, result: PGresult) -> psycopg.Error:
        """Return the error of a result; a lost connection has no SQLSTATE."""
        if result.error_field(DiagnosticField.SQLSTATE) is None:
            return psycopg.OperationalError(result.get_error_message())
        return errors.error_from_result(result)

    def _results(self) -> list[PGresult]:
        """Return the result of each statement that was sent, up to the sync mark."""
        connection, found = self.pgconn, list[PGresult]()
        self._wait(lambda: connection.flush() != 0, select.POLLIN | select.POLLOUT)
        while True:
            self._wait(connection.is_busy, select.POLLIN)
            result = connection.get_result()
            if result is None:
                if connection.status == ConnStatus.BAD:
                    raise psycopg.OperationalError("the connection is lost")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return found
            else:
                found.append(result)

    def _wait(self, not_yet: Callable[[], bool | int], events: int) -> None:
        connection = self.pgconn
        while not_yet():
            poll = select.poll()
            poll.register(connection.socket, events)
            poll.poll()
            connection.consume_input()


@dataclass(frozen=True, slots=True)
class Executed:
    """The result of a statement."""

    result: PGresult

    @property
    def changed(self) -> int:
        """Return the number of rows that it changed."""
        return self.result.command_tuples or 0

    def rows(self) -> list[dict[str, Any]]:
        names = [self.result.fname(place).decode() for place in range(self.result.nfields)]  # type: ignore[union-attr]
        reader = Transformer()  # of no connection: text is UTF-8, as `_Statement.encode` wrote it
        reader.set_pgresult(self.result)
        return reader.load_rows(0, self.result.ntuples, lambda row: dict(zip(names, row, strict=False)))


@dataclass(frozen=True, slots=True)
class _Statement:
    """A prepared statement. `text` has `$1` for the first of `parameters`, and so on."""

    key: bytes
    text: bytes
    parameters: tuple[str, ...]

    @staticmethod
    @cache
    def of(name: str, guarded: bool) -> "_Statement":
        text = statements()[name]
        names = tuple(dict.fromkeys(PARAMETER.findall(text)))
        numbered = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
        if guarded:
            numbered = f"WITH changed AS ({numbered} RETURNING 1) SELECT 1 / COUNT(*) FROM changed"  # noqa: S608 - our own text
        return _Statement(f"{name}{'!' if guarded else ''}".encode(), numbered.encode(), names)

    def encode(self, values: Mapping[str, object]) -> list[bytes | None]:
        """Return the values as text. A zero byte, which PostgreSQL's text cannot hold, becomes U+FFFD."""
        return [
            None if (value := values[name]) is None else str(value).encode().replace(b"\0", b"\xef\xbf\xbd")
            for name in self.parameters
        ]
