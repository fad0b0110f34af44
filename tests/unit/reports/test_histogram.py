"""Histograms: every value is in one bin, and a few extreme ones flatten nothing."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.charts.histogram import BINS_MAX, Histogram, count_in_bins, draw_histogram

SVG = "{http://www.w3.org/2000/svg}"


def test_no_values_make_no_histogram() -> None:
    assert count_in_bins([]) is None


@given(st.lists(st.floats(0, 1e9).map(lambda value: round(value, 3)), min_size=1, max_size=300))
def test_every_value_is_counted_once_in_few_bins(values: list[float]) -> None:
    found = count_in_bins(values)
    assert found is not None
    assert sum(found.counts) + found.above == len(values)
    assert len(found.counts) <= BINS_MAX + 1
    assert found.counts[0] > 0 and found.start <= min(values) < found.start + found.width * 1.000001


def test_bins_are_of_round_width() -> None:
    assert count_in_bins([0, 1, 2, 3.9, 4, 38]) == Histogram(start=0, width=2, counts=(2, 2, 1, *[0] * 16, 1), above=0)


def test_one_job_of_twelve_hours_does_not_flatten_the_others() -> None:
    found = count_in_bins([50 + number / 100 for number in range(999)] + [737.9])
    assert found is not None
    assert found.above >= 1 and found.width <= 1


def test_values_that_are_all_equal_are_in_one_bin() -> None:
    found = count_in_bins([3.0] * 5)
    assert found is not None
    assert (found.counts, found.above) == ((5,), 0)


@pytest.mark.parametrize("above", [0, 3])
def test_the_drawing_has_a_bar_for_each_bin_and_one_for_what_is_above(above: int) -> None:
    found = Histogram(start=40, width=5, counts=(1, 0, 7), above=above)
    root = ElementTree.fromstring(draw_histogram("<minutes>", found, "a & b"))  # noqa: S314 - written here
    said = [bar.findtext(f"{SVG}title") for bar in root.findall(f"{SVG}rect")]
    assert said == ["40 to 45 a & b: 1", "45 to 50 a & b: 0", "50 to 55 a & b: 7", *["55 a & b and more: 3"][:above]]
