"""A threshold is told of once for each of its shares, however costs and forecasts move, and never after the amount is spent as expected."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.money.thresholds import Crossing, Threshold, crossing

DAY = Threshold(project="", pool="", per="day", micro_usd=100)
SUMS = st.integers(-50, 400)


def told_of(threshold: Threshold, seen: list[tuple[int, int | None]]) -> list[Crossing]:
    """What is told as a threshold is looked at again and again."""
    told = list[Crossing]()
    for spent, expected in seen:
        found = crossing(threshold, spent, expected, told)
        if found:
            told.append(found)
    return told


def test_each_share_is_told_of_once_and_of_several_at_once_the_highest() -> None:
    told = told_of(DAY, [(10, None), (50, None), (60, None), (50, None), (130, None), (140, None), (20, None)])
    assert [(each.percent, each.micro_usd) for each in told] == [(50, 50), (100, 130)]


def test_a_forecast_is_told_of_once_and_not_when_the_amount_is_spent() -> None:
    told = told_of(DAY, [(10, 100), (10, 101), (20, 90), (20, 300), (120, 300)])
    assert told == [
        Crossing(percent=100, forecast=True, micro_usd=101),
        Crossing(percent=100, forecast=False, micro_usd=120),
    ]
    assert told_of(DAY, [(120, 300), (120, 300)]) == [Crossing(percent=100, forecast=False, micro_usd=120)]
    quiet = Threshold(project="", pool="", per="day", micro_usd=100, forecast=False)
    assert told_of(quiet, [(10, 300)]) == []


@given(seen=st.lists(st.tuples(SUMS, st.none() | SUMS)), percents=st.sets(st.integers(1, 300), min_size=1, max_size=5))
def test_nothing_is_told_twice_and_every_share_that_was_reached_or_a_higher_one_is(
    seen: list[tuple[int, int | None]], percents: set[int]
) -> None:
    threshold = Threshold(project="p", pool="", per="month", micro_usd=100, percents=tuple(sorted(percents)))
    told = told_of(threshold, seen)
    spent = [each.percent for each in told if not each.forecast]
    assert spent == sorted(set(spent)) and len(told) - len(spent) <= 1
    highest = max((spent for spent, _ in seen), default=0)
    reached = [each for each in percents if highest >= each]
    assert max(spent, default=0) == max(reached, default=0)
