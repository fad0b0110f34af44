"""What the end of an attempt means: one table, and blame only with contrast."""

from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.job import Attempt
from gangline.core.jobs.failure import (
    MEANING,
    STRIKE,
    NodeFailureKind,
    ServerFailureKind,
    after_failure,
    after_interruption,
    canceled,
    succeeded,
    wait_s,
)
from gangline.core.runs.contract import TrainerFailureKind
from tests.unit.examples import ATTEMPT, JOB, POLICY

HALF, QUARTER = STRIKE // 2, 1
TABLE = {  # blame, counts as a failed attempt, ban this machine, strike
    "bad data": ("job", True, True, STRIKE),
    "diverged": ("job", True, True, STRIKE),
    "no gradient": ("job", True, True, STRIKE),
    "out of memory": ("node", True, True, STRIKE),
    "disk full": ("node", True, True, STRIKE),
    "gpu error": ("node", True, True, STRIKE),
    "crashed": ("unknown", True, True, HALF),
    "no result": ("unknown", True, True, HALF),
    "download failed": ("network", True, False, QUARTER),
    "upload failed": ("network", True, False, QUARTER),
    "other numerics": ("job", False, True, 0),
    "other format": ("job", False, False, 0),
    "too old": ("node", False, True, 0),
    "no progress": ("node", True, True, STRIKE),
    "too slow": ("node", False, True, STRIKE),
    "throttled": ("node", False, True, QUARTER),
    "crowded": ("node", False, True, 0),
    "spilled": ("job", False, False, 0),
    "outpaced": ("node", False, False, 0),
    "kills its hosts": ("job", True, False, 0),
}


def test_every_kind_of_failure_has_a_meaning() -> None:
    kinds = {*get_args(TrainerFailureKind), *get_args(NodeFailureKind), *get_args(ServerFailureKind)}
    assert set(MEANING) == kinds == set(TABLE)


@pytest.mark.parametrize("kind", TABLE)
def test_a_first_failure_means_what_the_table_says(kind: str) -> None:
    blame, counts, ban, strike = TABLE[kind]
    verdict = after_failure(JOB, ATTEMPT, [], kind, "boom", POLICY)
    assert MEANING[kind].blame == blame
    assert (verdict.job, verdict.kind) == ("paused" if kind == "other format" else "queued", kind)
    assert (verdict.attempt, verdict.attempts_failed) == (("failed", 1) if counts else ("released", 0))
    assert (verdict.ban, verdict.strike) == (ban, strike)
    assert MEANING[kind].says in verdict.because and "boom" in verdict.because


@pytest.mark.parametrize("kind", [kind for kind in TABLE if TABLE[kind][1] and not MEANING[kind].confirm])
def test_whatever_counts_ends_the_job_when_it_has_failed_as_often_as_it_may(kind: str) -> None:
    last = after_failure(replace(JOB, attempts_failed=2), ATTEMPT, [], kind, "boom", POLICY)
    assert (last.job, last.attempts_failed) == ("failed", 3)
    assert "boom" in last.because and "3 times" in last.because


@pytest.mark.parametrize("kind", [kind for kind in TABLE if not TABLE[kind][1]])
def test_what_does_not_count_never_ends_the_job(kind: str) -> None:
    verdict = after_failure(replace(JOB, attempts_failed=2), ATTEMPT, [], kind, "", POLICY)
    assert (verdict.job, verdict.attempts_failed, verdict.wait_s) == (
        "paused" if kind == "other format" else "queued",
        2,
        0,
    )


def test_without_bans_a_machine_may_have_the_job_again() -> None:
    verdict = after_failure(JOB, ATTEMPT, [], "crashed", "boom", replace(POLICY, bans=False))
    assert (verdict.ban, verdict.strike, verdict.attempts_failed) == (False, HALF, 1)


def test_success_and_cancel_keep_the_count_and_blame_nobody() -> None:
    job = replace(JOB, attempts_failed=1)
    because = "canceled by its owner"
    for verdict, state in ((succeeded(job, "node-a"), "succeeded"), (canceled(job, because), "canceled")):
        assert (verdict.attempt, verdict.job, verdict.attempts_failed) == (state, state, 1)
        assert (verdict.ban, verdict.strike, verdict.kind) == (False, 0, "")


def failed(kind: str, machine: str, gpu: str = "A100") -> Attempt:
    return replace(ATTEMPT, state="failed", kind=kind, machine=machine, gpu=gpu)


@pytest.mark.parametrize("kind", ["bad data", "diverged", "no gradient"])
def test_the_job_is_to_blame_once_a_second_machine_says_so(kind: str) -> None:
    first = after_failure(JOB, ATTEMPT, [], kind, "a.png", POLICY)
    assert (first.job, first.wait_s) == ("queued", 0) and "a second machine is to confirm" in first.because
    second = after_failure(JOB, ATTEMPT, [failed(kind, "m-2")], kind, "a.png", POLICY)
    assert (second.job, second.strike) == ("failed", 0) and "so says a second machine" in second.because


