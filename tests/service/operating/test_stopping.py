"""A server that gets SIGTERM is first not ready, then finishes the requests under way, and leaves every lease as it is."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import httpx
import pytest

from gangline.api.serve import FINISHING_S
from tests.contract.test_migrations import DATA
from tests.waiting import until

TOKEN = "m" * 32
SETTINGS = {
    "GANGLINE_DRAIN_S": "600",
    "GANGLINE_LOG_FORMAT": "json",
    "GANGLINE_ACCESS_LOG": "1",
    "GANGLINE_METRICS_TOKEN": TOKEN,
}


@dataclass
class Running:
    home: Path
    url: str
    key: str
    process: subprocess.Popen[str]
    log: Path

    def status(self, path: str) -> int:
        return httpx.get(self.url + path, headers={"Authorization": f"Bearer {self.key}"}).status_code

    def lines(self) -> list[dict[str, object]]:
        """Everything that was logged: each line is an object."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GANGLINE_")}
    command = (sys.executable, "-m", "gangline.cli.main", "server", "--home", str(tmp_path / "home"), "--port", "0")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            (*command, "-o", "json"), stdout=subprocess.PIPE, stderr=log, text=True, env=own | SETTINGS
        )
        try:
            assert process.stdout
            said = json.loads(process.stdout.readline())
            yield Running(tmp_path / "home", said["url"], said["operator_key"], process, tmp_path / "log")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def leases(home: Path) -> int:
    with closing(sqlite3.connect(home / "gangline.sqlite")) as database:
        return database.execute("SELECT COUNT(*) FROM lease").fetchone()[0]


def ticked_ms(home: Path) -> int:
    with closing(sqlite3.connect(home / "gangline.sqlite")) as database:
        return database.execute("SELECT ticked_ms FROM service").fetchone()[0]


def test_a_server_that_stops_fails_its_readiness_first_and_touches_no_lease(server: Running) -> None:
    with closing(sqlite3.connect(server.home / "gangline.sqlite", timeout=30)) as database:
        database.executescript(DATA.replace("50000", "9007199254740991"))
    assert (server.status("/readyz"), leases(server.home)) == (200, 1)
    assert httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert server.status("/v1/jobs/no-such-job?name=a-secret") == 404

    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.status("/readyz") == 503)
    assert httpx.get(f"{server.url}/readyz").json()["checks"][0]["name"] == "stopping"
    assert (server.status("/healthz"), server.status("/v1/jobs")) == (200, 200)
    drained_ms = ticked_ms(server.home)
    until(lambda: ticked_ms(server.home) > drained_ms)  # who is answered is looked after, too

    server.process.send_signal(signal.SIGTERM)  # whoever is in a hurry
    assert server.process.wait(60) == 0
    assert leases(server.home) == 1

    asked = [line for line in server.lines() if line["logger"] == "gangline.access"]
    assert {"/readyz", "/metrics", "/healthz", "/v1/jobs", "/v1/jobs/{job}"} == {line["route"] for line in asked}
    assert {line["status"] for line in asked if line["route"] == "/readyz"} == {200, 503}
    text = server.log.read_text()
    assert [secret for secret in (server.key, TOKEN, "a-secret", "no-such-job") if secret in text] == []


def test_a_request_that_has_begun_is_finished_before_a_server_ends(server: Running) -> None:
    begun, stopping = Event(), Event()

    def body() -> Iterator[bytes]:
        yield b'{"kind": '
        begun.set()
        stopping.wait()
        yield b'"none"}'

    def post() -> int:
        own = {"Authorization": f"Bearer {server.key}", "Content-Length": "16"}
        return httpx.post(f"{server.url}/v1/jobs", headers=own, content=body(), timeout=60).status_code

    with ThreadPoolExecutor(1) as asking:
        answer = asking.submit(post)
        begun.wait()
        stop_in_a_hurry(server)
        until(lambda: not listens(server))
        stopping.set()
        assert answer.result() == 422
    assert server.process.wait(60) == 0


def test_a_server_with_nothing_under_way_ends_at_once_although_a_connection_is_kept(server: Running) -> None:
    with httpx.Client() as kept:
        assert kept.get(f"{server.url}/healthz").status_code == 200
        stop_in_a_hurry(server)
        assert server.process.wait(FINISHING_S / 2) == 0


def stop_in_a_hurry(server: Running) -> None:
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.status("/readyz") == 503)
    server.process.send_signal(signal.SIGTERM)


def listens(server: Running) -> bool:
    try:
        httpx.get(f"{server.url}/healthz")
    except httpx.TransportError:
        return False
    return True
