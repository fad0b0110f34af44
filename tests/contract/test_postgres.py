"""PostgreSQL as operators meet it: what is wrong at the start is one sentence, and what goes wrong later is survived."""

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gangline.adapters.store import open_store
from gangline.adapters.store.postgres import OPTIONS, PostgresStore
from gangline.adapters.store.session import Session, _Statement
from gangline.adapters.store.statements import migrations
from gangline.core.errors import GanglineError, Unreachable
from gangline.ports.store import guard, write
from tests.contract.test_store import JOB
from tests.postgres import Postgres, postgres

SECRET = "a-password-nobody-should-read"


@pytest.fixture
def store(database_server: Postgres) -> Iterator[PostgresStore]:
    store = PostgresStore(database_server.make_database())
    yield store
    store.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """One that is restarted, and asks for a password."""
    with postgres() as server:
        access = server.folder / "pg_hba.conf"
        access.write_text("local all careful scram-sha-256\n" + access.read_text())
        server.run(f"CREATE ROLE careful LOGIN PASSWORD '{SECRET}'")
        server.run("SELECT pg_reload_conf()")
        yield server


def refusal(url: str) -> str:
    with pytest.raises(GanglineError) as refused:
        open_store(url)
    assert refused.value.hint
    assert SECRET not in refused.value.message + refused.value.hint
    assert "\n" not in refused.value.message
    return refused.value.message


def test_an_address_that_is_none_is_refused_with_a_sentence() -> None:
    assert "mysql" in refusal("mysql://root@localhost/gangline")
    assert "address" in refusal("postgresql://localhost/gangline?colour=blue")


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "cannot be used" in refusal(f"postgresql://postgres@/gangline?host={tmp_path}")


def test_a_wrong_password_is_told_and_not_shown(own_server: Postgres) -> None:
    url = f"postgresql://careful:not-{SECRET}@/postgres?host={own_server.socket}"
    assert "password authentication failed" in refusal(url)


def test_a_database_that_is_missing_is_told(database_server: Postgres) -> None:
    assert "does not exist" in refusal(database_server.url("nowhere"))


def test_a_user_who_may_not_make_tables_is_told(own_server: Postgres) -> None:
    own_server.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert "permission denied" in refusal(f"postgresql://careful:{SECRET}@/postgres?host={own_server.socket}")


def test_a_schema_from_the_future_is_refused(database_server: Postgres) -> None:
    url = database_server.make_database()
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO gangline_schema (version) VALUES (999)")
    assert "newer Gangline" in refusal(url)


def test_a_database_that_cannot_be_written_is_refused_at_the_start(database_server: Postgres) -> None:
    url = database_server.make_database()
    database_server.run(f"ALTER DATABASE {url.split('/')[3].split('?')[0]} SET default_transaction_read_only = on")
    assert "read-only" in refusal(url)


def test_a_disk_that_is_full_is_an_answer_and_nothing_is_half_written(database_server: Postgres) -> None:
    url = database_server.make_database()
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE FUNCTION full_disk() RETURNS TRIGGER LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"
        )
        connection.execute("CREATE TRIGGER full_disk BEFORE INSERT ON event EXECUTE FUNCTION full_disk()")
    store = PostgresStore(url)
    event = write("add_event", job="j", kind="k", attempt=None, node=None, because="", now=1)
    with pytest.raises(Unreachable, match="No space left"):
        store.apply(guard("add_job", id="j", **JOB), event)
    assert store.load("job", id="j") == []
    store.close()


def test_a_connection_that_was_cut_while_nobody_used_it_is_not_noticed(database_server: Postgres) -> None:
    url = database_server.make_database()
    store = PostgresStore(url)
    store.apply(guard("add_job", id="j", **JOB))
    database_server.kill_backends(url.split("/")[3].split("?")[0])
    assert store.load("job", id="j")
    database_server.kill_backends(url.split("/")[3].split("?")[0])
    assert store.apply(guard("add_job", id="k", **JOB), guard("take_job", id="k", version=1, because=""))
    store.close()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_after_a_restart_of_the_server_everything_goes_on(own_server: Postgres, mode: str) -> None:
    store = PostgresStore(own_server.make_database())
    store.apply(guard("add_job", id="j", **JOB))
    own_server.restart(mode)
    assert store.load("job", id="j")[0]["version"] == 1
    assert store.apply(guard("take_job", id="j", version=1, because=""))
    store.close()


def test_a_zero_byte_in_a_text_is_kept_as_the_sign_for_what_cannot_be_shown(store: PostgresStore) -> None:
    assert store.apply(guard("add_job", id="j", **(JOB | {"name": "a\0b"})))
    assert store.load("job", id="j")[0]["name"] == "a\ufffdb"


def test_the_clock_is_the_databases_and_never_goes_back(store: PostgresStore) -> None:
    [row] = store._ask(
        lambda session: session.execute("SELECT EXTRACT(EPOCH FROM clock_timestamp()) * 1000").fetchall()
    )
    seen = [store.now_ms() for _ in range(1000)]
    assert seen == sorted(seen)
    assert abs(seen[0] - float(row[0])) < 5_000


def test_many_servers_that_start_at_once_make_the_schema_once(database_server: Postgres) -> None:
    url = database_server.make_empty_database()
    stores: list[PostgresStore] = []
    threads = [threading.Thread(target=lambda: stores.append(PostgresStore(url, connections_max=1))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 6
    for store in stores:
        store.close()
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT version FROM gangline_schema ORDER BY version").fetchall()
    assert [row[0] for row in found] == [number for number, _ in migrations()]


def test_a_claim_reads_the_first_jobs_of_a_long_queue_in_their_order_and_sorts_none(database_server: Postgres) -> None:
    url = database_server.make_database()
    store = PostgresStore(url)
    store.apply(write("add_job", id="j", **JOB))
    store.close()
    copies = """
        INSERT INTO job SELECT (copy).* FROM (
            SELECT jsonb_populate_record(job, jsonb_build_object('id', 'j' || number, 'submitted_ms', number)) AS copy
            FROM job, generate_series(1, 5000) AS number) AS made"""
    with Session.connect(url, autocommit=True, options=OPTIONS) as session:
        session.execute(copies)
        session.execute("VACUUM ANALYZE job")
        statement = _Statement.of("fresh_candidates", guarded=False)
        session.pgconn.prepare(b"claim", statement.text)
        texts = {"node", "project", "gpu", "pool", "kinds"}
        values = ", ".join("'p'" if name in texts else "1" for name in statement.parameters)
        plan = "\n".join(row[0] for row in session.execute(f"EXPLAIN EXECUTE claim ({values})").fetchall())  # type: ignore[arg-type]
    assert "using job_queue" in plan, plan
    assert "Sort" not in plan, plan
