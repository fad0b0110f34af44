"""What a job had cost at each moment: it never falls, and ends with the sum of the ledger."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.jobs.story.band import pace_band
from gangline.core.money.cost import LedgerLine
from gangline.core.money.spending import spending


def line(from_ms: int, to_ms: int, micro_usd: int) -> LedgerLine:
    return LedgerLine(cause="training", from_ms=from_ms, to_ms=to_ms, micro_usd=micro_usd)


def test_a_line_costs_evenly_from_its_start_to_its_end_and_one_without_length_at_once() -> None:
    lines = [line(100, 200, 1_000_000), line(150, 250, 2_000_000), line(250, 250, 500_000)]
    found = [(point.at_ms, point.usd) for point in spending(lines, 0)]
    assert found == [(0, 0), (100, 0), (150, 0.5), (200, 2.0), (250, 3.0), (250, 3.5)]


def test_what_cost_nothing_is_one_point() -> None:
    assert [(point.at_ms, point.usd) for point in spending([], 7)] == [(7, 0)]


LINES = st.lists(st.builds(line, st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**9)), max_size=40)


@given(LINES, st.integers(0, 10**7), st.integers(2, 30))
def test_the_cost_never_falls_and_ends_with_the_sum_of_the_ledger(lines: list[LedgerLine], at: int, most: int) -> None:
    found = spending(lines, at, most)
    assert len(found) <= most
    assert all(a.usd <= b.usd and a.at_ms <= b.at_ms for a, b in pairwise(found))
    assert round(found[-1].usd * 1e6) == sum(each.micro_usd for each in lines)


def test_one_slow_machine_does_not_move_the_band_of_its_class() -> None:
    found = pace_band("A100", [0.50, 0.49, 0.51, 0.50, 5.0])
    assert found and (found.machines, found.median) == (5, pytest.approx(0.5))
    assert 0.47 < found.low < 0.5 < found.high < 0.53
    assert pace_band("A100", []) is None
