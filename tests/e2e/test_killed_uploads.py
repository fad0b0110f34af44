"""A trainer and an agent are killed for real in the midst of an upload that streams: nothing is lost, and nothing stays in memory."""

import os
import secrets
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest

from gangline.adapters.pools.local import WORKER, LocalNode, start_node
from gangline.cli.admin.box import Box
from gangline.core.views import JobView
from tests import waiting
from tests.e2e.test_death import LEASE_S, has_ended, submit, trainers_below, until
from tests.proxy import Proxy

RANK = 860  # its checkpoints have 66 MB, in files of more than one part
BYTES_PER_S = 6e6
SHM = Path("/dev/shm")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as made:
        yield made


@pytest.fixture
def memory() -> Iterator[Path]:
    folder = SHM / f"gangline-test-{secrets.token_hex(8)}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def node_in(box: Box, name: str, memory: Path, server: str) -> LocalNode:
    """Start a node whose runs have this memory, and that reaches the server at this address."""
    command = (*WORKER, "--tmpfs", str(memory))
    node = start_node(name=name, home=box.home / name, server=server, join_token=box.join_token, command=command)
    box.nodes[name] = node
    return node


def streams(box: Box) -> list[int]:
    """Return the steps whose checkpoints are being uploaded while they are written, or are not complete in the store yet."""
    with closing(sqlite3.connect(f"file:{box.home / 'server' / 'gangline.sqlite'}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT key FROM upload WHERE sha256 = '' AND key LIKE '%/checkpoints/%'").fetchall()
    return [int(key.split("/checkpoints/")[1].split("/")[0]) for (key,) in rows]


def until_it_streams(box: Box, job: str) -> JobView:
    """Wait until a checkpoint is safe, and parts of the next one are on their way."""
    while True:
        found = until(box, job, lambda found: found.summary.committed_step > 0)
        if any(step > found.summary.committed_step for step in streams(box)):
            return found
        Event().wait(0.02)


def held_in(memory: Path) -> list[Path]:
    """Return what runs have in memory."""
    return [path for path in memory.rglob("*") if path.is_file()]


@pytest.mark.tenths
@pytest.mark.parametrize("victim", ["trainer", "agent"])
def test_a_kill_in_the_midst_of_a_streamed_upload_loses_nothing_that_was_safe_and_leaves_nothing_in_memory(
    box: Box, memory: Path, victim: str
) -> None:
    address = urlsplit(box.url)
    with Proxy((address.hostname or "", address.port or 0), bytes_per_s=BYTES_PER_S) as line:
        first = node_in(box, "node-a", memory, line.url)
        job = submit(box, steps=100_000, rank=RANK, checkpoint_every_steps=None)
        if victim == "trainer":
            until(box, job, lambda found: found.summary.node_name == "node-a")
            # It is here before the other one fails, which would else get the job again.
            node_in(box, "node-b", memory, box.url)
            waiting.until(lambda: "node-b" in {node.name for node in box.client.nodes.list()})
        safe = until_it_streams(box, job).summary.committed_step
        assert held_in(memory), "the checkpoint that streams lies in memory"
        if victim == "agent":
            first.kill()
        else:
            for process in trainers_below(box.home / "node-a"):
                os.kill(process, signal.SIGKILL)
        while trainers_below(box.home / "node-a"):
            Event().wait(0.01)
        if victim == "agent":
            node_in(box, "node-b", memory, box.url)  # removes, as it starts, what the other one has left in memory
        again = until(box, job, lambda found: found.attempts[-1].node_name == "node-b" and found.summary.step > safe)
        assert again.attempts[0].state == ("interrupted" if victim == "agent" else "failed")
        assert again.attempts[-1].from_step >= safe
        box.client.jobs.finish(job)
        ended = until(box, job, has_ended)
        assert ended.summary.state == "succeeded"
        while held_in(memory):  # the run is removed once its end is known
            Event().wait(0.05)
        first.kill()  # it does not reach the server any more, to which it would give back what it has
