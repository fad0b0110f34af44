"""A snapshot of a simulation's database as the store of a server, whose clock stands still and which nobody can change."""

import sqlite3
import threading

from gangline.adapters.store.statements import migrations, statements
from gangline.core.errors import Forbidden, Unreachable
from gangline.ports.store import Row, Write


def read_only_refusal() -> Forbidden:
    """Return the error of everything that would change a replay."""
    return Forbidden("this is a replay: nothing can be changed", hint="`gangline up` starts a server of your own")


class ReplayStore:
    """The `store` port over a snapshot in memory, for any number of threads. Once it is frozen, all writes raise `Forbidden`."""

    def __init__(self, database: bytes, ms: int) -> None:
        self._ms = ms
        self._is_frozen = False
        self._turn = threading.Lock()
        # One connection for all threads: a database in memory has a copy for each connection.
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self._connection.row_factory = sqlite3.Row
        self._connection.deserialize(database)

    @property
    def failures(self) -> int:
        return 0

    def schemas(self) -> tuple[int, int]:
        known = migrations()[-1][0]
        return known, known

    def now_ms(self) -> int:
        return self._ms

    def load(self, name: str, /, **values: object) -> list[Row]:
        return self._execute(name, values)

    def apply(self, *writes: Write) -> bool:
        """Apply the writes that prepare the snapshot for its readers. Raise `Forbidden` once it is frozen."""
        if self._is_frozen:
            raise read_only_refusal()
        for write in writes:
            self._execute(write.name, write.values)
        return True

    def change(self, name: str, /, **values: object) -> list[Row]:
        raise read_only_refusal()

    def freeze(self) -> None:
        with self._turn:
            self._connection.execute("PRAGMA query_only = ON")  # so that no query writes either
        self._is_frozen = True

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    def _execute(self, name: str, values: dict[str, object]) -> list[Row]:
        try:
            with self._turn:
                return self._connection.execute(statements()[name], values).fetchall()
        except sqlite3.ProgrammingError:  # a request whose client has left still runs
            raise Unreachable("this moment of the replay was closed", hint="ask again") from None
