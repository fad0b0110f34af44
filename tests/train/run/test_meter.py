"""What trains nothing is seen and ended, by steps that have no gradient."""

import pytest
import torch

from gangline.train.program import failure_kind
from gangline.train.run.meter import IN_A_ROW, Diverged, LossMeter, NoGradient

NAN, INF = float("nan"), float("inf")


def measured(meter: LossMeter, *norms: float) -> LossMeter:
    for norm in norms:
        meter.add(torch.tensor(1.0), torch.tensor(norm))
    return meter


def meter() -> LossMeter:
    return LossMeter(torch.device("cpu"))


def test_a_gradient_of_exactly_0_in_fifty_steps_in_a_row_ends_the_run_with_a_sentence() -> None:
    assert IN_A_ROW == 50
    with pytest.raises(
        NoGradient, match="the gradient was exactly 0 in 50 steps in a row, so that nothing is learned"
    ) as told:
        measured(meter(), 1.0, *[0.0] * 50).take()
    assert failure_kind(told.value) == "no gradient"


def test_fifty_steps_in_a_row_without_a_finite_gradient_end_the_run_with_a_sentence() -> None:
    with pytest.raises(Diverged, match="the gradient was infinite or NaN in 50 steps in a row") as told:
        measured(meter(), *[INF, NAN] * 25).take()
    assert failure_kind(told.value) == "diverged"


def test_a_row_goes_on_from_one_report_to_the_next() -> None:
    reported = measured(meter(), *[0.0] * 20)
    assert reported.take()[0] == 20
    assert measured(reported, *[0.0] * 29).take()[0] == 29
    with pytest.raises(NoGradient, match="in 50 steps"):
        measured(reported, 0.0).take()


def test_a_row_that_ended_before_the_report_is_seen_too() -> None:
    with pytest.raises(NoGradient, match="in 50 steps"):
        measured(meter(), *[0.0] * 50, 1.0).take()


@pytest.mark.parametrize("norms", [[0.0], [0.0] * 49, [0.0, 1.0] * 200, [INF] * 49 + [0.0] * 49, [1.0] * 200])
def test_a_step_without_a_gradient_now_and_then_is_right(norms: list[float]) -> None:
    reported = measured(meter(), *norms)
    assert reported.take()[0] == len(norms)
    assert measured(reported, 1.0, *norms[:48]).take()[0] == 1 + len(norms[:48])
