"""What every store promises, on each engine."""

import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gangline.adapters.store import open_store
from gangline.adapters.store.postgres import OPTIONS
from gangline.adapters.store.session import PARAMETER, _Statement
from gangline.adapters.store.sqlite import SqliteStore
from gangline.adapters.store.statements import queries, split_statements, statements
from gangline.core.errors import GanglineError, Unreachable
from gangline.ports.store import Store, guard, write
from tests.postgres import Postgres

JOB = {
    "project": "p",
    "name": "n",
    "kind": "lora",
    "wanted": "lora",
    "spec": '{"attempts_max": 3}',
    "spec_hash": "h",
    "request": None,
    "because": "",
    "steps": 3,
    "save_s": 60,
    "priority": 0,
    "base": "files:b",
    "workload": "w",
    "slots": 1,
    "input_bytes": 0,
    "gpu": "",
    "gpu_memory_gb": 0,
    "pool": "",
    "trust": 0,
    "exact": "preferred",
    "attempts_max": 3,
    "owner": None,
    "fingerprint": None,
    "fetching": 0,
    "now": 1,
}
NODE = {
    "machine": "m",
    "name": "n",
    "pool": "p",
    "state": "ready",
    "because": "",
    "gpu": "",
    "gpu_memory_gb": 0,
    "numerics": "",
    "slots": 1,
    "capabilities": "{}",
    "kinds": ",lora,",
    "problems": "{}",
    "proof_failed": 0,
    "trust": 0,
    "price_known": 1,
    "join_token": None,
    "price_micro_usd_per_hour": 0,
    "now": 1,
}
ATTEMPT = {
    "job": "j",
    "node": "n",
    "machine": "m",
    "pool": "p",
    "gpu": "",
    "gpu_memory_gb": 0,
    "because": "",
    "slots": 1,
    "price_micro_usd_per_hour": 0,
    "price_known": 1,
    "from_step": 0,
    "now": 1,
}
HOLD = {"attempt": "a", "rank": 0, "node": "n", "fencing": 1}
LEASE = HOLD | {"slots": 1, "price_micro_usd_per_hour": 7, "expires_ms": 50, "from_step": 0, "reserved": 3, "now": 5}
BEAT = {
    "phase": "training",
    "step": 5,
    "loss": 0.5,
    "seconds_per_step": 1.0,
    "memory_bytes": None,
    "training_ms": 2,
    "now": 9,
    "expires_ms": 60,
}
LINES_MAX = 350
USERS = ("service/**/*.py", "sim/*.py", "api/app.py")


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = open_store(database)
    yield store
    store.close()


def add_lease(store: Store) -> None:
    store.apply(write("add_job", id="j", **JOB), write("add_node", id="n", **NODE))
    store.apply(write("add_attempt", id="a", fencing=1, **ATTEMPT), guard("add_lease", **LEASE))


def test_every_statement_is_one_that_sqlite_understands(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "db.sqlite").close()
    connection = sqlite3.connect(tmp_path / "db.sqlite")
    for name, text in statements().items():
        values = dict.fromkeys(PARAMETER.findall(text), 0)
        assert connection.execute(f"EXPLAIN {text}", values).fetchall(), name


def test_every_statement_is_one_that_postgres_understands(database_server: Postgres) -> None:
    with psycopg.connect(database_server.make_database(), autocommit=True) as connection:
        for name in statements():
            connection.execute(b"PREPARE %b AS %b" % (name.encode(), _Statement.of(name, guarded=False).text))


