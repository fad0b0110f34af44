"""When the demo kills its node."""

from dataclasses import replace

import pytest

from gangline.cli.tools.demo import is_time_to_kill
from tests.unit.cli.test_lines import summary

JOB = replace(summary(), phase="training", steps=300)


@pytest.mark.parametrize(
    ("step", "committed", "is_time"),
    [(30, 0, False), (70, 50, True), (69, 50, False), (199, 190, False), (201, 200, True), (200, 200, False)],
)
def test_the_node_is_killed_some_steps_after_a_checkpoint_and_late_in_a_job_after_any(
    step: int, committed: int, *, is_time: bool
) -> None:
    assert is_time_to_kill(replace(JOB, step=step, committed_step=committed), 20) is is_time


def test_a_node_that_is_saving_is_left_alone() -> None:
    assert not is_time_to_kill(replace(JOB, phase="saving", step=100, committed_step=50), 20)
