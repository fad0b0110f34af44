"""When messages go to people: at once after a quiet time, as digests while more come, and never in quiet hours."""

import doctest
from datetime import datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.errors import BadInput
from gangline.core.notices import pacing
from gangline.core.notices.pacing import (
    INTERVAL_S,
    PICTURES_S,
    Pacing,
    QuietHours,
    go_ms,
    parse_quiet_hours,
    pictures_until_ms,
    quiet_until_ms,
)

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = QuietHours(begins=time(22), ends=time(7), zone="Europe/Berlin")
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BEGIN_MS, END_MS = 1_262_304_000_000, 1_893_456_000_000  # 2010 to 2030
TIMES = st.times().map(lambda each: each.replace(second=0, microsecond=0))
QUIET = st.builds(QuietHours, begins=TIMES, ends=TIMES, zone=st.sampled_from(ZONES)).filter(
    lambda each: each.begins != each.ends
)
MOMENTS = st.integers(BEGIN_MS, END_MS)


def ms(year: int, month: int, day: int, hour: int, minute: int = 0, fold: int = 0) -> int:
    return round(datetime(year, month, day, hour, minute, tzinfo=BERLIN, fold=fold).timestamp() * 1000)


# ------------------------------------------------------------------------------------------------------- a digest, no flood


def test_the_first_message_after_a_quiet_time_goes_at_once() -> None:
    assert go_ms(Pacing(), last_ms=None, now_ms=5) == 5
    assert go_ms(Pacing(), last_ms=0, now_ms=round(INTERVAL_S * 1000)) == round(INTERVAL_S * 1000)


def test_while_messages_keep_coming_one_goes_in_each_interval() -> None:
    assert go_ms(Pacing(interval_s=60), last_ms=1000, now_ms=2000) == 61_000
    assert go_ms(Pacing(interval_s=60), last_ms=1000, now_ms=61_000) == 61_000


def test_an_interval_of_zero_holds_nothing() -> None:
    assert go_ms(Pacing(interval_s=0), last_ms=2000, now_ms=2000) == 2000


def test_of_a_thousand_facts_in_an_hour_six_messages_are_made() -> None:
    sent: list[int] = []
    for now_ms in range(0, HOUR_MS, 3600):
        if go_ms(Pacing(), last_ms=sent[-1] if sent else None, now_ms=now_ms) == now_ms:
            sent.append(now_ms)
    assert len(sent) == 6


# -------------------------------------------------------------------------------------------------------------- quiet hours


def test_in_quiet_hours_everything_waits_until_they_end() -> None:
    for now_ms in (ms(2026, 7, 1, 22), ms(2026, 7, 1, 23, 59), ms(2026, 7, 2, 0), ms(2026, 7, 2, 6, 59)):
        assert go_ms(Pacing(quiet=NIGHT), last_ms=None, now_ms=now_ms) == ms(2026, 7, 2, 7)
    for now_ms in (ms(2026, 7, 1, 21, 59), ms(2026, 7, 2, 7)):
        assert go_ms(Pacing(quiet=NIGHT), last_ms=None, now_ms=now_ms) == now_ms


def test_what_an_interval_holds_into_quiet_hours_waits_for_their_end() -> None:
    now_ms = ms(2026, 7, 1, 21, 58)
    assert go_ms(Pacing(quiet=NIGHT), last_ms=now_ms - 1000, now_ms=now_ms) == ms(2026, 7, 2, 7)


def test_quiet_hours_may_lie_within_a_day() -> None:
    lunch = QuietHours(begins=time(12), ends=time(13, 30), zone="Europe/Berlin")
    assert quiet_until_ms(lunch, ms(2026, 7, 1, 12)) == ms(2026, 7, 1, 13, 30)
    assert quiet_until_ms(lunch, ms(2026, 7, 1, 11, 59)) is quiet_until_ms(lunch, ms(2026, 7, 1, 13, 30)) is None


def test_a_night_with_a_change_of_clocks_ends_at_seven_by_the_clock() -> None:
    shorter = quiet_until_ms(NIGHT, ms(2026, 3, 28, 22))
    longer = quiet_until_ms(NIGHT, ms(2026, 10, 24, 22))
    assert shorter == ms(2026, 3, 29, 7) == ms(2026, 3, 28, 22) + 8 * HOUR_MS
    assert longer == ms(2026, 10, 25, 7) == ms(2026, 10, 24, 22) + 10 * HOUR_MS


