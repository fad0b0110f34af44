"""Days of a reader's time zone: each is as long as its clock says, and none is lost where clocks are changed."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gangline.core.errors import BadInput
from gangline.core.money.cost import HOUR_MS
from gangline.core.reports.days import name_of_day, offset_spans, parse_zone


def ms(year: int, month: int, day: int, hour: int = 0) -> int:
    return round(datetime(year, month, day, hour, tzinfo=UTC).timestamp() * 1000)


def test_a_span_is_cut_where_clocks_are_changed() -> None:
    begins, ends = ms(2026, 3, 1), ms(2026, 11, 1, 7)
    spans = list(offset_spans(begins, ends, ZoneInfo("Europe/Berlin")))
    spring, autumn = ms(2026, 3, 29, 1), ms(2026, 10, 25, 1)
    assert [(span.from_ms, span.until_ms, span.offset_ms // HOUR_MS) for span in spans] == [
        (begins, spring, 1),
        (spring, autumn, 2),
        (autumn, ends, 1),
    ]


@pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("Asia/Tokyo", 9), ("Asia/Kathmandu", 5.75)])
def test_a_zone_that_never_changes_its_clocks_has_one_span(zone: str, hours: float) -> None:
    (span,) = offset_spans(ms(2026, 1, 1), ms(2027, 1, 1), ZoneInfo(zone))
    assert span.offset_ms == hours * HOUR_MS


def test_no_time_has_no_span() -> None:
    assert list(offset_spans(5, 5, ZoneInfo("UTC"))) == []


def test_a_day_has_the_name_of_its_date() -> None:
    assert name_of_day((ms(2026, 3, 29, 23) + HOUR_MS) // (24 * HOUR_MS)) == "2026-03-30"


@pytest.mark.parametrize("name", ["", "Europe", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "a\0b", "é" * 30])
def test_a_zone_that_does_not_exist_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(BadInput, match="there is no time zone") as refused:
        parse_zone(name)
    assert "Europe/Berlin" in refused.value.hint
