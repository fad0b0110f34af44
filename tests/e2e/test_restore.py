"""A restore for real: the database of an hour ago, and workers that know better."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.pools.local import LOG
from gangline.cli.admin.box import Box
from tests.e2e.test_death import LEASE_S, digest_of, expected, has_ended, is_safe_and_further, submit, until

__all__ = ["expected"]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as made:
        yield made


def backup(box: Box, *words: object) -> Any:
    command = [
        sys.executable,
        "-m",
        "gangline.cli.main",
        "backup",
        *map(str, words),
        "--home",
        str(box.home / "server"),
    ]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or (words == ("check",) and done.returncode == 1), done.stderr
    return json.loads(done.stdout)


def steps_in(path: Path) -> list[int]:
    """The steps of the checkpoints that a backup names."""
    with zipfile.ZipFile(path) as archive:
        columns = json.loads(archive.read("manifest.json"))["tables"]["checkpoint"]["columns"]
        rows = [row for line in archive.read("tables/checkpoint.jsonl").splitlines() for row in json.loads(line)]
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return sorted(row["step"] for row in found if row["state"] == "committed")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_job_that_trains_through_a_backup_and_a_restore_ends_with_the_same_bits(
    box: Box, tmp_path: Path, expected: str
) -> None:
    box.start_node("node-a")
    job = submit(box)
    until(box, job, is_safe_and_further(1))
    backup(box, "create", tmp_path / "b.zip")
    known = steps_in(tmp_path / "b.zip")[-1]
    until(box, job, lambda found: found.summary.committed_step > known)
    box.kill_server()
    found = backup(box, "restore", tmp_path / "b.zip", "--replace")
    assert found["ended_attempts"] == 1
    found = backup(box, "check")
    assert found["live_attempts"] == 0
    assert {each["kind"] for each in found["missing"]} <= {"checkpoint"}, "the attempt pruned an older one meanwhile"
    box.start_server()
    ended = until(box, job, has_ended)
    assert ended.summary.state == "succeeded", ended.summary.because
    assert [attempt.state for attempt in ended.attempts] == ["released", "succeeded"]
    assert "restored from a backup of" in ended.attempts[0].because
    assert ended.attempts[1].from_step == known
    assert "the lease is lost" in (box.home / "node-a" / LOG).read_text(), "the worker that held it was refused"
    assert digest_of(box, job, tmp_path / "results") == expected
    assert backup(box, "check")["whole"]
