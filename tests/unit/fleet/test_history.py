"""What a node's gauges were over a day."""

from collections.abc import Mapping

import pytest

from gangline.cli import output
from gangline.cli.gauges import chart, print_history
from gangline.core.fleet.gauges import GaugesPoint
from gangline.core.fleet.history import GaugeExtent, extent_of

MINUTE_MS = 60_000


def points(values: Mapping[int, float | None]) -> tuple[GaugesPoint, ...]:
    """Return points at these minutes."""
    return tuple(GaugesPoint(at_ms=minute * MINUTE_MS, cpu_load=value) for minute, value in values.items())


def test_an_extent_says_when_a_gauge_was_least_and_greatest() -> None:
    found = extent_of(points({0: 0.5, 1: 0.1, 2: None, 3: 0.9, 4: 0.9}), "cpu_load")
    assert found is not None
    assert (found.low, found.low_ms, found.high, found.high_ms) == (0.1, MINUTE_MS, 0.9, 3 * MINUTE_MS)


def test_a_mean_is_over_time_whether_points_are_a_minute_or_ten_apart() -> None:
    before = {10 * number: 0.0 for number in range(6)}
    hour = {60 + minute: 1.0 for minute in range(60)}
    found = extent_of(points(before | hour), "cpu_load")
    assert found is not None and found.mean == pytest.approx(0.5)


def test_a_long_silence_does_not_count_as_what_was_measured_before_it() -> None:
    found = extent_of(points({0: 1.0, 600: 0.0, 610: 0.0}), "cpu_load")
    assert found is not None and found.mean == pytest.approx(10 / 21)


def test_a_gauge_that_was_measured_once_is_that_and_one_that_never_was_is_none() -> None:
    once = GaugeExtent(low=0.4, low_ms=0, mean=0.4, high=0.4, high_ms=0)
    assert extent_of(points({0: 0.4}), "cpu_load") == once
    assert extent_of(points({0: None}), "cpu_load") is extent_of((), "cpu_load") is None


def test_a_chart_has_bars_of_equal_time_and_blanks_where_nothing_was_measured() -> None:
    hour = dict.fromkeys(range(30), 0.0) | dict.fromkeys(range(50, 61), 1.0)
    assert chart(points(hour), "cpu_load", 1.0) == "▁" * 12 + " " * 8 + "█" * 4


def test_a_day_fits_into_a_terminal_of_80_cells_with_all_its_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.out, "width", 80)
    day = (
        GaugesPoint(at_ms=minute * MINUTE_MS, temperature_c=60.0, received_bytes_per_s=12.5e6) for minute in range(60)
    )
    print_history(tuple(day))
    empty, head, *rows = capsys.readouterr().out.splitlines()
    assert empty == "" and head.startswith("last 59 min") and all(len(row) <= 80 for row in rows)
    assert rows[0].split() == ["gauge", "over", "time", "least", "at", "mean", "most", "at"]
    assert rows[-1].count("12.5 MB/s") == 3 and rows[1].startswith("GPU temperature  ")
