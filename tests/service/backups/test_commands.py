"""`gangline backup` as one types it, over a home."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.store import open_store
from gangline.adapters.store.statements import migrations
from gangline.compose.access import keep_access, keep_sealing_keys, read_access
from gangline.compose.home import locked
from tests.conftest import Typed
from tests.postgres import Postgres
from tests.service.backups.test_backups import with_manifest
from tests.service.conftest import START_MS, Service, a_service
from tests.sqlite import make_database

KNOWN = migrations()[-1][0]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One in which a server was."""
    folder = tmp_path / "home"
    (folder / "store").mkdir(parents=True)
    make_database(folder / "gangline.sqlite")
    keep_access(folder, "http://127.0.0.1:1")
    keep_sealing_keys(folder, "")
    return folder


def told(typed: Typed, *words: str, code: int = 0) -> Any:
    exited, shown, said = typed("backup", *words, "-o", "json")
    assert exited == code, said
    return json.loads(shown)


def refused(typed: Typed, *words: str) -> str:
    code, shown, said = typed("backup", *words)
    assert (code, shown) == (2, ""), said
    return " ".join(said.split())


def test_keys_and_database_come_back_into_another_home(typed: Typed, home: Path, tmp_path: Path) -> None:
    file, other = str(tmp_path / "b.zip"), tmp_path / "other"
    made = told(typed, "create", file, "--home", str(home))
    assert made["schema"] == KNOWN and made["keys"] == ["access.json", "secrets.key"]
    found = told(typed, "restore", file, "--home", str(other))
    assert found["ended_attempts"] == 0 and found["rows"] == made["rows"]
    assert told(typed, "check", "--home", str(other))["whole"]
    for name in ("access.json", "secrets.key"):
        assert (other / name).read_text() == (home / name).read_text()
        assert (other / name).stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into the home of another user")
def test_what_root_restores_is_the_server_users_who_can_then_read_it(typed: Typed, home: Path, tmp_path: Path) -> None:
    file, other, busy = str(tmp_path / "b.zip"), tmp_path / "other", tmp_path / "busy"
    told(typed, "create", file, "--home", str(home))
    for folder in (other, busy):
        folder.mkdir(mode=0o700)
        os.chown(folder, 12345, 54321)
    told(typed, "restore", file, "--home", str(other))
    found = {str(each.relative_to(other)): each.lstat() for each in other.rglob("*")}
    assert {"access.json", "secrets.key", "gangline.sqlite", "server.lock", "store/objects"} <= found.keys()
    assert {name for name, of in found.items() if (of.st_uid, of.st_gid) != (12345, 54321)} == set()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (busy / "store").symlink_to(elsewhere)
    (busy / "gangline.sqlite").write_text("no database")
    assert "there is a database" in refused(typed, "restore", file, "--home", str(busy))
    assert (busy / "server.lock").stat().st_uid == 12345
    assert elsewhere.stat().st_uid == 0, "what a user's link leads to stays whose it is"


def test_a_home_with_other_keys_keeps_them_unless_they_are_to_be_replaced(
    typed: Typed, home: Path, tmp_path: Path
) -> None:
    file, other = str(tmp_path / "b.zip"), tmp_path / "other"
    told(typed, "create", file, "--home", str(home))
    other.mkdir(mode=0o700)
    own = keep_access(other, "http://127.0.0.1:2")
    assert "has keys of its own in access.json" in refused(typed, "restore", file, "--home", str(other))
    assert read_access(other) == own and not (other / "gangline.sqlite").exists()
    told(typed, "restore", file, "--home", str(other), "--replace")
    assert read_access(other) == read_access(home)


def test_the_same_keys_at_another_address_are_no_other_keys(typed: Typed, home: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "b.zip")
    told(typed, "create", file, "--home", str(home))
    keep_access(home, "http://127.0.0.1:2")
    (home / "gangline.sqlite").unlink()
    told(typed, "restore", file, "--home", str(home))


