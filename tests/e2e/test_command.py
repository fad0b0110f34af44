"""A command of a user's on the fleet, as processes: killed on one node, it goes on at another, and ends as if nothing had been."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.cli.admin.box import Box
from gangline.cli.tools.run import upload
from gangline.core.specs.command import parse_command
from tests.e2e.test_death import has_ended, until
from tests.exec.chain import state_after

LEASE_S = 3.0
CHAIN = Path(__file__).parents[1] / "exec" / "chain.py"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path / "box", lease_s=LEASE_S, heartbeat_interval_s=0.3) as made:
        yield made


def submit(box: Box, *command: str, **settings: object) -> str:
    code = upload(box.client, CHAIN.parent, [CHAIN], [])
    spec = parse_command({"command": ["python", "chain.py", *command], **code, **settings}, options=True)
    return box.client.submit(spec).summary.id


def test_a_command_that_is_killed_twice_on_two_nodes_ends_as_if_nothing_had_been(box: Box, tmp_path: Path) -> None:
    steps = 120
    job = submit(box, "output", str(steps), "--every", "10", "--step-s", "0.1")
    for number in (1, 2):
        box.start_node(f"node-{number}")
        until(box, job, lambda found, number=number: found.summary.committed_step >= 30 * number)
        box.nodes[f"node-{number}"].kill()
    box.start_node("node-3")
    ended = until(box, job, has_ended)
    assert ended.summary.state == "succeeded", ended.summary.because
    assert [attempt.state for attempt in ended.attempts] == ["interrupted", "interrupted", "succeeded"]
    assert [attempt.from_step for attempt in ended.attempts][1] >= 30
    (result,) = box.client.artifacts(job)
    assert box.client.download(result, tmp_path).read_text() == state_after(steps)
    log = box.client.logs(job).text
    assert "run 3 resumes from checkpoint-" in log and "cannot resume" not in log
