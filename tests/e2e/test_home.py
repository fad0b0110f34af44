"""The home of a server: for one server at a time, and for the eyes of its owner alone."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gangline.adapters.host.trainer.enclosures import ROOM_TMP
from gangline.cli.admin.box import Box
from gangline.cli.jobs.train import upload_inputs
from gangline.compose.client import Client
from tests.conftest import BASE, SUBJECT
from tests.e2e.test_death import below
from tests.postgres import Postgres
from tests.waiting import until

SETTINGS: dict[str, Any] = {"prompt": "sks cat face", "steps": 2, "resolution": 64, "sample_result": False}
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `gangline server`, or `gangline up`, on a free port, and kill it at the end."""
    started: list[subprocess.Popen[str]] = []

    def server(home: Path, *options: str, kind: str = "server", **environment: str) -> "subprocess.Popen[str]":
        command = [
            sys.executable,
            "-m",
            "gangline.cli.main",
            kind,
            "--home",
            str(home),
            "--port",
            "0",
            "-o",
            "json",
        ]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*command, *options], stdout=pipe, stderr=pipe, text=True, env=os.environ | environment
        )
        started.append(process)
        return process

    yield server
    for process in started:
        process.kill()
        process.communicate()


def ready(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return json.loads(line)


def refusal(process: "subprocess.Popen[str]") -> str:
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    return " ".join(said.split())


def test_a_second_server_in_a_home_is_refused_before_it_touches_anything(tmp_path: Path, start: Start) -> None:
    home = tmp_path / "home"
    first = start(home)
    url = ready(first)["url"]
    coming = home / "store" / "incoming" / "an-upload-under-way"
    coming.write_text("half")
    access = (home / "access.json").read_text()
    said = refusal(start(home))
    assert f"another server runs in {home} (pid {first.pid}, {url})" in said and "--home" in said
    assert coming.read_text() == "half"
    assert (home / "access.json").read_text() == access


def test_a_server_that_was_killed_leaves_its_home_to_the_next(tmp_path: Path, start: Start) -> None:
    first = start(tmp_path)
    ready(first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert ready(start(tmp_path))["url"]


@pytest.mark.tenths
def test_nodes_of_a_box_read_no_other_file_of_settings_than_their_server(tmp_path: Path, start: Start) -> None:
    (tmp_path / "gangline.toml").write_text("[worker]\nslots = 3")
    access = ready(start(tmp_path / "home", "--nodes", "1", kind="up", GANGLINE_HOME=str(tmp_path)))
    with Client(access["url"], access["operator_key"]) as client:
        while not (nodes := [node for node in client.nodes.list() if node.state == "ready"]):
            Event().wait(0.1)
    assert [node.slots for node in nodes] == [1]


@pytest.mark.tenths
def test_servers_of_one_postgresql_share_no_home_and_need_one_bucket(
    tmp_path: Path, start: Start, database_server: Postgres
) -> None:
    database = database_server.make_database()
    ready(start(tmp_path / "a", GANGLINE_DATABASE_URL=database))
    assert "another server runs in" in refusal(start(tmp_path / "a", GANGLINE_DATABASE_URL=database))
    said = refusal(start(tmp_path / "b", GANGLINE_DATABASE_URL=database))
    assert f"another server ({os.uname().nodename}:{tmp_path / 'a'}) uses this database" in said
    assert "GANGLINE_OBJECTS" in said


def open_to_others(home: Path) -> list[Path]:
    """Return what others may read of a home, but for the log that who started a node keeps in it. A run's own user reads files of the cache
    by other names; nobody else comes through the folders above them. What a sandbox shows below /tmp has its folders in the room's own."""

    def is_made_by_the_sandbox(path: Path) -> bool:
        parts = path.relative_to(home).parts
        return parts[:1] == ("runs",) and parts[2:3] == (ROOM_TMP,) and len(parts) > 3 and path.is_dir()

    found = (path for path in (home, *below(home)) if path.name != "worker.log" and not is_made_by_the_sandbox(path))
    return [path for path in found if is_open(path)]


def is_open(path: Path) -> bool:
    with suppress(FileNotFoundError):  # runs come and go
        found = path.lstat()
        of_cache = stat.S_ISREG(found.st_mode) and (path.parent.name == "cache" or found.st_nlink > 1)
        return not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & (0o033 if of_cache else 0o077))
    return False


@pytest.mark.tenths
def test_what_lies_in_a_home_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    home, umask = tmp_path / "server", os.umask(0o022)
    home.mkdir(mode=0o755)
    try:
        with Box(tmp_path, lease_s=20, heartbeat_interval_s=0.5) as box:
            job = box.client.jobs.submit(upload_inputs(box.client, SUBJECT, str(BASE), [], SETTINGS)).summary.id
            node = box.start_node("node")
            runs, found = tmp_path / "node" / "runs", set[Path]()
            while box.client.jobs.get(job).summary.state not in {"succeeded", "failed"}:
                inputs = {path for path in below(runs) if path.parent.parent.name == "inputs"}
                assert not inputs or open_to_others(tmp_path / "node") == []
                found |= inputs
            assert box.client.jobs.get(job).summary.state == "succeeded" and found
            until(lambda: all(path.name != "spec.json" for path in below(runs)))  # the worker removes the run
            assert node.process.poll() is None
            assert {"gangline.sqlite", "gangline.sqlite-wal", "access.json", "store"} <= {
                p.name for p in home.iterdir()
            }
            assert open_to_others(home) == open_to_others(tmp_path / "node") == []
    finally:
        os.umask(umask)
