"""What attempts measured becomes one run: pure functions over points."""

import math
import re
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.jobs.retry import RETRY_S_MAX, retry_s
from gangline.core.runs.metrics import (
    MEANING,
    NAMES_MAX,
    SPACING,
    AttemptPoints,
    Measured,
    Point,
    Reading,
    halve,
    pack_points,
    series,
    sound,
    summed_up,
    thin,
    unpack_points,
    with_smoothed_loss,
)
from tests.conftest import ROOT


def reading(step: int, loss: float = 1.0) -> Reading:
    return Reading(point=Point(step=step, values={"loss": loss}))


def saved(step: int) -> Reading:
    return Reading(point=Point(step=step, values={}), saved=True)


def attempt(from_step: int, *steps: int, loss: float = 1.0) -> AttemptPoints:
    points = tuple(Measured(step=step, at_ms=0, values={"loss": loss}) for step in steps)
    return AttemptPoints(from_step=from_step, points=points)


def steps(points: list[Measured]) -> list[int]:
    return [point.step for point in points]


def test_what_an_interruption_made_a_job_do_again_counts_once() -> None:
    lost, again = attempt(0, 10, 20, 30, loss=1.0), attempt(20, 30, 40, loss=2.0)
    found = series([lost, again])
    assert [(point.step, point.values["loss"]) for point in found] == [(10, 1.0), (20, 1.0), (30, 2.0), (40, 2.0)]


def test_an_attempt_that_fell_back_further_takes_from_all_before_it() -> None:
    """Its checkpoint was damaged."""
    assert steps(series([attempt(0, 10, 20), attempt(20, 30, 40), attempt(10, 20, 30)])) == [10, 20, 30]


def test_an_attempt_that_measured_nothing_still_says_where_it_went_on() -> None:
    assert steps(series([attempt(0, 10, 20, 30), attempt(20)])) == [10, 20]


def test_nothing_beyond_what_is_committed_counts() -> None:
    assert steps(series([attempt(0, 10, 20), attempt(20, 30, 40)], up_to=30)) == [10, 20, 30]
    assert series([attempt(0, 10, 20)], up_to=0) == []


def test_points_that_came_twice_or_from_before_the_start_count_once() -> None:
    assert steps(series([attempt(10, 5, 10, 20, 30, 20, 30, 40)])) == [20, 30, 40]


@given(st.integers(0, 2**32))
def test_whatever_is_interrupted_each_step_counts_once_if_every_saved_step_ends_a_point(seed: int) -> None:
    """Attempts go on from any step that was saved; the spacing of their points is anything."""
    rng = Random(seed)
    attempts, saves = list[AttemptPoints](), [0]
    for _ in range(rng.randrange(1, 6)):
        start = rng.choice(saves)
        saves = [save for save in saves if save <= start]
        ends = sorted(rng.sample(range(start + 1, start + 60), rng.randrange(1, 30)))
        saves += rng.sample(ends, rng.randrange(len(ends)))
        attempts.append(attempt(start, *ends))
    found = steps(series(attempts))
    assert all(one < other for one, other in pairwise(found))
    for before, after in zip([0, *found], found, strict=False):
        made = [each for each in attempts if any(point.step == after for point in each.points)]
        assert any(before == max([each.from_step, *(p.step for p in each.points if p.step < after)]) for each in made)


def test_points_lie_no_closer_than_a_512th_of_the_way() -> None:
    for length in (400, 5_000, 200_000):
        kept, waiting = thin([reading(step) for step in range(1, length + 1)], 0)
        kept += summed_up([*waiting], kept[-1].step)
        octaves = max(1, math.ceil(math.log2(length / SPACING)) + 1)
        assert len(kept) <= SPACING * octaves + 1
        assert kept[-1].step == length
    assert [point.step for point in thin([reading(step) for step in range(1, 400)], 0)[0]] == list(range(1, 400))


def test_a_thinned_point_is_the_mean_over_its_steps() -> None:
    """Weighed by how many steps each reading stands for."""
    start = 4 * SPACING
    kept, waiting = thin([reading(start + 1, 8.0), reading(start + 4, 4.0), reading(start + 5, 1.0)], start)
    assert kept == [Point(step=start + 4, values={"loss": 5.0})]
    assert waiting == [reading(start + 5, 1.0)]


def test_a_saved_step_ends_its_point_even_where_the_reading_came_before_the_word_of_it() -> None:
    start = 4 * SPACING
    kept, waiting = thin([reading(start + 1), saved(start + 1), reading(start + 3)], start)
    assert [point.step for point in kept] == [start + 1]
    kept, waiting = thin([reading(start + 1)], start)
    assert (kept, len(waiting)) == ([], 1)
    kept, waiting = thin([*waiting, saved(start + 1)], start)
    assert [point.step for point in kept] == [start + 1] and not waiting
    assert thin([saved(start)], start) == ([], [])


def test_readings_that_go_back_are_left_out() -> None:
    assert [point.step for point in thin([reading(2), reading(2), reading(1), reading(3)], 0)[0]] == [2, 3]


def test_halved_points_reach_as_far_and_mean_the_same() -> None:
    points = [
        Point(step=2, values={"loss": 4.0}),
        Point(step=3, values={"loss": 1.0}),
        Point(step=9, values={"loss": 7.0}),
    ]
    assert halve(points, 0) == [Point(step=3, values={"loss": 3.0}), Point(step=9, values={"loss": 7.0})]


def test_packed_points_come_out_as_they_were() -> None:
    points = [Point(step=1, values={"loss": 0.5}), Point(step=7, values={"loss": 0.25, "own/name": -1e-9})]
    assert [(point.step, point.values, point.at_ms) for point in unpack_points(pack_points(points), 5)] == [
        (point.step, point.values, 5) for point in points
    ]


@pytest.mark.parametrize(
    "value",
    [None, [], "loss", {"loss": float("nan")}, {"loss": float("inf")}, {"loss": True}, {"1 x": 1.0}, {"a" * 65: 1.0}],
)
def test_what_is_no_number_under_a_name_is_left_out(value: object) -> None:
    assert sound(value) == {}


def test_so_many_names_are_enough() -> None:
    assert len(sound({f"name{number}": 1.0 for number in range(100)})) == NAMES_MAX


def test_a_smoothed_loss_is_right_from_its_first_point_and_whatever_the_spacing() -> None:
    def smooth(*found: int) -> float:
        points = [Measured(step=step, at_ms=0, values={"loss": 1.0 if step <= 100 else 3.0}) for step in found]
        return with_smoothed_loss(points)[-1].values["smoothed_loss"]

    assert smooth(1) == 1.0
    assert smooth(*range(1, 121)) == pytest.approx(smooth(50, 100, 120), rel=1e-5)
    assert with_smoothed_loss([Measured(step=1, at_ms=0, values={"x": 1.0})])[0].values == {"x": 1.0}


def test_every_name_is_in_the_documents_with_what_stands_there() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    told = {found[1]: found[2] for found in re.finditer(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)}
    assert told == MEANING


def test_who_waits_for_long_waits_no_longer_than_the_bound() -> None:
    assert RETRY_S_MAX / 2 <= retry_s(10**6, Random(0)) <= RETRY_S_MAX
