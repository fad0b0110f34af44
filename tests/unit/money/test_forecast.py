"""What a day or a month will have cost follows from two rates, and is nothing without a day of data."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.money.cost import DAY_MS, HOUR_MS
from gangline.core.money.forecast import (
    LATELY_MS,
    OBSERVED_MIN_MS,
    TOO_EARLY,
    CostRates,
    expect_costs,
    how_forecast,
)

MONEY = st.integers(0, 10**13)
RATES = st.builds(CostRates, lately=MONEY, observed_ms=st.integers(OBSERVED_MIN_MS, LATELY_MS), per_hour=MONEY)


@given(spent=MONEY, rates=RATES, left_ms=st.integers(0, 31 * DAY_MS))
def test_a_forecast_lies_in_its_range_and_is_no_less_than_what_is_spent(
    spent: int, rates: CostRates, left_ms: int
) -> None:
    found = expect_costs(spent, rates, now_ms=7, until_ms=7 + left_ms)
    assert found is not None
    assert spent <= found.low <= found.micro_usd <= found.high
    if left_ms == 0:
        assert found.high == spent


@given(spent=MONEY, per_hour=MONEY, left_ms=st.integers(0, 31 * DAY_MS))
def test_a_steady_fleet_has_a_forecast_without_a_range(spent: int, per_hour: int, left_ms: int) -> None:
    steady = CostRates(lately=per_hour * 24 * 7, observed_ms=7 * DAY_MS, per_hour=per_hour)
    found = expect_costs(spent, steady, now_ms=0, until_ms=left_ms)
    assert found is not None
    assert found.low == found.micro_usd == found.high == spent + per_hour * left_ms // HOUR_MS


def test_a_day_goes_on_at_the_present_rate_and_a_month_at_the_mean_after_it() -> None:
    rates = CostRates(lately=7 * 24 * 500_000, observed_ms=7 * DAY_MS, per_hour=2_000_000)
    day = expect_costs(1_000_000, rates, now_ms=0, until_ms=10 * HOUR_MS)
    assert day is not None
    assert (day.micro_usd, day.low, day.high) == (21_000_000, 6_000_000, 21_000_000)
    assert how_forecast(day, rates, now_ms=0, until_ms=10 * HOUR_MS) == (
        "at the present rate, $2.00 an hour; the mean of the last 7 days is $0.50"
    )
    month = expect_costs(1_000_000, rates, now_ms=0, until_ms=3 * DAY_MS)
    assert month is not None and month.micro_usd == 1_000_000 + 48_000_000 + 24_000_000
    assert how_forecast(month, rates, now_ms=0, until_ms=3 * DAY_MS) == (
        "at the present rate, $2.00 an hour, for 24 hours, then at the mean of the last 7 days, $0.50 an hour"
    )


def test_there_is_no_forecast_from_less_than_a_day() -> None:
    rates = CostRates(lately=10**6, observed_ms=DAY_MS - 1, per_hour=10**6)
    assert expect_costs(0, rates, now_ms=0, until_ms=DAY_MS) is None
    assert how_forecast(None, rates, now_ms=0, until_ms=DAY_MS) == TOO_EARLY