def test_the_only_machine_may_confirm_itself() -> None:
    verdict = after_failure(JOB, ATTEMPT, [failed("bad data", ATTEMPT.machine)], "bad data", "a.png", POLICY)
    assert (verdict.job, verdict.strike) == ("failed", 0) and "the only machine here, twice" in verdict.because


def test_another_kind_of_failure_confirms_nothing() -> None:
    past = [failed("crashed", "m-2"), failed("diverged", "m-3")]
    assert after_failure(JOB, ATTEMPT, past, "bad data", "a.png", POLICY).job == "queued"


def test_out_of_memory_on_two_machines_of_a_class_is_a_need_of_the_job() -> None:
    verdict = after_failure(JOB, ATTEMPT, [failed("out of memory", "m-2")], "out of memory", "", POLICY)
    assert verdict.gpu_memory_gb > ATTEMPT.gpu_memory_gb
    assert (verdict.job, verdict.strike) == ("queued", 0) and "41 GB or more" in verdict.because


@pytest.mark.parametrize("before", [failed("out of memory", "m-2", "T4"), failed("out of memory", ATTEMPT.machine)])
def test_out_of_memory_on_one_machine_of_a_class_is_the_machines(before: Attempt) -> None:
    verdict = after_failure(JOB, ATTEMPT, [before], "out of memory", "", POLICY)
    assert (verdict.gpu_memory_gb, verdict.strike) == (0, STRIKE)


@pytest.mark.parametrize("released", [True, False])
def test_an_interruption_does_not_count_as_a_failure(released: bool) -> None:
    verdict = after_interruption(JOB, ATTEMPT, [], "node-a", POLICY, released=released)
    assert (verdict.job, verdict.attempts_failed, verdict.wait_s) == ("queued", 0, 0)
    assert (verdict.ban, verdict.strike) == (False, 0)
    assert verdict.attempt == ("released" if released else "interrupted")


def lost(machine: str, **changes: object) -> Attempt:
    return replace(ATTEMPT, state="interrupted", machine=machine, **changes)


THREE_IN_A_ROW = [lost("m-2"), lost("m-3")]


def test_three_machines_lost_in_a_row_are_one_failure_of_the_job() -> None:
    verdict = after_interruption(JOB, ATTEMPT, THREE_IN_A_ROW, "node-a", POLICY)
    assert (verdict.attempt, verdict.kind, verdict.attempts_failed) == ("interrupted", "kills its hosts", 1)
    assert (verdict.ban, verdict.strike) == (False, 0) and verdict.wait_s > 0
    assert "3 machines in a row fell silent" in verdict.because


def test_a_job_that_goes_on_killing_its_hosts_ends() -> None:
    job = replace(JOB, attempts_failed=2)
    assert after_interruption(job, ATTEMPT, THREE_IN_A_ROW, "node-a", POLICY).job == "failed"


NO_ROW = {
    "one machine, three times": [lost("m"), lost("m")],
    "two machines": [lost("m-2"), lost("m-2")],
    "a checkpoint was committed meanwhile": [lost("m-2"), lost("m-3", committed_step=5)],
    "it was blamed for this row before": [lost("m-2", kind="kills its hosts"), lost("m-3"), lost("m-4")],
    "one was handed back": [lost("m-2"), replace(lost("m-3"), state="released")],
    "one failed": [lost("m-2"), failed("crashed", "m-3")],
}


@pytest.mark.parametrize("why", NO_ROW)
def test_what_is_no_row_of_lost_machines_blames_nobody(why: str) -> None:
    verdict = after_interruption(JOB, ATTEMPT, NO_ROW[why], "node-a", POLICY)
    assert (verdict.kind, verdict.attempts_failed) == ("", 0)


def test_a_node_that_committed_before_it_was_lost_is_no_part_of_a_row() -> None:
    verdict = after_interruption(JOB, replace(ATTEMPT, committed_step=7), THREE_IN_A_ROW, "node-a", POLICY)
    assert (verdict.kind, verdict.attempts_failed) == ("", 0)


def test_the_wait_doubles_with_each_failure_up_to_a_bound() -> None:
    waits = [wait_s(count, POLICY) for count in range(40)]
    assert waits[:3] == [0, POLICY.retry_first_s, 2 * POLICY.retry_first_s]
    assert all(after in (2 * before, POLICY.retry_max_s) for before, after in pairwise(waits[1:]))
    assert waits[-1] == POLICY.retry_max_s


@given(st.integers(0, 10**9))
def test_no_wait_is_ever_longer_than_the_bound(count: int) -> None:
    assert 0 <= wait_s(count, POLICY) <= POLICY.retry_max_s
