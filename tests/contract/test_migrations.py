"""Forward migrations: each from the version before, with data in it, on each engine; on PostgreSQL while others write."""

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gangline.adapters.store import open_store, postgres, sqlite
from gangline.adapters.store.statements import migrations
from gangline.core.access import Role
from gangline.service.access.access import hash_of
from tests.postgres import Postgres

NUMBERS = [number for number, _ in migrations()]
CREATED = re.compile(r"CREATE TABLE (\w+)")
DROPPED = re.compile(r"DROP TABLE (\w+)")
STALL_S_MAX = 5.0

DATA = """
INSERT INTO project (id, share, usage, usage_ms, spent, reserved) VALUES ('p', 1, 0, 0, 5, 90);
INSERT INTO machine (id, pool, known_ms, failures, rest_until_ms, quarantines, quarantined_until_ms, on_trial, because)
VALUES ('m', 'default', 1, 0, 0, 0, 0, 0, '');
INSERT INTO node (id, machine, name, pool, state, because, gpu, gpu_memory_gb, trust, numerics, slots, capabilities,
                  price_micro_usd_per_hour, rented, missing, since_ms, joined_ms, seen_ms, meter_ms)
VALUES ('n', 'm', 'node', 'default', 'ready', '', '', 0, 0, '', 1, '{}', 360000, 0, 0, 1, 1, 1, 1);
INSERT INTO job (id, project, name, kind, spec, spec_hash, request, state, because, steps, save_s, priority, base, workload, slots,
                 input_bytes, checkpoint_bytes, gpu, gpu_memory_gb, pool, trust, exact, numerics, fencing, attempts_failed,
                 attempts_max, ready_ms, version, submitted_ms, queued_ms)
VALUES ('j', 'p', 'job', 'lora', '{}', 'h', NULL, 'running', '', 100, 60, 0, 'b', 'w', 1, 0, 7, '', 0, '', 0, 'preferred', '', 1, 0,
        3, 1, 2, 1, 1);
INSERT INTO attempt (id, job, node, machine, pool, gpu, gpu_memory_gb, workload, fencing, kind, committed_step, state, because,
                     slots, price_micro_usd_per_hour, from_step, step, beat_ms, started_ms)
VALUES ('a', 'j', 'n', 'm', 'default', '', 0, 'w', 1, '', 10, 'live', '', 1, 360000, 0, 12, 1, 1);
INSERT INTO lease (attempt, rank, node, fencing, slots, price_micro_usd_per_hour, started_ms, expires_ms, beat_ms, phase, step,
                   stepped_ms, reserved, downloaded_bytes, stop, stop_kind)
VALUES ('a', 0, 'n', 1, 1, 360000, 1, 50000, 1, 'training', 12, 1, 90, 0, '', '');
INSERT INTO checkpoint (id, job, attempt, step, state, because, verified, bytes, prefix, manifest, committed_ms)
VALUES ('c', 'j', 'a', 10, 'committed', '', 1, 7, 'projects/p', '{}', 1);
INSERT INTO event (job, number, at_ms, kind, attempt, node, because) VALUES ('j', 1, 1, 'submitted', NULL, NULL, 'waits');
INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) VALUES ('n', '', 'idle', 1, 2, '', '', 3);
"""
SECRETS: dict[str, tuple[Role, str]] = {
    "a user's": ("admin", "user"),
    "to join": ("join", "join"),
    "a node's": ("node", "node"),
}


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One without any table."""
    if request.param == "sqlite":
        return str(tmp_path / "db.sqlite")
    return request.getfixturevalue("database_server").make_empty_database()


@contextmanager
def knowing(last: int) -> Iterator[None]:
    """As the program of that version: later migrations are not there."""
    known = [found for found in migrations() if found[0] <= last]
    with pytest.MonkeyPatch.context() as patch:
        for engine in (sqlite, postgres):
            patch.setattr(engine, "migrations", lambda: known)
        yield


def of_version(database: str, version: int) -> None:
    """A database that the program of that version made and used."""
    with knowing(version):
        open_store(database).close()
    tokens = [
        f"INSERT INTO token (hash, role, project, node, made_ms) VALUES ('{hash_of(secret)}', '{role}', 'p', "
        f"{'NULL' if role != 'node' else repr('n')}, 1);"
        for secret, (_, role) in SECRETS.items()
    ]
    run(database, DATA + ("".join(tokens) if version < 3 else ""))


def run(database: str, script: str) -> None:
    if "://" in database:
        with psycopg.connect(database) as connection:
            connection.execute(script)  # type: ignore[arg-type]
    else:
        with closing(sqlite3.connect(database)) as connection:
            connection.executescript(script)


def rows(database: str, sql: str) -> list[tuple[Any, ...]]:
    if "://" in database:
        with psycopg.connect(database) as connection:
            return connection.execute(sql).fetchall()  # type: ignore[arg-type]
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def tables(version: int) -> list[str]:
    """Those of a version that are still there in the newest."""
    texts = [text for number, text in migrations() if number <= version]
    gone = set(DROPPED.findall("".join(text for _, text in migrations())))
    return [table for text in texts for table in CREATED.findall(text) if table not in gone]


@pytest.mark.parametrize("version", NUMBERS[:-1])
def test_what_an_older_version_wrote_is_there_in_the_newest(database: str, version: int) -> None:
    of_version(database, version)
    columns = {table: first_columns(database, table) for table in tables(version)}
    before = {table: rows(database, f"SELECT {names} FROM {table}") for table, names in columns.items()}
    open_store(database).close()
    after = {table: rows(database, f"SELECT {names} FROM {table}") for table, names in columns.items()}
    assert after == before
    assert before["lease"], "there was something to keep"


def first_columns(database: str, table: str) -> str:
    """The columns that a table has now, before it gets more."""
    if "://" in database:
        found = rows(database, f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'")
        return ", ".join(row[0] for row in found)
    return ", ".join(row[1] for row in rows(database, f"PRAGMA table_info({table})"))


def test_tokens_of_before_there_were_roles_open_what_they_opened(database: str) -> None:
    of_version(database, 2)
    store = open_store(database)
    for secret, (role, _) in SECRETS.items():
        [found] = store.load("credential", hash=hash_of(secret))
        assert found["role"] == role
        assert found["node"] == ("n" if role == "node" else None)
    store.close()


class Load:
    """Other servers at work: each thread does one thing again and again, until it fails or is told to stop."""

    def __init__(self, url: str, *works: Callable[[psycopg.Connection[Any], int], None]) -> None:
        self.done = 0
        self.slowest_s = 0.0
        self.failed: list[BaseException] = []
        self._url = url
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def go_on_for(self, more: int) -> None:
        until = self.done + more
        while self.done < until and not self.failed:
            self._stopping.wait(0.01)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[psycopg.Connection[Any], int], None]) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                for number in count(2):
                    if self._stopping.is_set():
                        return
                    began_s = time.monotonic()
                    work(connection, number)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
                    self.done += 1
        except BaseException as error:
            self.failed.append(error)


def beat(connection: psycopg.Connection[Any], number: int) -> None:
    connection.execute("UPDATE lease SET beat_ms = %s WHERE attempt = 'a'", (number,))


def note(connection: psycopg.Connection[Any], number: int) -> None:
    with connection.transaction():
        connection.execute("UPDATE job SET version = version + 1 WHERE id = 'j'")
        connection.execute("INSERT INTO event VALUES ('j', %s, 1, 'k', NULL, NULL, '')", (number,))


def look(connection: psycopg.Connection[Any], _: int) -> None:
    connection.execute("SELECT ticked_ms FROM service, job JOIN attempt ON job = job.id WHERE job.id = 'j'").fetchall()


@pytest.mark.parametrize("version", NUMBERS[:-1])
def test_who_has_not_heard_of_a_migration_waits_for_it_a_moment_and_goes_on(
    database_server: Postgres, version: int
) -> None:
    url = database_server.make_empty_database()
    of_version(url, version)
    load = Load(url, beat, note, look)
    load.go_on_for(50)
    open_store(url).close()
    load.go_on_for(50)
    load.stop()
    assert load.failed == []
    assert load.slowest_s < STALL_S_MAX
    [(events,)] = rows(url, "SELECT COUNT(*) FROM event")
    [(version_of_job,)] = rows(url, "SELECT version FROM job")
    assert events == version_of_job - 1, "each of their transactions happened, whole"


def test_numbers_of_migrations_follow_each_other() -> None:
    assert list(range(1, len(NUMBERS) + 1)) == NUMBERS
