"""A release's own code, out of the history, beside today's: its worker, its commands, its server that is replaced at work, and the way
back."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from gangline.adapters.pools.local import LOG
from gangline.cli.admin.box import Box
from gangline.compose.access import ACCESS
from tests.conftest import BASE, SUBJECT
from tests.e2e.test_death import LEASE_S, digest_of, expected, has_ended, is_safe_and_further, submit, until
from tests.upgrade.make import code_of, environment_of

__all__ = ["expected"]

RELEASE, COMMIT = "0.2.0", "620eb423"
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


class OfRelease:
    """Switches which code the processes run that are started from now on."""

    def __init__(self, code: Path, patch: pytest.MonkeyPatch) -> None:
        self.environment = environment_of(code)
        self._patch = patch

    def begin(self) -> None:
        self._patch.setenv("PYTHONPATH", self.environment["PYTHONPATH"])

    def end(self) -> None:
        self._patch.delenv("PYTHONPATH")


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    if not any(code_of(name, folder) for name in (f"v{RELEASE}", COMMIT)):
        pytest.fail(
            f"this history lacks release {RELEASE}: run `git fetch --tags`, and `git fetch --unshallow` in a shallow clone"
        )
    return folder


@pytest.fixture
def release(code: Path) -> Iterator[OfRelease]:
    with pytest.MonkeyPatch.context() as patch:
        yield OfRelease(code, patch)


def version_of(box: Box) -> str:
    return httpx.get(f"{box.url}/healthz").json()["version"]


def log_of(box: Box, node: str) -> str:
    return (box.home / node / LOG).read_text()


def run(box: Box, environment: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline.cli.main", *words]
    home = {"GANGLINE_HOME": str(box.home / "server")}
    return subprocess.run(command, env={**environment, **home}, capture_output=True, text=True, check=False)


def gangline(box: Box, environment: Mapping[str, str], *words: str) -> str:
    """Run a command against the server."""
    done = run(box, environment, *words)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def gangline_of(release: OfRelease, box: Box, *words: str) -> str:
    return gangline(box, release.environment, *words)


def contents_of(home: Path) -> dict[str, bytes]:
    """Return what a server has in its home, but the lock and its own addresses, which each start writes."""
    files = {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "server.lock"}
    access = json.loads(files[str(home / ACCESS)])
    secrets = {name: value for name, value in access.items() if name not in ("url", "public_url")}
    return files | {str(home / ACCESS): json.dumps(secrets).encode()}


def test_a_server_is_replaced_by_todays_while_its_worker_trains(
    release: OfRelease, tmp_path: Path, expected: str
) -> None:
    release.begin()
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as box:
        assert version_of(box) == RELEASE
        box.start_node("old")
        job = submit(box)
        before = until(box, job, is_safe_and_further(1))
        release.end()
        assert box.stop_server() == 0
        box.start_server()
        assert version_of(box) != RELEASE
        for words in ("nodes ls", "jobs ls --state running", "backup check"):  # as docs/operate/upgrade.md says
            assert gangline(box, os.environ, *words.split()), words
        ended = until(box, job, has_ended)
        assert ended.summary.state == "succeeded", ended.summary.because
        assert [attempt.id for attempt in ended.attempts] == [before.attempts[0].id], "no lease was lost"
        assert "the lease is lost" not in log_of(box, "old")
        assert "no longer knows" not in log_of(box, "old")
        assert digest_of(box, job, tmp_path / "results") == expected


def submitted_by(release: OfRelease, box: Box) -> str:
    """Submit a job with the release's `gangline train` and return its id."""
    settings = {"prompt": "sks cat face", "steps": "900", "resolution": "64", "rank": "4", "base": str(BASE)}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    return gangline_of(release, box, "train", str(SUBJECT), *words, "--detach").strip()


def test_its_worker_and_its_commands_work_with_todays_server(release: OfRelease, tmp_path: Path, expected: str) -> None:
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as box:
        release.begin()
        old = box.start_node("old")
        release.end()
        job = submit(box)
        until(box, job, is_safe_and_further(1))
        old.kill()
        box.start_node("new")
        assert RELEASE in gangline_of(release, box, "--version")
        for words in ("jobs ls", f"jobs show {job}", "nodes ls", "events --after 0", "costs", "report"):
            assert gangline_of(release, box, *words.split()), words
        until(box, job, lambda found: found.attempts[-1].node_name == "new")  # before there is another one
        another = submitted_by(release, box)
        gangline_of(release, box, "jobs", "pause", another)
        until(box, another, lambda found: found.summary.state == "paused")
        gangline_of(release, box, "jobs", "resume", another)
        until(box, another, lambda found: found.summary.state != "paused")
        gangline_of(release, box, "jobs", "cancel", another)
        until(box, another, lambda found: found.summary.state == "canceled")
        ended = until(box, job, has_ended)
        assert [(attempt.node_name, attempt.state) for attempt in ended.attempts] == [
            ("old", "interrupted"),
            ("new", "succeeded"),
        ]
        assert ended.attempts[1].from_step > 0
        place = tmp_path / "results"
        gangline_of(release, box, "artifacts", job, "--to", str(place))
        assert digest_of(box, job, tmp_path / "again") == expected
        assert {path.name for path in place.rglob("*.safetensors")} >= {
            path.name for path in (tmp_path / "again").rglob("*.safetensors")
        }


def test_its_server_refuses_todays_database_in_one_sentence_and_changes_nothing(
    release: OfRelease, tmp_path: Path
) -> None:
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as box:
        job = submit(box)
        assert box.stop_server() == 0
        home, port = box.home / "server", box.url.rpartition(":")[2]
        before = contents_of(home)
        done = run(box, release.environment, "server", "--home", str(home), "--port", port)
        assert done.returncode == 2
        newer = r"error: the database \S+ was written by a newer Gangline \(schema \d+; this one knows up to \d+\)"
        assert re.fullmatch(rf"{newer}\nhint: upgrade Gangline\n", done.stderr), done.stderr
        assert contents_of(home) == before
        box.start_server()
        assert box.client.jobs.get(job).summary.state == "queued"