def test_the_paces_of_all_work_are_those_of_each_workload_and_class(store: Store) -> None:
    store.apply(write("add_node", id="n", **NODE | {"machine": "m0"}))
    for job, workload in (("j", "w"), ("k", "v")):
        store.apply(write("add_job", id=job, **JOB | {"workload": workload}))
        store.apply(write("add_attempt", id=job, fencing=1, **ATTEMPT | {"job": job}))
    for workload, gpu in (("w", ATTEMPT["gpu"]), ("v", ATTEMPT["gpu"]), ("w", "another"), ("idle", ATTEMPT["gpu"])):
        for number, seconds in enumerate((1.0, None, 2.0, 3.0)):
            known = {"workload": workload, "gpu": gpu, "machine": f"m{number}", "now": 0}
            store.apply(write("set_pace", seconds_per_step=seconds, **known))
    for limit in (2, 9):
        rows = [dict(row) for row in store.load("paces_at_work", limit=limit)]
        assert {(row.pop("workload"), row.pop("gpu")) for row in rows} == {(each, ATTEMPT["gpu"]) for each in "wv"}
        one = [dict(row) for row in store.load("paces", workload="w", gpu=ATTEMPT["gpu"], limit=limit)]
        assert [bool(row["working"]) for row in one] == [True, False, False][:limit]
        assert sorted(rows, key=str) == sorted(one * 2, key=str)


def test_what_waits_or_has_ended_does_not_slow_the_watchdog(tmp_path: Path, database_server: Postgres) -> None:
    SqliteStore(tmp_path / "db.sqlite").close()
    explained = f"EXPLAIN QUERY PLAN {statements()['live_leases']}"
    steps = [row[3] for row in sqlite3.connect(tmp_path / "db.sqlite").execute(explained)]
    assert "SCAN job USING INDEX job_running" in steps
    with psycopg.connect(database_server.make_database(), options=OPTIONS) as connection:
        plan = "\n".join(
            row[0] for row in connection.execute(b"EXPLAIN %b" % _Statement.of("live_leases", guarded=False).text)
        )
    assert "job_running on job" in plan
    assert "attempt_live on attempt" in plan


def test_jobs_are_counted_in_the_order_of_an_index(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "db.sqlite").close()
    explained = f"EXPLAIN QUERY PLAN {statements()['needs']}"
    steps = [row[3] for row in sqlite3.connect(tmp_path / "db.sqlite").execute(explained, {"now": 0})]
    assert "SCAN job USING INDEX job_needs" in steps
    assert steps.count("USE TEMP B-TREE FOR GROUP BY") == 1, "the few that are barred"


def test_jobs_that_are_there_do_not_slow_the_look_for_those_that_were_deleted(tmp_path: Path) -> None:
    """Open pages look every second."""
    SqliteStore(tmp_path / "db.sqlite").close()
    explained = f"EXPLAIN QUERY PLAN {statements()['removed_lately']}"
    steps = [row[3] for row in sqlite3.connect(tmp_path / "db.sqlite").execute(explained, {"since": 0, "project": "p"})]
    assert steps == ["SEARCH job USING INDEX job_removed (removed_ms>?)"]


def test_every_statement_is_used_and_every_use_is_a_statement() -> None:
    sources = "".join(path.read_text() for folder in USERS for path in Path("src/gangline").glob(folder))
    used = set(re.findall(r"""(?:load|change|guard|write|_candidates)\(\s*(?:deployment, )?"(\w+)\"""", sources))
    assert used == set(statements())


def test_a_statement_that_stands_twice_is_refused_with_both_its_files() -> None:
    twice = {"jobs.sql": "-- name: job\nSELECT 1", "more.sql": "-- name: node\nSELECT 2\n\n-- name: job\nSELECT 3"}
    with pytest.raises(AssertionError, match=r"job is in jobs\.sql and in more\.sql"):
        split_statements(twice)


def test_a_part_that_statements_share_stands_in_each_of_them_and_is_none_itself() -> None:
    texts = {
        "jobs.sql": "-- name: job\nSELECT 1 WHERE {open}\n\n-- name: node\nSELECT 2 WHERE {open} AND '{}' = ''",
        "more.sql": "-- part: open\n-- Why it is.\nended IS NULL",
    }
    assert split_statements(texts) == {
        "job": "SELECT 1 WHERE ended IS NULL",
        "node": "SELECT 2 WHERE ended IS NULL AND '{}' = ''",
    }
    with pytest.raises(AssertionError, match=r"open is in jobs\.sql and in more\.sql"):
        split_statements({"jobs.sql": "-- name: open\nSELECT 1", "more.sql": texts["more.sql"]})


