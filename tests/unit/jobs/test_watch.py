"""When the server ends an attempt: its node is silent, or nothing comes of it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.jobs.lease import is_overdue
from gangline.core.jobs.watch import WatchedAttempt, no_progress
from gangline.core.policy import Policy

LEASES = Policy(lease_s=10, heartbeat_interval_s=1, node_silent_s=30)
POLICY = Policy(start_s=100, stall_s=20, commit_s=50)
STARTING = WatchedAttempt(
    phase="preparing", step=0, started_ms=0, training_ms=None, stepped_ms=0, committed_ms=None, save_s=1
)
TRAINING = replace(STARTING, phase="training", step=7, training_ms=100_000, stepped_ms=100_000)


def test_a_lease_ends_when_it_is_overdue_and_not_before() -> None:
    assert not is_overdue(expires_ms=100_000, now_ms=100_000, up_since_ms=0, policy=LEASES)
    assert is_overdue(expires_ms=100_000, now_ms=100_001, up_since_ms=0, policy=LEASES)


def test_after_an_outage_of_our_own_no_lease_ends_before_one_lease_time() -> None:
    assert not is_overdue(expires_ms=0, now_ms=109_999, up_since_ms=100_000, policy=LEASES)
    assert is_overdue(expires_ms=0, now_ms=110_000, up_since_ms=100_000, policy=LEASES)


LATE: dict[str, tuple[WatchedAttempt, int]] = {  # the sentence; who; and how long in milliseconds is still fine
    "no step for": (STARTING, 100_000),
    "no step after 7 for": (TRAINING, 120_000),
    "no new checkpoint in the object store for": (replace(TRAINING, stepped_ms=10**9), 150_000),
}


@pytest.mark.parametrize("sentence", LATE)
def test_an_attempt_that_comes_to_nothing_is_given_up_after_a_bound_and_not_before(sentence: str) -> None:
    watched, fine_ms = LATE[sentence]
    assert no_progress(watched, fine_ms, 0, POLICY) is None
    because = no_progress(watched, fine_ms + 1, 0, POLICY)
    assert because is not None and because.startswith(sentence)


def test_a_commit_counts_from_the_last_one() -> None:
    stepping = replace(TRAINING, stepped_ms=10**9, committed_ms=140_000)
    assert no_progress(stepping, 190_000, 0, POLICY) is None
    assert no_progress(stepping, 190_001, 0, POLICY)


def test_a_job_that_saves_seldom_is_given_twice_that_time() -> None:
    seldom = replace(TRAINING, stepped_ms=10**9, save_s=60)
    assert no_progress(seldom, 220_000, 0, POLICY) is None
    assert no_progress(seldom, 220_001, 0, POLICY)


@pytest.mark.parametrize("phase", ["saving", "uploading"])
def test_saving_and_uploading_are_no_stalls(phase: Any) -> None:
    assert no_progress(replace(TRAINING, phase=phase), 149_999, 0, POLICY) is None


@given(
    watched=st.builds(
        WatchedAttempt,
        phase=st.sampled_from(["starting", "downloading", "preparing", "training", "saving", "uploading"]),
        step=st.integers(0, 100),
        started_ms=st.integers(0, 10**6),
        training_ms=st.none() | st.integers(0, 10**6),
        stepped_ms=st.integers(0, 10**6),
        committed_ms=st.none() | st.integers(0, 10**6),
        save_s=st.floats(0, 100),
    ),
    up_since_ms=st.integers(0, 10**7),
    after_ms=st.integers(0, 10**7),
)
def test_what_happened_while_we_were_away_is_nobodys_fault(
    watched: WatchedAttempt, up_since_ms: int, after_ms: int
) -> None:
    if no_progress(watched, up_since_ms + after_ms, up_since_ms, POLICY):
        assert after_ms > 1000 * min(POLICY.stall_s, POLICY.start_s, POLICY.commit_s)