def test_a_backup_of_somebody_else_writes_no_file_of_its_own_choice(typed: Typed, home: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "b.zip", tmp_path / "other"
    told(typed, "create", str(file), "--home", str(home))
    with_manifest(file, lambda manifest: manifest["keys"].update({"../evil": "x", "gangline.toml": "x"}))
    told(typed, "restore", str(file), "--home", str(other))
    assert not (tmp_path / "evil").exists() and not (other / "gangline.toml").exists()


def test_a_restore_that_fails_at_its_end_keeps_the_keys(typed: Typed, home: Path, tmp_path: Path) -> None:
    file, other = str(tmp_path / "b.zip"), tmp_path / "other"
    told(typed, "create", file, "--home", str(home))
    other.mkdir(mode=0o700)
    own = keep_access(other, "http://127.0.0.1:2")
    (other / "gangline.sqlite").mkdir()
    assert "cannot be restored" in refused(typed, "restore", file, "--home", str(other), "--replace")
    assert read_access(other) == own


def test_a_home_in_which_a_server_runs_is_left_alone(typed: Typed, home: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "b.zip")
    with locked(home):
        told(typed, "create", file, "--home", str(home))
        assert told(typed, "check", "--home", str(home))["whole"]
        assert "another server runs in" in refused(typed, "restore", file, "--home", str(home), "--replace")


def test_a_check_beside_a_server_leaves_what_it_is_receiving(typed: Typed, home: Path) -> None:
    coming = home / "store" / "incoming" / "half"
    coming.parent.mkdir()
    coming.write_text("half")
    assert told(typed, "check", "--home", str(home))["whole"]
    assert coming.exists()


def test_a_check_that_finds_something_missing_says_so_and_exits_with_1(typed: Typed, home: Path) -> None:
    store = open_store(str(home / "gangline.sqlite"))
    store.change("add_blob", project="p", sha256="0" * 64, bytes=7, now=1)
    store.close()
    assert told(typed, "check", "--home", str(home), code=1)["missing"][0]["files"] == 1
    code, shown, _ = typed("backup", "check", "--home", str(home))
    assert code == 1
    assert f"missing: 1 upload, such as projects/p/blobs/{'0' * 64}; jobs that need them fail" in shown
    assert shown.strip().endswith("not whole")


def test_a_backup_of_postgresql_is_restored_to_it_and_to_a_file(
    typed: Typed, home: Path, tmp_path: Path, database_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file = database_server.make_database(), str(tmp_path / "b.zip")
    monkeypatch.setenv("GANGLINE_DATABASE_URL", url)
    told(typed, "create", file, "--home", str(home))
    assert "is not empty" in refused(typed, "restore", file, "--home", str(home))
    told(typed, "restore", file, "--home", str(home), "--replace")
    monkeypatch.setenv("GANGLINE_DATABASE_URL", database_server.make_empty_database())
    told(typed, "restore", file, "--home", str(home))
    assert told(typed, "check", "--home", str(home))["whole"]
    monkeypatch.delenv("GANGLINE_DATABASE_URL")
    told(typed, "restore", file, "--home", str(tmp_path / "on-a-file"))


def test_jobs_that_ran_wait_again(typed: Typed, home: Path, tmp_path: Path, objects: Any) -> None:
    database = home / "gangline.sqlite"
    with a_service(tmp_path, str(database), objects) as service:
        job = running(service)
    told(typed, "create", str(tmp_path / "b.zip"), "--home", str(home))
    other = tmp_path / "other"
    assert told(typed, "restore", str(tmp_path / "b.zip"), "--home", str(other))["ended_attempts"] == 1
    with a_service(tmp_path, str(other / "gangline.sqlite"), objects, begins_ms=START_MS * 4000) as service:
        assert service.state(job) == "queued"


def running(service: Service) -> str:
    job = service.submit()
    service.claim(service.join())
    return job


def test_a_database_of_a_newer_gangline_is_left_as_it_is(typed: Typed, home: Path, tmp_path: Path) -> None:
    database = home / "gangline.sqlite"
    connection = sqlite3.connect(database)
    connection.execute(f"PRAGMA user_version = {KNOWN + 1}")
    connection.close()
    before = database.read_bytes()
    words = f"(schema {KNOWN + 1}; this one knows up to {KNOWN})"
    assert words in refused(typed, "create", str(tmp_path / "b.zip"), "--home", str(home))
    assert f"schema {KNOWN + 1}" in refused(typed, "check", "--home", str(home))
    code, _, said = typed("server", "--home", str(home), "--port", "0")
    assert code == 2 and words in " ".join(said.split())
    assert database.read_bytes() == before
    assert not (tmp_path / "b.zip").exists()


def test_a_restore_that_cannot_use_the_object_store_changes_nothing(
    typed: Typed, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "b.zip")
    told(typed, "create", file, "--home", str(home))
    before = (home / "gangline.sqlite").read_bytes()
    monkeypatch.setenv("GANGLINE_OBJECTS", "gs://elsewhere")
    assert "GANGLINE_OBJECTS" in refused(typed, "restore", file, "--home", str(home), "--replace")
    assert (home / "gangline.sqlite").read_bytes() == before


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_keys_that_cannot_be_written_leave_the_database_and_nothing_beside_the_keys(
    typed: Typed,
    home: Path,
    tmp_path: Path,
    engine: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = str(tmp_path / "b.zip")
    told(typed, "create", file, "--home", str(home))
    if engine == "postgres":
        url = request.getfixturevalue("database_server").make_database()
        monkeypatch.setenv("GANGLINE_DATABASE_URL", url)
    in_the_way = home / ".secrets.key.restoring"
    in_the_way.mkdir()
    keys = read_access(home)
    assert "the keys cannot be written to" in refused(typed, "restore", file, "--home", str(home), "--replace")
    assert read_access(home) == keys
    assert [each.name for each in home.glob(".*.restoring")] == [in_the_way.name]


def test_a_restore_names_the_pools_that_nobody_knows_any_more(typed: Typed, home: Path, tmp_path: Path) -> None:
    file, database = str(tmp_path / "b.zip"), home / "gangline.sqlite"
    add_pool(database, "known", "1", state="ready")
    told(typed, "create", file, "--home", str(home))
    add_pool(database, "with nodes", "2", state="ready")
    add_pool(database, "without", "3", state="gone")
    assert told(typed, "restore", file, "--home", str(home), "--replace")["lost_pools"] == ["with nodes"]
    add_pool(database, "with nodes", "4", state="ready")
    code, _, said = typed("backup", "restore", file, "--home", str(home), "--replace")
    assert code == 0
    assert "Nobody knows these pools any more, and their providers still bill their nodes: with nodes." in said


def add_pool(database: Path, name: str, id: str, *, state: str) -> None:
    """A pool that an operator made, with a node."""
    store = open_store(str(database))
    pool = {
        "driver": "vast",
        "provider": "",
        "settings": "{}",
        "secret": "",
        "nodes_min": 0,
        "nodes_max": 1,
        "offers": "[]",
    }
    store.change("add_pool", name=name, id=id, price_max_micro_usd_per_hour=None, trust=None, now=1, **pool)
    store.close()
    with closing(sqlite3.connect(database)) as connection:
        columns = {
            row[1]: 0 if row[2] in ("BIGINT", "DOUBLE PRECISION") else ""
            for row in connection.execute("PRAGMA table_info(node)")
            if row[3] and row[4] is None
        }
        columns |= {"id": f"node-{id}", "pool": name, "state": state, "rented": 1}
        places = ", ".join("?" * len(columns))
        connection.execute(f"INSERT INTO node ({', '.join(columns)}) VALUES ({places})", tuple(columns.values()))
        connection.commit()


def test_what_is_no_name_of_a_file_is_refused(typed: Typed, home: Path) -> None:
    assert "exists" in refused(typed, "create", ".", "--home", str(home))
