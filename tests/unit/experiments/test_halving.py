"""Successive halving: who is paused, who continues and who ends at each rung."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.core.errors import BadInput
from gangline.core.experiments.halving import HalvingStep, check_halving, next_step, rungs_of, saved_by_halving
from gangline.core.experiments.runs import ExperimentRun, Measurements
from gangline.core.experiments.terms import HalvingTerms
from tests.unit.experiments.many import PRICE, STEPS, fleet, run

TERMS = HalvingTerms(min_steps=10, eta=3)


def at_rung(number: int, loss: float, at: int = 10, **given: Any) -> ExperimentRun:
    measured = Measurements(at_rungs={10: loss} | {at: loss})
    known: dict[str, Any] = {"held": False, "state": "running", "step": at, "measured": measured}
    return run(number, **(known | given))


def numbers(found: tuple[Any, ...]) -> list[int]:
    return [each.run.number for each in found]


def test_rungs_are_min_steps_times_powers_of_eta_below_the_last_step() -> None:
    assert rungs_of(TERMS, 100) == (10, 30, 90)
    assert rungs_of(TERMS, 90) == (10, 30)
    assert rungs_of(TERMS, 10) == ()


def test_a_job_at_its_rung_is_paused_until_the_others_have_got_there() -> None:
    step = next_step([at_rung(1, 0.5), at_rung(2, 0.4, state="paused", pausing=True), run(3)], TERMS, STEPS)
    assert (numbers(step.pause), step.advance, step.drop) == ([1], (), ())
    assert (
        step.pause[0].because
        == "paused at step 10 by successive halving until the other jobs have got there or have ended"
    )


def test_the_best_of_a_rung_continue_and_the_others_end_with_loss_rank_and_rung() -> None:
    runs = [at_rung(number, loss) for number, loss in enumerate((0.9, 0.3, 0.5, 0.7, 0.4, 0.8), 1)]
    step = next_step(runs, TERMS, STEPS)
    assert (numbers(step.advance), numbers(step.drop)) == ([2, 5], [3, 4, 6, 1])
    assert step.pause == ()
    assert step.drop[0].because == (
        "ended by halving: its held-out loss at step 10 was 0.5, number 3 of 6, and the best 2 continued"
    )


def test_of_equal_losses_the_first_job_goes_on() -> None:
    assert numbers(next_step([at_rung(3, 0.5), at_rung(1, 0.5), at_rung(2, 0.5)], TERMS, STEPS).advance) == [1]


def test_at_least_one_goes_on() -> None:
    step = next_step([at_rung(1, 0.5), at_rung(2, 0.4)], TERMS, STEPS)
    assert (numbers(step.advance), numbers(step.drop)) == ([2], [1])


def test_a_job_that_failed_is_not_waited_for_and_does_not_count() -> None:
    runs = [at_rung(1, 0.5), at_rung(2, 0.1, state="failed"), run(3, state="canceled", held=False)]
    assert numbers(next_step(runs, TERMS, STEPS).advance) == [1]


def test_a_rung_is_decided_once() -> None:
    runs = [at_rung(1, 0.5, rung=1), at_rung(2, 0.9, dropped=True), at_rung(3, 0.8, dropped=True)]
    step = next_step(runs, TERMS, STEPS)
    assert (step.pause, step.advance, step.drop) == ((), (), ())


def test_the_next_rung_waits_for_those_that_are_still_at_the_one_before() -> None:
    ahead = at_rung(1, 0.5, 30, rung=1)
    assert numbers(next_step([ahead, run(2)], TERMS, STEPS).pause) == [1]


def test_losses_are_compared_at_the_step_of_the_rung_however_far_a_job_has_got() -> None:
    far = at_rung(1, 0.9, state="succeeded", step=STEPS)
    step = next_step([far, at_rung(2, 0.5), at_rung(3, 0.6)], TERMS, STEPS)
    assert (numbers(step.advance), numbers(step.drop)) == ([2], [3, 1]), "what has ended is out as well"


def test_a_rung_that_is_looked_at_again_keeps_its_first_winner() -> None:
    far = [at_rung(number, 0.5 + number, state="succeeded", step=STEPS) for number in (1, 2)]
    played = fleet(3, 0, halving=TERMS)
    played.runs = {each.number: each for each in (*far, at_rung(3, 0.1))}
    rung = []
    while (step := next_step(list(played.runs.values()), TERMS, STEPS)) != HalvingStep():
        rung.append((numbers(step.advance), numbers(step.drop)))
        played.look()
    assert rung == [([3], [1, 2])]
    assert [each.state for each in played.runs.values()] == ["succeeded", "succeeded", "running"]
    assert saved_by_halving(list(played.runs.values()), None).jobs == 0, "they trained to their end"


@pytest.mark.parametrize(
    ("steps", "every", "says"),
    [
        ({100, 200}, {10}, "the jobs have different numbers of steps"),
        ({10}, {10}, "min_steps is 10, and the jobs have 10 steps"),
        ({100}, {None}, "do not measure them at one interval"),
        ({100}, {10, 5}, "do not measure them at one interval"),
        ({100}, {20}, "measured every 20 steps, and not at step 10, where jobs are compared"),
    ],
)
def test_what_cannot_be_halved_is_refused_in_one_sentence(steps: set[int], every: set[int | None], says: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_halving(TERMS, steps, every)
    assert says in refused.value.message


def test_what_it_saved_is_the_steps_that_were_not_trained_at_the_jobs_own_price() -> None:
    kept = run(1, held=False, state="succeeded", step=STEPS, micro_usd=STEPS * PRICE)
    dropped = run(2, held=False, state="canceled", dropped=True, step=10, micro_usd=10 * PRICE)
    saved = saved_by_halving([kept, dropped], None)
    assert (saved.jobs, saved.steps, saved.usd) == (1, 90, 90 * PRICE / 1e6)
    assert saved_by_halving([run(1)], None).usd is None


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10**6), at_once=st.integers(1, 12), count=st.integers(2, 40), rounds_between=st.integers(1, 12)
)
def test_whatever_fails_every_job_ends_and_those_that_are_left_are_the_best(
    seed: int, at_once: int, count: int, rounds_between: int
) -> None:
    played = fleet(count, seed, halving=TERMS, at_once=at_once)
    played.play(rounds_between=rounds_between)
    assert played.most <= at_once
    runs = list(played.runs.values())
    assert all(each.has_ended for each in runs)
    for rung in range(3):
        went_on = [each for each in runs if each.rung > rung and each.state != "failed"]
        dropped = [each for each in runs if each.rung == rung and each.dropped]
        assert len(went_on) <= max(1, sum(each.rung >= rung for each in runs) // TERMS.eta)
        assert not went_on or not dropped or max(map(played.loss, went_on)) <= min(map(played.loss, dropped))
