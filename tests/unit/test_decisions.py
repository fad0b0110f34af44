"""The service's decisions, which are pure: what an end means, when a lease is over, what is kept, what it costs."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.claim import Candidate, Choice, Nothing, choose
from gangline.core.contract import FailureKind as TrainerFailureKind
from gangline.core.contract import Manifest, parse_manifest
from gangline.core.cost import HOUR_MS, lost, time_cost_micro_usd
from gangline.core.errors import Damaged
from gangline.core.failure import MEANING, NodeFailureKind, after_failure, after_interruption
from gangline.core.files import File
from gangline.core.job import Attempt, Job, Node
from gangline.core.lease import is_overdue
from gangline.core.policy import Policy
from gangline.core.retention import Kept, to_prune

JOB = Job(id="j", project="p", state="running", fencing=1, version=1, attempts_failed=0, attempts_max=3)
NODE = Node(id="n", machine="m", name="node-a", slots=1, slots_free=1, price_micro_usd_per_hour=324_000)
ATTEMPT = Attempt(
    id="a",
    job="j",
    node="n",
    fencing=1,
    state="succeeded",
    slots=1,
    price_micro_usd_per_hour=324_000,
    from_step=0,
    step=0,
    seconds_per_step=None,
    started_ms=0,
    training_ms=None,
    beat_ms=0,
    ended_ms=None,
)


def test_every_kind_of_failure_has_a_meaning() -> None:
    assert set(MEANING) == set(get_args(TrainerFailureKind)) | set(get_args(NodeFailureKind))


@pytest.mark.parametrize("released", [True, False])
def test_an_interruption_does_not_count_as_a_failure(released: bool) -> None:
    verdict = after_interruption(JOB, "node-a", released=released)
    assert (verdict.job, verdict.attempts_failed) == ("queued", 0)
    assert verdict.attempt == ("released" if released else "interrupted")


def test_a_crash_is_tried_again_until_the_most_that_it_may() -> None:
    first = after_failure(JOB, "crashed", "boom")
    assert (first.job, first.attempts_failed) == ("queued", 1)
    last = after_failure(replace(JOB, attempts_failed=2), "crashed", "boom")
    assert (last.job, last.attempts_failed) == ("failed", 3)
    assert "boom" in last.because and "3 times" in last.because


def test_bad_input_ends_the_job_at_once() -> None:
    assert after_failure(JOB, "bad data", "a.png is no image").job == "failed"


def test_a_lease_ends_when_it_is_overdue_and_not_before() -> None:
    policy = Policy(lease_s=10, heartbeat_interval_s=1, node_silent_s=30)
    assert not is_overdue(expires_ms=100_000, now_ms=100_000, up_since_ms=0, policy=policy)
    assert is_overdue(expires_ms=100_000, now_ms=100_001, up_since_ms=0, policy=policy)


def test_after_an_outage_of_our_own_no_lease_ends_before_one_lease_time() -> None:
    policy = Policy(lease_s=10, heartbeat_interval_s=1, node_silent_s=30)
    assert not is_overdue(expires_ms=0, now_ms=109_999, up_since_ms=100_000, policy=policy)
    assert is_overdue(expires_ms=0, now_ms=110_000, up_since_ms=100_000, policy=policy)


def test_a_node_without_a_free_slot_gets_nothing_and_hears_why() -> None:
    answer = choose([Candidate(id="j", project="p", fencing=0, version=1)], replace(NODE, slots_free=0))
    assert answer == Nothing("all 1 slots of node-a are taken")


def test_the_queue_order_decides_and_the_choice_says_why() -> None:
    interrupted = Candidate(id="old", project="p", fencing=1, version=4)
    fresh = Candidate(id="new", project="p", fencing=0, version=1)
    answer = choose([interrupted, fresh], NODE)
    assert isinstance(answer, Choice) and answer.job == interrupted and "interruption" in answer.because


checkpoints = st.lists(st.booleans(), max_size=8).map(
    lambda verified: [Kept(id=str(n), step=100 - n, verified=is_verified) for n, is_verified in enumerate(verified)]
)


@given(checkpoints, st.integers(2, 5))
def test_pruning_keeps_the_newest_and_never_the_last_verified_goes(known: list[Kept], keep: int) -> None:
    gone = to_prune(known, keep=keep)
    left = [checkpoint for checkpoint in known if checkpoint not in gone]
    assert left[:keep] == known[:keep]
    assert any(checkpoint.verified for checkpoint in left) == any(checkpoint.verified for checkpoint in known)
    assert len(left) <= keep + 1


def test_an_hour_costs_the_price_of_an_hour() -> None:
    assert time_cost_micro_usd(price_micro_usd_per_hour=324_000, from_ms=5, to_ms=5 + HOUR_MS) == 324_000


@given(st.integers(0, 10**8), st.lists(st.integers(0, 10**7), min_size=1, max_size=20))
def test_parts_of_a_time_cost_what_the_whole_costs_within_half_a_micro_dollar_each(
    price: int, parts: list[int]
) -> None:
    at, total = 0, 0
    for part in parts:
        total += time_cost_micro_usd(price_micro_usd_per_hour=price, from_ms=at, to_ms=at + part)
        at += part
    whole = time_cost_micro_usd(price_micro_usd_per_hour=price, from_ms=0, to_ms=at)
    assert abs(total - whole) <= (len(parts) + 1) / 2


def test_what_an_interruption_cost_is_the_wait_and_the_steps_done_again() -> None:
    first = replace(ATTEMPT, state="interrupted", step=65, beat_ms=10_000)
    second = replace(ATTEMPT, from_step=50, step=300, training_ms=22_000, seconds_per_step=0.1, beat_ms=50_000)
    found = lost([first, second])
    assert (found.interruptions, found.steps_redone, found.ms) == (1, 15, 12_000 + 1_500)


def test_nothing_is_lost_without_an_interruption() -> None:
    found = lost([replace(ATTEMPT, state="failed"), ATTEMPT])
    assert (found.interruptions, found.steps_redone, found.ms) == (0, 0, 0)


MANIFEST = Manifest(
    step=7,
    spec_hash="c" * 64,
    fingerprint={"torch": "2"},
    exact=True,
    files=(File(path="w", bytes=3, sha256="a" * 64),),
)


def test_a_manifest_survives_json() -> None:
    assert parse_manifest(MANIFEST.to_json()) == MANIFEST


@given(st.sampled_from(sorted(MANIFEST.to_json())), st.one_of(st.none(), st.integers(), st.text(), st.lists(st.none())))
def test_a_manifest_that_was_changed_anywhere_is_damaged(name: str, value: object) -> None:
    changed = MANIFEST.to_json() | {name: value}
    if changed != MANIFEST.to_json():
        with pytest.raises(Damaged):
            parse_manifest(changed)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_no_manifest_is_damaged(value: object) -> None:
    with pytest.raises(Damaged):
        parse_manifest(value)
