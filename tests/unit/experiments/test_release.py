"""When a held job of an experiment is released."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.core.experiments.release import Release, next_release
from gangline.core.experiments.runs import ExperimentRun
from tests.unit.experiments.many import PRICE, STEPS, experiment, fleet, run


def decide(runs: list[ExperimentRun], **terms: Any) -> Release:
    return next_release(experiment(**terms), runs)


def released(runs: list[ExperimentRun], **terms: Any) -> list[int]:
    return [each.number for each in decide(runs, **terms).jobs]


def running(number: int, **given: Any) -> ExperimentRun:
    return run(number, **({"held": False, "state": "running"} | given))


def test_jobs_are_released_in_their_order_until_as_many_are_in_progress_as_may_be() -> None:
    runs = [running(1), running(2, state="succeeded"), *map(run, range(3, 9))]
    assert released(runs, at_once=3) == [3, 4]
    assert decide(runs, at_once=3).because == "3 jobs in progress; 4 held: 3 jobs at a time"
    assert released(runs) == [3, 4, 5, 6, 7, 8]


def test_a_paused_job_leaves_its_place_to_the_next() -> None:
    assert released([running(1, state="paused", pausing=True), run(2)], at_once=1) == [2]


def test_a_job_that_waits_for_another_node_keeps_its_place() -> None:
    assert released([running(1, state="queued", step=10), run(2)], at_once=1) == []


def test_one_job_of_those_that_share_prepared_files_goes_first_until_it_trains() -> None:
    runs = [run(1, prepares="a"), run(2, prepares="a"), run(3, prepares="b"), run(4, prepares="")]
    assert released(runs) == [1, 3, 4]
    began = [running(1, prepares="a"), *runs[1:]]
    assert released(began) == [3, 4]
    assert "the first one prepares latents and embeddings for them" in decide(began).because
    assert released([running(1, prepares="a", trained=True), *runs[1:]]) == [2, 3, 4]


@pytest.mark.parametrize("state", ["failed", "canceled", "paused"])
def test_a_first_one_that_ended_before_it_trained_leaves_that_to_the_next(state: str) -> None:
    assert released([running(1, prepares="a", state=state), run(2, prepares="a"), run(3, prepares="a")]) == [2]


def test_nothing_is_released_that_the_budget_would_not_pay_for() -> None:
    ended = running(1, state="succeeded", step=STEPS, micro_usd=STEPS * PRICE)
    runs = [ended, running(2, step=50, micro_usd=50 * PRICE), run(3), run(4)]
    assert released(runs, budget=300 * PRICE) == [3]
    assert released(runs, budget=299 * PRICE) == []
    says = decide(runs, budget=299 * PRICE).because
    assert "the budget of $0.30 does not allow the next, for about $0.10" in says
    assert released(runs, budget=400 * PRICE) == [3, 4]


def test_as_long_as_no_price_is_known_one_job_at_a_time_finds_it_out() -> None:
    runs = [run(1), run(2)]
    assert released(runs, budget=10**9) == [1]
    assert released([running(1), run(2)], budget=10**9) == []
    assert released(runs, budget=10**9, price=float(PRICE)) == [1, 2], "the plan's price serves until then"
    unpriced = running(1, state="succeeded", step=STEPS, priced=False)
    assert released([unpriced, run(2), run(3)], budget=10**9) == [2], "a node without a price says nothing"


def test_what_has_ended_overrides_the_price_of_the_plan() -> None:
    ended = running(1, state="succeeded", step=STEPS, micro_usd=STEPS * PRICE)
    assert released([ended, run(2)], budget=150 * PRICE, price=1.0) == []


def test_a_spent_budget_pauses_what_is_in_progress_once_and_says_what_to_do() -> None:
    runs = [running(1, micro_usd=10), running(2, pausing=True), run(3)]
    decided = decide(runs, budget=10)
    assert ([each.number for each in decided.pause], decided.jobs) == ([1], ())
    assert "is spent" in decided.because and "its jobs are paused until it is raised" in decided.because


def test_a_budget_below_a_cent_does_not_look_like_nothing() -> None:
    decided = decide([running(1, micro_usd=211)], budget=200)
    assert "its budget of $0.00020 is spent ($0.00021)" in decided.because


def test_jobs_that_a_spent_budget_paused_continue_before_others_once_it_is_raised() -> None:
    runs = [run(1), running(2, state="paused", pausing=True, waits="budget", micro_usd=10)]
    assert [each.number for each in decide(runs, budget=11).continued] == [2]
    assert decide(runs, budget=10).continued == ()
    again = [run(1), run(2, trained=True, step=50, micro_usd=10)]
    assert released(again, budget=11) == [2]


def test_jobs_that_went_on_from_a_rung_come_before_those_that_have_not_begun() -> None:
    assert released([run(1), run(2), run(3, rung=1)], at_once=1) == [3]


def test_the_same_jobs_in_another_order_give_the_same_decision() -> None:
    runs = [running(1), *map(run, range(2, 9))]
    assert decide(runs, at_once=4) == decide(runs[::-1], at_once=4)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), at_once=st.integers(1, 12), groups=st.integers(1, 4))
def test_never_more_are_in_progress_than_may_be_and_all_end_whatever_fails(
    seed: int, at_once: int, groups: int
) -> None:
    played = fleet(60, seed, at_once=at_once, groups=groups)
    played.play()
    assert played.most <= at_once
    assert all(each.has_ended for each in played.runs.values())
    assert len(played.made) <= groups, "each group prepares its files once"


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), at_once=st.integers(1, 12))
def test_a_budget_is_overshot_by_no_more_than_a_round_of_those_in_progress(seed: int, at_once: int) -> None:
    played = fleet(40, seed, at_once=at_once, budget=15 * STEPS * PRICE)
    played.play(400)
    assert played.peak_micro_usd <= 15 * STEPS * PRICE + at_once * 10 * PRICE


def test_the_decision_about_a_thousand_jobs_is_quick_to_say_that_nothing_fits() -> None:
    runs = [replace(run(number), prepares="a") for number in range(1, 1001)]
    assert released([running(1, prepares="a"), *runs[1:]], at_once=8) == []
