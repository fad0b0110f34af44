"""A job that says `exact = required` goes on only where its bits stay the same, and says what it waits for."""

import os
from pathlib import Path

import pytest

from gangline.cli.admin.box import Box
from tests.e2e.test_death import box, digest_of, expected, has_ended, is_safe_and_further, submit, until

__all__ = ["box", "expected"]


@pytest.mark.tenths
def test_it_waits_for_a_node_of_the_same_numerics_and_ends_with_the_same_bits(
    box: Box, tmp_path: Path, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = box.start_node("node-a")
    job = submit(box, exact="required")
    until(box, job, is_safe_and_further(3))
    first.kill()
    threads = os.environ["OMP_NUM_THREADS"]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    box.start_node("node-b")
    waiting = until(box, job, lambda found: "the same numerics" in found.summary.because)
    assert "must resume with the same numerics, and node-b has others" in waiting.summary.because
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    box.start_node("node-c")
    ended = until(box, job, has_ended)
    assert [attempt.node_name for attempt in ended.attempts] == ["node-a", "node-c"]
    assert digest_of(box, job, tmp_path / "results") == expected
