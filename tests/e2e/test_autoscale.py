"""`gangline up --nodes 0..2` for real: nodes come with the work, are replaced when they die, go without it, and die with the server."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.admin.box import Box
from gangline.cli.jobs.train import upload_inputs
from tests.conftest import BASE, SUBJECT
from tests.waiting import until

SETTINGS: dict[str, Any] = {
    "prompt": "sks cat face, fluent emoji",
    "steps": 40,
    "resolution": 64,
    "batch_size": 2,
    "learning_rate": 1e-3,
    "rank": 4,
    "checkpoint_every_steps": 10,
    "sample_steps": 2,
    "sample_seeds": (1,),
}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path / "box", lease_s=3.0, heartbeat_interval_s=0.3, price_usd_per_hour=0.36, up_nodes="0..2") as made:
        yield made


def submit(box: Box, **settings: Any) -> str:
    return box.client.jobs.submit(upload_inputs(box.client, SUBJECT, str(BASE), [], SETTINGS | settings)).summary.id


def processes(*words: str) -> list[int]:
    """Those with all of `words` in their command lines and the folders that they are in, as a trainer that stood by is; a zombie has
    neither."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit():
                said = f"{(process / 'cmdline').read_bytes().decode()} {(process / 'cwd').readlink()}"
                found += [int(process.name)] * all(word in said for word in words)
    return found


def is_training(box: Box, job: str, *, committed: int = 0) -> Callable[[], bool]:
    def look() -> bool:
        now = box.client.jobs.get(job).summary
        assert now.state in ("queued", "running"), (now.because, box.client.logs.get(job).text)
        return now.phase == "training" and now.committed_step >= committed

    return look


def has_ended(box: Box, job: str) -> Callable[[], bool]:
    return lambda: box.client.jobs.get(job).summary.ended_ms is not None


def test_a_node_is_rented_within_two_seconds_of_the_job_however_seldom_the_server_ticks(tmp_path: Path) -> None:
    with Box(tmp_path / "box", lease_s=45.0, heartbeat_interval_s=10.0, up_nodes="0..1") as box:
        submit(box)
        with closing(sqlite3.connect(box.home / "server" / "gangline.sqlite")) as database:

            def waited_ms() -> list[int]:
                asked = "SELECT node.since_ms - job.queued_ms FROM job, node WHERE node.rented = 1"
                return [row[0] for row in database.execute(asked)]

            until(lambda: bool(waited_ms()))
            assert waited_ms()[0] < 2_000


@pytest.mark.tenths
def test_nodes_come_with_the_work_are_replaced_when_they_die_and_go_without_it(box: Box) -> None:
    assert list(box.client.nodes.list()) == []
    jobs = [submit(box, steps=90), submit(box), submit(box)]
    until(is_training(box, jobs[0], committed=10))
    (killed,) = [node for node in box.client.nodes.list() if [each.job for each in node.jobs] == [jobs[0]]]
    (pid,) = processes("worker", killed.id)
    os.kill(pid, signal.SIGKILL)
    for job in jobs:
        until(has_ended(box, job))
    ended = [box.client.jobs.get(job) for job in jobs]
    assert [job.summary.state for job in ended] == ["succeeded"] * 3, [job.summary.because for job in ended]
    assert [attempt.state for attempt in ended[0].attempts] == ["interrupted", "succeeded"]
    assert ended[0].attempts[1].node != killed.id and ended[0].attempts[1].from_step >= 10
    until(lambda: list(box.client.nodes.list()) == [] and processes("worker", str(box.home)) == [])
    assert len(list((box.home / "server" / "nodes").iterdir())) == 2
    until(lambda: "ends: idle for" in (box.home / "server.log").read_text())
    assert box.stop_server() == 0
    assert processes(str(box.home)) == []


def test_a_server_that_is_told_to_stop_takes_its_nodes_with_it_and_no_step_is_lost(box: Box) -> None:
    job = submit(box, steps=100_000, checkpoint_every_steps=None)
    until(is_training(box, job))
    assert len(processes(str(box.home))) >= 3
    assert box.stop_server() == 0
    assert processes(str(box.home)) == []
    box.start_server()
    (attempt, *_) = box.client.jobs.get(job).attempts
    assert (attempt.state, attempt.step) == ("released", box.client.jobs.get(job).summary.committed_step)


@pytest.mark.tenths
def test_a_server_that_is_killed_takes_its_nodes_with_it_and_has_new_ones_when_it_comes_back(box: Box) -> None:
    job = submit(box, steps=100_000)
    until(is_training(box, job, committed=10))
    assert len(processes(str(box.home))) >= 3
    box.kill_server()
    until(lambda: processes(str(box.home)) == [])
    box.start_server()
    until(lambda: len(box.client.jobs.get(job).attempts) == 2)
    until(is_training(box, job))
    first, second = box.client.jobs.get(job).attempts
    assert (first.state, second.from_step >= 10) == ("interrupted", True)
    assert first.node != second.node
