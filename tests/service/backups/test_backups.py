"""A backup is whole or not there, either engine restores it, and what a worker held before a restore it holds no more."""

import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gangline.adapters.store import open_store, schema_of
from gangline.adapters.store.backups import integrity_of, load_backup, snapshot
from gangline.adapters.store.backups.archive import opened_backup, write_backup
from gangline.adapters.store.backups.snapshot import DatabaseSnapshot
from gangline.adapters.store.statements import migrations
from gangline.core.errors import GanglineError
from gangline.core.jobs.keys import attempt_prefix, folder_prefix
from gangline.ports.server import Stale
from gangline.service.backups.check import check_store
from gangline.service.backups.settle import settle_restored
from gangline.service.jobs.finish import finish
from tests.postgres import Postgres
from tests.service.conftest import PROJECT, Service, a_service
from tests.service.jobs.test_one_at_a_time import ENDS, NAMES, commit, result, upload, view, writes
from tests.sqlite import make_database

KNOWN = migrations()[-1][0]
CHANGED = {"job": {"fencing"}, "attempt": {"fencing"}, "lease": {"fencing"}, "project": {"facts"}}
"""What a restore changes."""
LEFT_OUT = ("service", "session")
STRANGE = "a name\twith \\ a \\n line\r\nand ümläuts 🐕"


def back_up(database: str, path: Path, **keys: str) -> Path:
    with snapshot(database) as found:
        write_backup(path, found, version="1.2.3", keys=keys)
    return path


def restore(path: Path, database: str, *, replace: bool = False, publish: Callable[[], None] = lambda: None) -> None:
    with opened_backup(path, schema_known=KNOWN, version="1.2.3") as backup:
        load_backup(database, backup, replace=replace, publish=publish)


