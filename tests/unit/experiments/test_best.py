"""Which job of an experiment is the best, and what its metrics come to."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.experiments.best import best_so_far
from gangline.core.experiments.measured import pack_measurements, sum_up, unpack_measurements, with_held_out
from gangline.core.experiments.runs import ExperimentRun, Measurements
from gangline.core.jobs.story.held_out import held_out_change
from gangline.core.runs.metrics import Measured
from tests.unit.experiments.many import run


def done(number: int, loss: float | None, rank: int = 4, **given: Any) -> ExperimentRun:
    measured = Measurements(best_held_out_loss=loss, best_step=50, loss=loss, step=100)
    known: dict[str, Any] = {"state": "succeeded", "held": False, "settings": {"rank": rank}, "measured": measured}
    return run(number, **(known | given))


def test_the_combination_of_the_least_mean_wins_and_of_it_the_best_seed() -> None:
    runs = [done(1, 0.1, 4), done(2, 0.9, 4), done(3, 0.4, 8), done(4, 0.3, 8)]
    best = best_so_far(runs, "held_out_loss", ended=True)
    assert best is not None and (best.job, best.value, best.mean, best.seeds, best.step) == ("job-4", 0.3, 0.35, 2, 50)
    assert best.because == (
        "e-004 with rank=8 has a mean held-out loss of 0.35 over 2 seeds, the next combination has 0.5"
    )


def test_losses_have_four_digits_and_more_only_where_they_would_look_equal() -> None:
    best = best_so_far([done(1, 0.161098, 4), done(2, 0.171098, 8)], "held_out_loss", ended=True)
    assert best is not None and best.because.endswith("loss of 0.1611, the next combination has 0.1711")
    best = best_so_far([done(1, 0.161098, 4), done(2, 0.161102, 8)], "held_out_loss", ended=True)
    assert best is not None and best.because.endswith("loss of 0.161098, the next combination has 0.161102")
    best = best_so_far([done(1, 0.161098, 4)], "held_out_loss", ended=True)
    assert best is not None and best.because.endswith("a held-out loss of 0.1611")


def test_of_equal_ones_the_first_wins() -> None:
    best = best_so_far([done(2, 0.5, 8), done(1, 0.5, 4)], "loss", ended=True)
    assert best is not None and best.job == "job-1"


def test_what_failed_was_ended_or_measured_nothing_is_never_the_best() -> None:
    runs = [done(1, 0.1, 4, state="failed"), done(2, 0.1, 8, state="canceled"), done(3, None, 16), done(4, 0.9, 32)]
    best = best_so_far(runs, "held_out_loss", ended=True)
    assert best is not None and best.job == "job-4"
    assert "is the only one with a result to compare" in best.because
    assert best_so_far(runs[:3], "held_out_loss", ended=True) is None


def test_before_the_end_what_trains_counts_too() -> None:
    runs = [done(1, 0.1, 4, state="running", trained=True), done(2, 0.2, 8)]
    best, last = (best_so_far(runs, "held_out_loss", ended=ended) for ended in (False, True))
    assert best is not None and last is not None
    assert (best.job, last.job) == ("job-1", "job-2")


def points(*values: dict[str, float]) -> list[Measured]:
    return [Measured(step=10 * number, at_ms=0, values=each) for number, each in enumerate(values, 1)]


def test_metrics_come_to_the_last_and_the_best_held_out_loss_and_that_of_each_rung() -> None:
    found = sum_up(
        points({"loss": 4.0}, {"loss": 2.0, "held_out_loss": 0.5}, {"held_out_loss": 0.3}, {"held_out_loss": 0.4}),
        (15, 30, 90),
    )
    assert (found.held_out_loss, found.held_out_step) == (0.4, 40)
    assert (found.best_held_out_loss, found.best_step) == (0.3, 30)
    assert found.at_rungs == {15: 0.5, 30: 0.3}
    assert (found.loss, found.step) == (3.0, 20)


def test_without_metrics_there_is_nothing_to_compare() -> None:
    assert sum_up([], (10,)) == Measurements()
    assert unpack_measurements("") == Measurements()


@given(st.lists(st.floats(0, 10, allow_nan=False), max_size=20))
def test_what_is_stored_of_them_is_read_back_as_it_was(losses: list[float]) -> None:
    found = sum_up(points(*({"held_out_loss": loss, "loss": loss} for loss in losses)), (10, 30, 90))
    assert unpack_measurements(pack_measurements(found)) == found


def test_a_report_has_the_held_out_loss_of_a_job_that_measured_none_on_its_way() -> None:
    found = Measurements(loss=0.5, step=100)
    report = '{"held_out": [{"loss_before": 0.9, "loss_after": 0.2}, {"loss_before": 0.9, "loss_after": 0.4}]}'
    told = with_held_out(found, held_out_change(report))
    assert (told.held_out_loss, told.held_out_step, told.at_rungs) == (pytest.approx(0.3), 100, {})
    assert told.value("held_out_loss") == told.held_out_loss and told.loss == 0.5
    assert with_held_out(replace(found, held_out_loss=0.1), held_out_change(report)).held_out_loss == 0.1


@pytest.mark.parametrize(
    "report",
    [
        *("", "{}", "[]", "7", "{", '{"held_out": null}', '{"held_out": 7}', '{"held_out": []}', "[" * 100_000),
        *('{"held_out": [7]}', '{"held_out": [{}]}', '{"held_out": [{"loss_before": 1, "loss_after": null}]}'),
        *(
            '{"held_out": [{"loss_before": 1, "loss_after": NaN}]}',
            '{"held_out": [{"loss_before": 1, "loss_after": 1e999}]}',
        ),
        *(
            '{"held_out": [{"loss_before": 1, "loss_after": 1e308}, {"loss_before": 1, "loss_after": 1e308}]}',
            '{"held_out": {"a": 1}}',
        ),
        *('{"held_out": [{"loss_before": 1, "loss_after": "x"}]}', '{"held_out": [{"step": 0, "held_out_psnr": 20}]}'),
        '{"held_out": [{"loss_before": 1, "loss_after": 1' + "0" * 400 + "}]}",
    ],
)
def test_a_report_that_has_none_or_is_none_changes_nothing(report: str) -> None:
    assert with_held_out(Measurements(loss=0.5), held_out_change(report)) == Measurements(loss=0.5)