def test_each_file_of_queries_says_what_it_holds_and_is_read_in_one_sitting() -> None:
    for name, text in queries().items():
        assert re.match(r"-- [A-Z].*\.\n\n-- name: ", text), name
        assert len(text.splitlines()) <= LINES_MAX, name


def test_a_guard_that_changes_nothing_undoes_the_whole_transaction(store: Store) -> None:
    assert not store.apply(write("add_job", id="j", **JOB), guard("take_job", id="j", version=99, because=""))
    assert store.load("job", id="j") == []


def test_a_change_returns_the_rows_that_it_changed_as_they_are_after_it(store: Store) -> None:
    add_lease(store)
    [renewed] = store.change("renew_lease", **HOLD, **BEAT)
    assert (renewed["reserved"], renewed["price_micro_usd_per_hour"], renewed["started_ms"]) == (3, 7, 5)
    assert store.change("renew_lease", **(HOLD | {"fencing": 2}), **BEAT) == []


def test_an_error_undoes_the_whole_transaction(store: Store) -> None:
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        store.apply(write("add_job", id="j", **JOB), write("add_job", id="k", **(JOB | {"steps": None})))
    assert store.load("job", id="j") == []
    assert store.apply(guard("add_job", id="j", **JOB))


def test_the_schema_refuses_a_second_live_attempt(store: Store) -> None:
    store.apply(write("add_job", id="j", **JOB), write("add_node", id="n", **NODE))
    store.apply(write("add_attempt", id="a", fencing=1, **ATTEMPT))
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        store.apply(write("add_attempt", id="b", fencing=2, **ATTEMPT))


def test_of_many_who_take_the_same_version_one_gets_it(store: Store) -> None:
    store.apply(write("add_job", id="j", **JOB))
    took: list[bool] = []
    together = threading.Barrier(8)

    def take() -> None:
        together.wait()
        took.append(store.apply(guard("take_job", id="j", version=1, because="")))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(took) == [False] * 7 + [True]


def test_events_are_numbered_for_each_job(store: Store) -> None:
    fact = {"kind": "k", "attempt": None, "node": None, "because": "", "now": 1}
    store.apply(write("add_job", id="j", **JOB), write("add_job", id="k", **JOB))
    for job in ("j", "j", "k"):
        store.apply(write("add_event", job=job, **fact))
    assert [row["number"] for row in store.load("events", job="j", after=0)] == [1, 2]
    assert [row["number"] for row in store.load("events", job="k", after=0)] == [1]


def test_what_was_applied_is_there_after_a_restart(database: str) -> None:
    first = open_store(database)
    first.apply(write("add_job", id="j", **JOB))
    first.close()
    second = open_store(database)
    assert second.load("job", id="j")[0]["steps"] == 3
    second.close()


def test_a_schema_from_the_future_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(GanglineError, match="newer Gangline"):
        SqliteStore(path)


def test_a_file_that_is_no_database_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    path.write_text("this is no database, but long enough to be read as one" * 100)
    with pytest.raises(GanglineError, match="cannot be opened"):
        SqliteStore(path)


def test_a_damaged_file_is_said_to_be_damaged_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    store = SqliteStore(path)
    store.close()
    with sqlite3.connect(path) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'service'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    content[(root - 1) * size : root * size] = b"\xa5" * size
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(Unreachable, match=f"the database file {path} is damaged: .*malformed") as damaged:
        store.load("ticks")
    assert "from a backup" in damaged.value.hint and "lost" in damaged.value.hint
    with pytest.raises(Unreachable, match="is damaged"):
        store.apply(write("tick", now=1, gap_ms=1, server="s", turn_ends_ms=1))
    store.close()


def test_a_damaged_first_page_is_said_to_be_damage_not_a_matter_of_permissions(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    SqliteStore(path).close()
    path.write_bytes(b"\xa5" * 4096 + path.read_bytes()[4096:])
    with pytest.raises(GanglineError, match="cannot be opened") as damaged:
        SqliteStore(path)
    assert "from a backup" in damaged.value.hint