def content(database: str) -> dict[str, list[Any]]:
    with snapshot(database) as found:
        return {
            table: sorted(
                (
                    [value for name, value in zip(columns, row, strict=True) if name not in CHANGED.get(table, ())]
                    for rows in found.rows(table)
                    for row in rows
                ),
                key=str,
            )
            for table, columns in found.tables.items()
            if table not in LEFT_OUT
        }


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another database, where nothing is yet."""
    if request.param == "sqlite":
        return str(tmp_path / "restored.sqlite")
    return request.getfixturevalue("database_server").make_empty_database()


def at_work(service: Service) -> None:
    """A job that has ended, one that trains, and one that waits with a name that formats would have to escape."""
    node = service.join()
    service.submit()
    hold = service.claim(node).hold
    finish(service.deployment, node, hold, result(service, node, hold), service.now_ms)
    service.submit()
    hold = service.claim(node).hold
    upload(service, node, hold, 10)
    commit(service, node, hold, 10)
    waiting = service.submit()
    service.execute(f"UPDATE job SET name = '{STRANGE}', gpu_memory_gb = 0.1 WHERE id = '{waiting}'")
    service.tick()


def test_what_is_backed_up_is_restored_on_either_engine(service: Service, empty: str, tmp_path: Path) -> None:
    at_work(service)
    path = back_up(service.database, tmp_path / "b.zip", **{"secrets.key": "k"})
    restore(path, empty)
    assert content(empty) == content(service.database)
    assert path.stat().st_mode & 0o077 == 0
    assert schema_of(empty) == (KNOWN, KNOWN) and integrity_of(empty) == ""
    open_store(empty).close()


def test_a_backup_is_of_one_moment_while_a_server_writes(service: Service, tmp_path: Path) -> None:
    service.submit()
    with snapshot(service.database) as found:
        before = {table: [list(row) for rows in found.rows(table) for row in rows] for table in ("job", "event")}
        service.submit()
        assert {table: [list(row) for rows in found.rows(table) for row in rows] for table in before} == before
    assert len(service.look("SELECT id FROM job")) == 2


@contextmanager
def restored(service: Service, tmp_path: Path, database: str, ids: str) -> Iterator[Service]:
    """A server over a database that was restored from a backup, with the object store as it is."""
    restore(tmp_path / "b.zip", database)
    with a_service(tmp_path / "again", database, service.objects, begins_ms=service.now_ms) as found:
        numbers = count()
        found.deployment = replace(found.deployment, new_id=lambda kind: f"{kind}-{ids}{next(numbers):06d}")
        yield found


def test_who_held_a_job_before_a_restore_holds_nothing_and_it_goes_on_from_the_newest_known_checkpoint(
    service: Service, empty: str, tmp_path: Path
) -> None:
    job, node = service.submit(), service.join()
    old = service.claim(node)
    upload(service, node, old.hold, 30)
    commit(service, node, old.hold, 30)
    service.wait(10)
    made_ms = service.now_ms
    back_up(service.database, tmp_path / "b.zip")
    service.wait(10)
    upload(service, node, old.hold, 60, b"newer")
    commit(service, node, old.hold, 60, b"newer")
    with restored(service, tmp_path, empty, "again-") as again:
        late = writes(again, node, old)
        assert {name for name in (*NAMES, *ENDS) if not isinstance(late[name](), Stale)} == set(), (
            "before it is settled"
        )
        assert settle_restored(again.deployment, made_ms, service.now_ms) == 1
        assert settle_restored(again.deployment, made_ms, service.now_ms) == 0
        assert again.state(job) == "queued"
        assert "restored from a backup of" in view(again, job).attempts[0].because
        assert {name for name in (*NAMES, *ENDS) if not isinstance(late[name](), Stale)} == set()
        [billed] = again.look("SELECT SUM(micro_usd) AS micro_usd FROM ledger")
        assert billed["micro_usd"] == 1000, "ten seconds until the backup, and nothing of what came after it"
        other = again.join("node-b")
        new = again.claim(other)
        assert new.hold.fencing > old.hold.fencing + 1000
        assert [resumable.step for resumable in new.resume] == [30]
        assert {name for name in (*NAMES, *ENDS) if not isinstance(late[name](), Stale)} == set(), (
            "while another one trains"
        )
        upload(again, other, new.hold, 60, b"newer")
        commit(again, other, new.hold, 60, b"newer")
        assert view(again, job).summary.committed_step == 60


def test_a_number_that_was_given_after_the_backup_is_not_given_again(
    service: Service, empty: str, tmp_path: Path
) -> None:
    job, node = service.submit(), service.join()
    old = service.claim(node)
    service.tick()
    back_up(service.database, tmp_path / "b.zip")
    service.wait(1000)
    service.tick()
    later = service.claim(service.join("node-b"))
    service.tick()
    [facts] = service.look(f"SELECT facts FROM project WHERE id = '{PROJECT}'")
    with restored(service, tmp_path, empty, "again-") as again:
        settle_restored(again.deployment, service.now_ms, service.now_ms)
        taken = later.hold.attempt  # as if the ids were given again, too
        again.deployment = replace(again.deployment, new_id=lambda kind: taken)
        new = again.claim(again.join("node-c"))
        assert new.job == job and new.hold.attempt == taken
        assert new.hold.fencing > later.hold.fencing > old.hold.fencing
        late = writes(again, "node-b", later)
        assert all(isinstance(late[name](), Stale) for name in NAMES)
        again.tick()
        [now] = again.look("SELECT MIN(fact) AS fact FROM event WHERE kind = 'released'")
        assert now["fact"] > facts["facts"]


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {}


def damage(words: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def keep(act: Callable[[Path], None]) -> Callable[[Path], None]:
        DAMAGES[act.__name__] = act, words
        return act

    return keep


@damage("is cut short")
def cut_in_the_middle(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@damage("is cut short")
def cut_by_a_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@damage("is not a backup of Gangline")
def of_a_text(path: Path) -> None:
    path.write_text("hello")


@damage("is not a backup of Gangline")
def with_nothing_in_it(path: Path) -> None:
    path.write_bytes(b"")


@damage("is not a backup of Gangline")
def of_another_program(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<x/>")


def with_manifest(path: Path, change: Callable[[Any], None], **rows: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members |= {f"tables/{table}.jsonl": text for table, text in rows.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (members | {"manifest.json": json.dumps(manifest).encode()}).items():
            archive.writestr(name, text)


@damage(
    f"was made by Gangline 1.2.3 (schema {KNOWN + 1}), and this is Gangline 1.2.3, which knows up to schema {KNOWN}"
)
def of_a_newer_schema(path: Path) -> None:
    with_manifest(path, lambda manifest: manifest.update(schema=KNOWN + 1))


@damage("was made by Gangline 9 (schema 99)")
def of_a_newer_format(path: Path) -> None:
    with_manifest(path, lambda manifest: manifest.update(format=2, version="9", schema=99, tables="?"))


@damage("its manifest does not say what is in it")
def of_a_manifest_without_tables(path: Path) -> None:
    with_manifest(path, lambda manifest: manifest.pop("tables"))


@damage("event has other rows than were written")
def with_other_rows(path: Path) -> None:
    with_manifest(path, lambda _: None, event=b"")


@damage("event cannot be read")
def with_rows_of_nonsense(path: Path) -> None:
    with_manifest(path, lambda _: None, event=b"[[1,\n")


@damage("its tables are not those of its schema")
def without_a_table(path: Path) -> None:
    with_manifest(path, lambda manifest: manifest["tables"].pop("winner"))


@pytest.mark.parametrize("damaged", DAMAGES)
def test_a_file_that_is_no_whole_backup_is_refused_in_one_sentence_and_nothing_changes(
    service: Service, tmp_path: Path, damaged: str
) -> None:
    service.submit()
    path = back_up(service.database, tmp_path / "b.zip")
    act, words = DAMAGES[damaged]
    act(path)
    before = content(service.database)
    service.store.close()
    with pytest.raises(GanglineError) as refused:
        restore(path, service.database, replace=True, publish=lambda: pytest.fail("it is not right"))
    assert words in refused.value.message and "\n" not in refused.value.message
    assert content(service.database) == before
    assert [found.name for found in tmp_path.glob(".*")] == []


def test_a_database_that_is_not_empty_is_kept_unless_it_is_to_be_replaced(service: Service, tmp_path: Path) -> None:
    service.submit()
    path = back_up(service.database, tmp_path / "b.zip")
    first = content(service.database)
    service.submit()
    second = content(service.database)
    service.store.close()
    with pytest.raises(GanglineError, match=r"there is a database at|is not empty"):
        restore(path, service.database)
    assert content(service.database) == second
    restore(path, service.database, replace=True)
    assert content(service.database) == first


def test_a_database_that_a_server_uses_is_not_replaced(database_server: Postgres, tmp_path: Path) -> None:
    url = database_server.make_database()
    path = back_up(url, tmp_path / "b.zip")
    server = open_store(url)
    with pytest.raises(GanglineError, match="a server is connected to the database"):
        restore(path, url, replace=True)
    server.close()
    with psycopg.connect(url) as other:
        other.execute("CREATE TABLE of_somebody_else (a BIGINT)")
    restore(path, url, replace=True)
    assert database_server.run("SELECT COUNT(*) FROM of_somebody_else", url.split("/")[3].split("?")[0]) == [(0,)]


def test_a_backup_that_cannot_be_finished_leaves_no_file(tmp_path: Path) -> None:
    make_database(tmp_path / "db.sqlite")
    path = tmp_path / "b.zip"
    with pytest.raises(ZeroDivisionError), snapshot(str(tmp_path / "db.sqlite")) as found:
        broken = DatabaseSnapshot(found.schema, found.made_ms, found.tables, lambda table: iter([[(1 // 0,)]]))
        write_backup(path, broken, version="1", keys={})
    assert [each.name for each in tmp_path.iterdir() if "b.zip" in each.name] == []
    back_up(str(tmp_path / "db.sqlite"), path)
    with pytest.raises(GanglineError, match="exists"):
        back_up(str(tmp_path / "db.sqlite"), path)
    with pytest.raises(GanglineError, match="cannot be written: no such file"):
        back_up(str(tmp_path / "db.sqlite"), tmp_path / "none" / "b.zip")
    with pytest.raises(GanglineError, match="there is no database at"):
        back_up(str(tmp_path / "other.sqlite"), tmp_path / "c.zip")


def test_the_log_of_a_database_that_is_replaced_does_not_damage_its_successor(tmp_path: Path) -> None:
    database = tmp_path / "db.sqlite"
    make_database(database)
    path = back_up(str(database), tmp_path / "b.zip")
    with closing(sqlite3.connect(database)) as killed:
        killed.execute("PRAGMA journal_mode = WAL")
        killed.execute("UPDATE service SET ticked_ms = 5")
        killed.commit()
        left = {ending: Path(f"{database}{ending}").read_bytes() for ending in ("-wal", "-shm")}
    for ending, bytes_ in left.items():
        Path(f"{database}{ending}").write_bytes(bytes_)
    restore(path, str(database), replace=True)
    assert integrity_of(str(database)) == ""
    with closing(sqlite3.connect(database)) as found:
        assert found.execute("SELECT ticked_ms FROM service").fetchone() == (0,)


def test_a_check_names_each_kind_of_file_that_is_missing_and_counts_what_nobody_knows(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    for step in (30, 60):
        upload(service, node, hold, step)
        commit(service, node, hold, step)
    whole = check_store(service.store, service.objects, schema=KNOWN, damage="")
    assert whole.is_whole and whole.files == 3 and whole.live_attempts == whole.jobs == 1
    prefix = folder_prefix(attempt_prefix(PROJECT, job, hold.attempt), "checkpoints", 30)
    service.objects.delete([f"{prefix}/weights.safetensors"])
    service.objects.write(f"{prefix}/of-nobody", b"12345")
    service.execute("UPDATE blob SET bytes = bytes + 1")
    found = check_store(service.store, service.objects, schema=KNOWN, damage="")
    assert [(each.kind, each.files) for each in found.missing] == [("checkpoint", 1), ("upload", 1)]
    assert found.missing[0].examples == (f"{prefix}/weights.safetensors",)
    assert (found.unknown_files, found.unknown_bytes) == (1, 5)
    assert not found.is_whole
