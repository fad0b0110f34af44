"""Say what a day or a month will have cost when it ends, from what it has cost and two rates."""

from dataclasses import dataclass
from typing import Literal, get_args

from gangline.core.money.cost import DAY_MS, HOUR_MS
from gangline.core.words import usd_words

CostSpan = Literal["day", "month"]
COST_SPANS: tuple[CostSpan, ...] = get_args(CostSpan)
LATELY_MS = 7 * DAY_MS
"""The mean rate is that of this time before now."""
NEAR_MS = DAY_MS
"""For this long ahead the present rate is expected to last."""
OBSERVED_MIN_MS = DAY_MS
"""There is no forecast from less than this."""
TOO_EARLY = "there is no forecast: these costs are known for less than a day"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRates:
    """What is known of costs, in micro-dollars: `lately` is what the last `observed_ms` cost, with what runs now. That is the time since
    the first cost, at most `LATELY_MS`. `per_hour` is what running attempts, idle and starting nodes cost an hour now."""

    lately: int
    observed_ms: int
    per_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCosts:
    """What a span will have cost when it ends, in micro-dollars: between `low` and `high` if the fleet does as now, or as lately.
    `mean_per_hour` is the mean rate of the time that was observed."""

    micro_usd: int
    low: int
    high: int
    mean_per_hour: int


def expect_costs(spent: int, rates: CostRates, *, now_ms: int, until_ms: int) -> ExpectedCosts | None:
    """Return what a span that ends at `until_ms` will have cost, of which `spent` is spent; None from less than a day of data.

    With the present rate p and the mean rate m = lately / observed, and r the time that is left:
    forecast = spent + p * min(r, 24 h) + m * max(r - 24 h, 0). What runs now says most of the next hours, and the mean says most of
    later ones. `low` and `high` are spent + r * min(p, m) and spent + r * max(p, m). That range is no bound: nobody knows which jobs
    will be submitted.

    >>> day = CostRates(lately=48_000_000, observed_ms=2 * DAY_MS, per_hour=3_000_000)
    >>> expect_costs(10_000_000, day, now_ms=0, until_ms=30 * HOUR_MS)
    ExpectedCosts(micro_usd=88000000, low=40000000, high=100000000, mean_per_hour=1000000)
    """
    if rates.observed_ms < OBSERVED_MIN_MS:
        return None
    left_ms = max(0, until_ms - now_ms)
    near_ms = min(left_ms, NEAR_MS)
    mean = rates.lately * HOUR_MS // rates.observed_ms
    low, high = sorted((rates.per_hour, mean))
    return ExpectedCosts(
        micro_usd=spent + (rates.per_hour * near_ms + mean * (left_ms - near_ms)) // HOUR_MS,
        low=spent + low * left_ms // HOUR_MS,
        high=spent + high * left_ms // HOUR_MS,
        mean_per_hour=mean,
    )


def how_forecast(found: ExpectedCosts | None, rates: CostRates, *, now_ms: int, until_ms: int) -> str:
    """Return how a forecast was computed, or why there is none, as a sentence without a full stop."""
    if found is None:
        return TOO_EARLY
    present = f"the present rate, {usd_words(rates.per_hour)} an hour"
    if until_ms - now_ms <= NEAR_MS:
        return f"at {present}; the mean of the last {days_words(rates.observed_ms)} is {usd_words(found.mean_per_hour)}"
    mean = f"the mean of the last {days_words(rates.observed_ms)}, {usd_words(found.mean_per_hour)} an hour"
    return f"at {present}, for 24 hours, then at {mean}"


def days_words(observed_ms: int) -> str:
    """Return a time of a day or more in whole days.

    >>> days_words(30 * HOUR_MS), days_words(7 * DAY_MS)
    ('day', '7 days')
    """
    days = observed_ms // DAY_MS
    return "day" if days == 1 else f"{days} days"
