"""What a database says after a restore, and what a restore does to a database that is not Gangline's alone."""

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gangline.adapters.store import open_store
from gangline.adapters.store.backups import count_rows, snapshot
from gangline.adapters.store.backups.archive import opened_backup, write_backup
from gangline.adapters.store.backups.snapshot import DatabaseSnapshot
from gangline.core.errors import GanglineError
from gangline.core.jobs.lists.ids import as_list
from gangline.ports.server import Released
from gangline.service.backups.settle import settle_restored
from gangline.service.content.sweep import sweep_attempts
from gangline.service.jobs.finish import finish
from gangline.service.reports.report import report_of_everything
from tests.postgres import Postgres
from tests.service.backups.test_backups import KNOWN, back_up, restore, restored
from tests.service.conftest import PRICE, Service
from tests.service.jobs.test_one_at_a_time import upload
from tests.sqlite import make_database
from tests.waiting import until


@pytest.fixture
def empty(service: Service, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if "://" not in service.database:
        return str(tmp_path / "restored.sqlite")
    return request.getfixturevalue("database_server").make_empty_database()


def test_a_job_that_waits_is_still_shown_with_its_newest_attempt(service: Service, empty: str, tmp_path: Path) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    service.wait(7)
    finish(service.deployment, node, hold, Released(), service.now_ms)
    asked = as_list([job])
    [before] = service.store.load("job_summaries", **asked)
    report = report_of_everything(service.store)
    back_up(service.database, tmp_path / "b.zip")
    with restored(service, tmp_path, empty, "again-") as again:
        [after] = again.store.load("job_summaries", **asked)
        assert before["last_state"] == "released"
        assert dict(after) | {"fencing": 0} == dict(before) | {"fencing": 0}
        assert report_of_everything(again.store) == report


def test_time_between_a_backup_and_its_restore_is_not_billed_to_an_idle_node(
    service: Service, empty: str, tmp_path: Path
) -> None:
    node = service.join()
    service.wait(3600)
    back_up(service.database, tmp_path / "b.zip")
    made_ms = service.now_ms
    service.wait(36_000)
    with restored(service, tmp_path, empty, "again-") as again:
        settle_restored(again.deployment, made_ms, again.now_ms)
        settle_restored(again.deployment, made_ms, again.now_ms)
        again.wait(3600)
        again.submit()
        again.claim(node)
        assert again.look("SELECT cause, micro_usd FROM ledger") == [{"cause": "idle", "micro_usd": PRICE}] * 2


def test_what_came_after_a_backup_is_not_swept_at_once(service: Service, empty: str, tmp_path: Path) -> None:
    service.submit()
    node = service.join()
    hold = service.claim(node).hold
    service.tick()
    back_up(service.database, tmp_path / "b.zip")
    made_ms, orphans_s = service.now_ms, service.deployment.policy.orphans_s
    upload(service, node, hold, 10)
    left = list(service.objects.list(""))
    service.wait(2 * orphans_s)
    with restored(service, tmp_path, empty, "again-") as again:
        settle_restored(again.deployment, made_ms, again.now_ms)
        again.execute(f"UPDATE service SET ticked_ms = {made_ms}")  # as the backup has it
        again.tick()
        assert list(again.objects.list("")) == left, "the server of before may still be at work"
        again.wait(orphans_s + 1)
        sweep_attempts(again.deployment, again.now_ms)
        assert len(list(again.objects.list(""))) < len(left)


def test_two_backups_of_one_name_leave_the_first(tmp_path: Path) -> None:
    make_database(tmp_path / "db.sqlite")
    path = tmp_path / "b.zip"

    def meanwhile(table: str) -> Iterator[list[tuple[int]]]:
        if not path.exists():
            back_up(str(tmp_path / "db.sqlite"), path)
        return iter([])

    with pytest.raises(GanglineError, match="exists"), snapshot(str(tmp_path / "db.sqlite")) as found:
        late = DatabaseSnapshot(found.schema, found.made_ms, found.tables, meanwhile)
        write_backup(path, late, version="late", keys={})
    with opened_backup(path, schema_known=KNOWN, version="1") as backup:
        assert backup.manifest.version == "1.2.3"
    assert [each.name for each in tmp_path.iterdir() if "b.zip" in each.name] == ["b.zip"]


def test_a_database_of_a_newer_gangline_is_not_replaced(database_server: Postgres, tmp_path: Path) -> None:
    url = database_server.make_database()
    path = back_up(url, tmp_path / "b.zip")
    with psycopg.connect(url) as newer:
        newer.execute("CREATE TABLE of_a_newer_one (a BIGINT)")
        newer.execute(f"INSERT INTO gangline_schema (version) VALUES ({KNOWN + 1})")
    for replace in (False, True):
        with pytest.raises(GanglineError, match="was written by a newer Gangline") as refused:
            restore(path, url, replace=replace)
        assert refused.value.hint == "restore into an empty database"
    with psycopg.connect(url) as found:
        assert found.execute("SELECT COUNT(*) FROM job, of_a_newer_one").fetchone() == (0,)


def test_a_database_that_another_program_uses_too_is_restored_around_it(
    database_server: Postgres, tmp_path: Path
) -> None:
    url = database_server.make_database()
    path = back_up(url, tmp_path / "b.zip")
    with psycopg.connect(url) as other:
        other.execute("CREATE TABLE a_parent (id BIGINT PRIMARY KEY)")
        other.execute("CREATE TABLE a_child (parent BIGINT REFERENCES a_parent (id))")
    restore(path, url, replace=True)
    with psycopg.connect(url) as other:
        other.execute("CREATE VIEW jobs_of_us AS SELECT id FROM job")
    with pytest.raises(GanglineError, match=r"depends on its tables .*: view jobs_of_us depends on table job"):
        restore(path, url, replace=True)
    with psycopg.connect(url) as other:
        assert other.execute("SELECT COUNT(*) FROM jobs_of_us").fetchone() == (0,)


def test_a_table_that_a_server_makes_again_meanwhile_is_backed_up_with_its_rows(
    database_server: Postgres, tmp_path: Path
) -> None:
    url, path = database_server.make_database(), tmp_path / "b.zip"
    waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"
    with psycopg.connect(url) as migrating, psycopg.connect(url, autocommit=True) as looking:
        migrating.execute("CREATE TABLE service_anew (LIKE service INCLUDING ALL)")
        migrating.execute("INSERT INTO service_anew SELECT * FROM service")
        migrating.execute("DROP TABLE service")
        migrating.execute("ALTER TABLE service_anew RENAME TO service")
        backing_up = threading.Thread(target=back_up, args=(url, path))
        backing_up.start()
        until(lambda: looking.execute(waiting).fetchone() == (1,))
        migrating.commit()
        backing_up.join()
    with opened_backup(path, schema_known=KNOWN, version="1") as backup:
        assert backup.manifest.tables["service"].rows == 1


def test_rows_that_cannot_be_counted_are_a_warning(database_server: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    url = database_server.make_database()
    count_rows(url)
    assert caplog.messages == []
    database_server.drop_database(url)
    count_rows(url)
    assert "the rows are restored, but not counted yet" in caplog.messages[0]
    with pytest.raises(GanglineError):
        open_store(url)
