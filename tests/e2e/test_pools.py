"""A pool that an operator adds to a running server: it is checked, trains, and is removed. Its provider is the server's own machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.admin.box import Box
from tests.e2e.test_autoscale import has_ended, processes, submit
from tests.waiting import until


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path / "box", lease_s=3.0, heartbeat_interval_s=0.3) as made:
        yield made


def gangline(box: Box, *typed: str) -> tuple[int, Any, str]:
    """Run a command as the operator of the box. Return its exit code, what it printed as JSON, and what it said."""
    home = {"GANGLINE_HOME": str(box.home / "server"), "GANGLINE_SERVER": box.url}
    ended = subprocess.run(
        [sys.executable, "-m", "gangline.cli.main", *typed, "-o", "json"],
        env=os.environ | home,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else None, ended.stderr


@pytest.mark.tenths
def test_a_pool_is_added_checked_trains_and_is_removed_without_a_trace(box: Box) -> None:
    code, made, said = gangline(box, "pools", "add", "here", "--driver", "local", "--nodes", "0..1")
    assert code == 0 and made["state"] == "active", said

    code, _, said = gangline(box, "pools", "check", "here")
    assert code == 2 and "the price of local is not known" in said

    code, found, said = gangline(box, "pools", "check", "here", "--any-price", "--minutes", "10")
    assert code == 0 and found["passed"], said
    reached = {each["stage"] for each in found["stages"]}
    assert {"rented", "joined", "passed", "training", "saved", "finished", "gone"} <= reached
    (bill,) = found["bills"]
    assert found["left"] == [] and bill["settled"] and bill["billed"][0]["to_ms"]
    assert "training" in {time["cause"] for time in bill["times"]}
    assert list(box.client.nodes.list()) == [] and processes("worker", str(box.home)) == []
    assert all(each.billed_to_ms for each in box.client.pools.instances("here"))

    job = submit(box, needs={"pool": "here"})
    until(has_ended(box, job))
    assert box.client.jobs.get(job).summary.state == "succeeded", box.client.jobs.get(job).summary.because
    code, _, said = gangline(box, "pools", "rm", "here")
    assert code == 0, said
    until(lambda: list(box.client.pools.list()) == [])
    assert list(box.client.nodes.list()) == [] and processes("worker", str(box.home)) == []
