"""Decide when to give notice of an amount of money: once for each share in a day or month, and once when it is expected to be crossed."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.money.forecast import CostSpan
from gangline.core.words import usd_words

PERCENTS: tuple[int, ...] = (50, 80, 100)
"""The shares of an amount at which there is a notice, unless its operator names others."""
WHEN: dict[CostSpan, str] = {"day": "today", "month": "this month"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """An amount for each day or month, in micro-dollars, of the costs of a project and a pool (empty: of all). There is a
    notice when `percents` of it are spent; with `forecast`, also when all of it is expected to be."""

    project: str
    pool: str
    per: CostSpan
    micro_usd: int
    percents: tuple[int, ...] = PERCENTS
    forecast: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A notice of a threshold: `percent` of it are spent, or with `forecast` expected to be; `micro_usd` is that sum."""

    percent: int
    forecast: bool
    micro_usd: int = 0


def crossing(threshold: Threshold, spent: int, expected: int | None, told: Sequence[Crossing]) -> Crossing | None:
    """Return the notice to give of a threshold now; None if all were given, as `told`, in this day or month. `expected` is its forecast.

    Of several shares that were crossed at once only the highest has a notice. Nothing is expected any more of an amount that is spent.
    """
    reached = [each for each in threshold.percents if 100 * spent >= each * threshold.micro_usd]
    highest = max((each.percent for each in told if not each.forecast), default=0)
    if reached and max(reached) > highest:
        return Crossing(percent=max(reached), forecast=False, micro_usd=spent)
    if not threshold.forecast or expected is None or any(each.forecast for each in told):
        return None
    if spent >= threshold.micro_usd or expected <= threshold.micro_usd:
        return None
    return Crossing(percent=100, forecast=True, micro_usd=expected)


def scope_words(project: str, pool: str) -> str:
    """Return whose costs are meant.

    >>> scope_words("", ""), scope_words("team-a", ""), scope_words("", "spot"), scope_words("team-a", "spot")
    ('the whole service', 'the project team-a', 'the pool spot', 'the project team-a in the pool spot')
    """
    if not project:
        return f"the pool {pool}" if pool else "the whole service"
    return f"the project {project} in the pool {pool}" if pool else f"the project {project}"


def crossing_words(threshold: Threshold, found: Crossing) -> str:
    """Return what happened as a sentence without a full stop.

    >>> day = Threshold(project="", pool="", per="day", micro_usd=50_000_000)
    >>> crossing_words(day, Crossing(percent=80, forecast=False, micro_usd=40_100_000))
    'the whole service has cost $40.10 today: 80 % of the threshold of $50.00 a day'
    >>> crossing_words(day, Crossing(percent=100, forecast=True, micro_usd=61_000_000))
    'the whole service is expected to cost $61.00 today: more than the threshold of $50.00 a day'
    """
    who, when = scope_words(threshold.project, threshold.pool), WHEN[threshold.per]
    amount = f"the threshold of {usd_words(threshold.micro_usd)} a {threshold.per}"
    if found.forecast:
        return f"{who} is expected to cost {usd_words(found.micro_usd)} {when}: more than {amount}"
    return f"{who} has cost {usd_words(found.micro_usd)} {when}: {found.percent} % of {amount}"
