"""What a release leaves behind is taken over: its database of either engine, its worker's lease, its keys and its files.

The requests that its programs send are in `tests/wire/recorded`.
"""

import json
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.store import open_store, schema_of
from gangline.adapters.store.backups import snapshot
from gangline.core.errors import GanglineError
from gangline.ports.server import Assignment, Beat, Beaten, Done, Hold
from gangline.service.backups.check import check_store
from gangline.service.jobs.claim import claim
from gangline.service.jobs.finish import finish
from gangline.service.jobs.renew import renew
from tests.postgres import Postgres
from tests.service.conftest import Service, a_service
from tests.service.jobs.test_one_at_a_time import commit, result, upload, view
from tests.upgrade.make import LEFT

RELEASES = sorted(path.name.removesuffix(".tar.gz") for path in LEFT.iterdir())


@pytest.fixture(params=RELEASES)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder with all that a release left behind."""
    with tarfile.open(LEFT / f"{request.param}.tar.gz") as packed:
        packed.extractall(tmp_path / "left", filter="data")
    return tmp_path / "left"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, left: Path) -> str:
    if request.param == "sqlite":
        return str(left / "db.sqlite")
    server: Postgres = request.getfixturevalue("database_server")
    url = server.make_empty_database()
    with psycopg.connect(url) as connection:
        connection.execute((left / "postgres.sql").read_text().encode())
    return url


@pytest.fixture
def story(left: Path) -> dict[str, Any]:
    return json.loads((left / "story.json").read_text())


@pytest.fixture
def taken_over(left: Path, database: str, story: dict[str, Any]) -> Iterator[Service]:
    """Today's server over it, five seconds after the release's last tick."""
    objects = LocalObjects(left / "store", "secret")
    with a_service(left, database, objects, begins_ms=story["now_ms"] + 5000) as service:
        numbers = count()
        service.deployment = replace(service.deployment, new_id=lambda kind: f"{kind}-new-{next(numbers):06d}")
        yield service


def everything(database: str) -> dict[str, list[dict[str, Any]]]:
    with snapshot(database) as found:
        return {
            table: sorted((dict(zip(columns, row, strict=True)) for rows in found.rows(table) for row in rows), key=str)
            for table, columns in found.tables.items()
        }


def test_no_row_is_lost_or_changed(database: str) -> None:
    before = everything(database)
    open_store(database).close()
    after = everything(database)
    for table, rows in before.items():
        assert [{name: row[name] for name in rows[0]} for row in after[table]] == rows if rows else True, table
    assert before["lease"] and before["ledger"] and before["checkpoint"], "there was something to keep"


def test_its_worker_trains_on_and_its_job_ends(taken_over: Service, story: dict[str, Any]) -> None:
    service, job, node, hold = taken_over, story["jobs"]["running"], story["node"], Hold(**story["hold"])
    beat = Beat(phase="training", step=35, loss=0.4, seconds_per_step=1.0)
    assert renew(service.deployment, node, hold, beat, service.now_ms) == Beaten()
    service.tick()
    assert service.state(job) == "running", "no lease is lost"
    upload(service, node, hold, 40)
    commit(service, node, hold, 40)
    assert view(service, job).summary.committed_step == 40
    assert finish(service.deployment, node, hold, result(service, node, hold), service.now_ms) == Done()
    assert service.state(job) == "succeeded"
    found = claim(service.deployment, node, service.now_ms)
    assert isinstance(found, Assignment) and found.job == story["jobs"]["queued"]


def test_another_node_resumes_its_job_where_its_worker_is_gone(taken_over: Service, story: dict[str, Any]) -> None:
    service, job = taken_over, story["jobs"]["running"]
    service.execute(f"UPDATE job SET priority = 9 WHERE id = '{job}'")
    service.wait(200)
    service.tick()
    found = service.claim(service.join("node-c"))
    assert found.job == job and [resumable.step for resumable in found.resume] == [30, 20]
    for resumable in found.resume:
        assert [service.objects.read(file.key) for file in resumable.files] == [
            f"weights of step {resumable.step}".encode()
        ]


def test_what_it_showed_is_shown(taken_over: Service, story: dict[str, Any]) -> None:
    jobs = {found["id"]: found for found in taken_over.ask("GET", "/v1/jobs").json()["jobs"]}
    assert {name: jobs[job]["state"] for name, job in story["jobs"].items()} == {
        "succeeded": "succeeded",
        "canceled": "canceled",
        "running": "running",
        "queued": "queued",
    }
    for path in ("/v1/nodes", "/v1/costs", "/v1/report", "/v1/project", "/v1/pools", "/v1/queue"):
        answer = taken_over.ask("GET", path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
    for job in story["jobs"].values():
        for path in ("", "/events", "/timeline", "/artifacts"):
            answer = taken_over.ask("GET", f"/v1/jobs/{job}{path}")
            assert answer.status_code == 200, f"{path}: {answer.text}"
    costs = sum(row["micro_usd"] for row in taken_over.look("SELECT micro_usd FROM ledger"))
    assert costs > 0


def test_its_files_are_found(taken_over: Service) -> None:
    found = check_store(taken_over.store, taken_over.objects, schema=0, damage="")
    assert found.is_whole and found.files == 4, "two checkpoints, a result and a photo"


def test_a_database_that_today_has_opened_is_refused_by_an_older_program_in_one_sentence(database: str) -> None:
    """As the release itself refuses it: by the number of its newest migration."""
    open_store(database).close()
    _, known = schema_of(database)
    newer = f"PRAGMA user_version = {known + 1}"
    if "://" in database:
        with psycopg.connect(database) as connection:
            connection.execute("INSERT INTO gangline_schema (version) VALUES (%s)", (known + 1,))
    else:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(newer)
    with pytest.raises(GanglineError) as refused:
        open_store(database)
    assert f"was written by a newer Gangline (schema {known + 1}; this one knows up to {known})" in str(refused.value)
    assert refused.value.hint == "upgrade Gangline"
    assert schema_of(database) == (known + 1, known)
