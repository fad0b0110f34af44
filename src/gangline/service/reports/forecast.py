"""Read what projects and pools cost lately and cost now, and say what the current day and month will have cost."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from gangline.core.money.forecast import COST_SPANS, LATELY_MS, CostRates, expect_costs, how_forecast
from gangline.core.reports.costs import CostForecast
from gangline.core.reports.days import current_span, parse_zone
from gangline.ports.store import Row
from gangline.service.deployment import Deployment

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeSums:
    """What some projects and pools cost since a moment, in micro-dollars, with what is not in the ledger yet. `first_ms` is when the first
    of it began (None: nothing), and `per_hour` what they cost an hour now."""

    micro_usd: int
    first_ms: int | None
    per_hour: int


Sums = Callable[[int, str, str], ScopeSums]
"""Return what a project and a pool (empty: any) cost since a moment."""


def sums_of_scopes(deployment: Deployment, project: str, now_ms: int) -> Sums:
    """Return the function that sums what `project` (empty: all) cost up to now. Each moment that it is asked about is read once."""

    @cache
    def rows(since_ms: int) -> list[Row]:
        of = {"project": project, "since": since_ms}
        known = deployment.store.load("spent_of_scopes", **of, until=now_ms)
        return [
            *({**row, "per_hour": 0} for row in known),
            *deployment.store.load("running_of_scopes", **of, now=now_ms),
        ]

    def sums(since_ms: int, of_project: str, of_pool: str) -> ScopeSums:
        return _added(
            row
            for row in rows(since_ms)
            if (not of_project or row["project"] == of_project) and (not of_pool or row["pool"] == of_pool)
        )

    return sums


def cost_rates(deployment: Deployment, sums: Sums, project: str, pool: str, now_ms: int) -> CostRates:
    """Return what a project and a pool cost lately, and cost an hour now. What cost something before was observed ever since."""
    since_ms = now_ms - LATELY_MS
    lately = sums(since_ms, project, pool)
    if deployment.store.load("cost_known", project=project, pool=pool, at=since_ms)[0]["known"]:
        observed_ms = LATELY_MS
    else:
        observed_ms = 0 if lately.first_ms is None else now_ms - lately.first_ms
    return CostRates(lately=lately.micro_usd, observed_ms=observed_ms, per_hour=lately.per_hour)


def forecasts(deployment: Deployment, project: str | None, now_ms: int, zone: str) -> tuple[CostForecast, ...]:
    """Return what the current day and month will have cost a project (None: all of them, with the time of nodes that no project caused),
    as it is known at the last full minute: so an open page is not sent another one every few seconds."""
    now_ms -= now_ms % MINUTE_MS
    sums = sums_of_scopes(deployment, project or "", now_ms)
    rates = cost_rates(deployment, sums, project or "", "", now_ms)
    found = list[CostForecast]()
    for per in COST_SPANS:
        from_ms, until_ms = current_span(per, now_ms, parse_zone(zone))
        spent = sums(from_ms, "", "").micro_usd
        expected = expect_costs(spent, rates, now_ms=now_ms, until_ms=until_ms)
        usd, low, high = (
            (None, None, None)
            if expected is None
            else (expected.micro_usd / 1e6, expected.low / 1e6, expected.high / 1e6)
        )
        found.append(
            CostForecast(
                per=per,
                from_ms=from_ms,
                until_ms=until_ms,
                spent_usd=spent / 1e6,
                usd=usd,
                low_usd=low,
                high_usd=high,
                because=how_forecast(expected, rates, now_ms=now_ms, until_ms=until_ms),
            )
        )
    return tuple(found)


def _added(rows: Iterable[Row]) -> ScopeSums:
    found = list(rows)
    return ScopeSums(
        micro_usd=sum(row["micro_usd"] for row in found),
        first_ms=min((row["first_ms"] for row in found), default=None),
        per_hour=sum(row["per_hour"] for row in found),
    )
