"""Run the real store in memory and in virtual time: it restarts, its server is killed, and others act between a load and a write."""

from collections.abc import Callable
from pathlib import Path

from gangline.adapters.store.sqlite import SqliteStore
from gangline.core.errors import Unreachable
from gangline.ports.store import Row, Write
from gangline.sim.world import World


class ServerKilled(BaseException):
    """The death of the server's process during a request. It is a `BaseException`, so that no `except Exception` of the service sees it."""


class SimStore(SqliteStore):
    """A store that can fail. It calls `meanwhile` before each transaction, in which others may act, and `applied` after each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.down_until_ms = 0
        self.kill_in: int | None = None
        self.applied: Callable[[tuple[Write, ...]], None] = lambda _: None
        self.meanwhile: Callable[[tuple[Write, ...]], None] = lambda _: None
        super().__init__(Path(":memory:"))

    def now_ms(self) -> int:
        return self._world.now_ms

    def load(self, name: str, /, **values: object) -> list[Row]:
        self._perhaps_die()
        return super().load(name, **values)

    def apply(self, *writes: Write) -> bool:
        self._before(writes)
        done = super().apply(*writes)
        self._after(writes if done else ())
        return done

    def change(self, name: str, /, **values: object) -> list[Row]:
        writes = (Write(name, values),)
        self._before(writes)
        rows = super().change(name, **values)
        self._after(writes if rows else ())
        return rows

    def look(self, sql: str, *values: object) -> list[tuple]:
        """Run a query for the checks, which faults do not affect."""
        return [tuple(row) for row in self._connection().execute(sql, values)]

    def serialize(self) -> bytes:
        """Return the database as a file of SQLite has it. No transaction may be open."""
        return self._connection().serialize()

    def _before(self, writes: tuple[Write, ...]) -> None:
        self.meanwhile(writes)
        self._perhaps_die()

    def _after(self, writes: tuple[Write, ...]) -> None:
        if writes:
            self._world.note("+".join(write.name for write in writes))
            self.applied(writes)
        self._perhaps_die()

    def _perhaps_die(self) -> None:
        if self.down_until_ms > self._world.now_ms:
            raise Unreachable("the database is restarting")
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.kill_in = None
                raise ServerKilled


class FaultlessReader:
    """Read the store of a simulation for its report, whatever faults are due."""

    def __init__(self, store: SimStore) -> None:
        self._store = store

    def load(self, name: str, /, **values: object) -> list[Row]:
        return SqliteStore.load(self._store, name, **values)