def test_an_hour_that_occurs_twice_does_not_begin_quiet_hours_again() -> None:
    early = QuietHours(begins=time(22), ends=time(2, 30), zone="Europe/Berlin")
    assert quiet_until_ms(early, ms(2026, 10, 25, 2, 10)) == ms(2026, 10, 25, 2, 30)
    assert quiet_until_ms(early, ms(2026, 10, 25, 2, 10, fold=1)) is None


def test_a_clock_time_that_is_skipped_is_as_much_later() -> None:
    early = QuietHours(begins=time(22), ends=time(2, 30), zone="Europe/Berlin")
    assert quiet_until_ms(early, ms(2026, 3, 29, 1)) == ms(2026, 3, 29, 3, 30)


@given(QUIET, MOMENTS)
def test_what_is_held_goes_within_a_day_or_little_more_and_outside_of_quiet_hours(
    quiet: QuietHours, now_ms: int
) -> None:
    until_ms = quiet_until_ms(quiet, now_ms)
    if until_ms is not None:
        assert now_ms < until_ms <= now_ms + DAY_MS + HOUR_MS
        assert quiet_until_ms(quiet, until_ms) is None


@given(QUIET, MOMENTS, st.floats(0, 86_400), st.one_of(st.none(), st.integers(0, DAY_MS)))
def test_what_may_go_then_may_go_when_that_moment_has_come(
    quiet: QuietHours, now_ms: int, interval_s: float, ago_ms: int | None
) -> None:
    last_ms = None if ago_ms is None else now_ms - ago_ms
    paced = Pacing(interval_s=interval_s, quiet=quiet)
    due_ms = go_ms(paced, last_ms=last_ms, now_ms=now_ms)
    assert due_ms >= now_ms and go_ms(paced, last_ms=last_ms, now_ms=due_ms) == due_ms


# ------------------------------------------------------------------------------------------------------ how they are written


@pytest.mark.parametrize("text", ["22:00-07:00 Europe/Berlin", " 22:00 - 7:00  Europe/Berlin "])
def test_quiet_hours_are_read_as_people_write_them(text: str) -> None:
    assert parse_quiet_hours(text) == NIGHT


@pytest.mark.parametrize("text", ["", "  "])
def test_no_quiet_hours_are_none(text: str) -> None:
    assert parse_quiet_hours(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("22:00-07:00", "two times of day and a time zone"),
        ("22-7 Europe/Berlin", "two times of day and a time zone"),
        ("22:00-24:00 UTC", "times from 00:00 to 23:59"),
        ("22:60-07:00 UTC", "times from 00:00 to 23:59"),
        ("07:00-07:00 UTC", "no time at all"),
        ("22:00-07:00 Europe/Berlim", "there is no time zone Europe/Berlim"),
        ("22:00-07:00 ../../etc/passwd", "a time zone that does not exist"),
        ("22:00-07:00 /etc/localtime", "a time zone that does not exist"),
        ("22:00-07:00 Europe", "a time zone that does not exist"),
        ("٢٢:00-07:00 UTC", "two times of day and a time zone"),
    ],
)
def test_what_are_no_quiet_hours_is_refused_with_an_example(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        parse_quiet_hours(text)
    assert "22:00-07:00 Europe/Berlin" in refused.value.hint


@given(st.text(max_size=100))
def test_any_text_is_quiet_hours_or_refused(text: str) -> None:
    try:
        found = parse_quiet_hours(text)
    except BadInput:
        return
    assert found is None or parse_quiet_hours(str(found)) == found


@given(QUIET)
def test_quiet_hours_are_written_as_they_are_read(quiet: QuietHours) -> None:
    assert parse_quiet_hours(str(quiet)) == quiet


# ------------------------------------------------------------------------------------------------------------------ pictures


def test_a_job_that_is_ready_waits_for_its_pictures_but_not_long() -> None:
    assert pictures_until_ms(1000, 2000, rendering=False) == 2000
    assert pictures_until_ms(1000, 2000, rendering=True) == 1000 + round(PICTURES_S * 1000)
    assert pictures_until_ms(1000, 10**9, rendering=True) == 10**9


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(pacing).failed == 0
