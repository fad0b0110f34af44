"""Set, list and remove thresholds, and give notice of those that are crossed: once for each share in a day or month."""

import json
from dataclasses import dataclass

from gangline.core.errors import BadInput, NotFound
from gangline.core.money.cost import DAY_MS
from gangline.core.money.forecast import CostSpan, expect_costs
from gangline.core.money.thresholds import PERCENTS, Crossing, Threshold, crossing, crossing_words, scope_words
from gangline.core.reports.days import current_span, parse_zone
from gangline.core.reports.thresholds import ThresholdNotice, ThresholdView
from gangline.ports.store import Row, guard, write
from gangline.service.access import projects
from gangline.service.deployment import Deployment
from gangline.service.reports.forecast import Sums, cost_rates, sums_of_scopes

THRESHOLDS_MAX = 200
PERCENT_MAX = 1000
KEPT_MS = 400 * DAY_MS
"""How long crossings are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdWish:
    """A threshold to set, as in `ThresholdView`. Without `notify`, the endpoints of `project` get the notices."""

    usd: float
    per: CostSpan
    project: str = ""
    pool: str = ""
    percents: tuple[int, ...] = PERCENTS
    forecast: bool = True
    zone: str = "UTC"
    notify: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """A threshold now: its day or month, what is spent and expected of it, in micro-dollars, and the notices of it."""

    threshold: Threshold
    from_ms: int
    until_ms: int
    spent: int
    expected: int | None
    told: list[Row]


def keep_threshold(deployment: Deployment, wish: ThresholdWish, now_ms: int) -> ThresholdView:
    """Add a threshold, or change that of the same project, pool and time. For another amount notices begin again.

    Raise `BadInput`, `NotFound`.
    """
    notify, percents = wish.notify or wish.project, tuple(sorted(set(wish.percents)))
    if not notify:
        raise BadInput("nobody would get a notice", hint="name the project whose endpoints get it (--notify)")
    for project in dict.fromkeys(filter(None, (wish.project, notify))):
        projects.project(deployment, project)
    if wish.pool and not deployment.store.load("pool_known", pool=wish.pool)[0]["known"]:
        raise NotFound(
            f"there is no pool {wish.pool}", hint="`gangline pools ls` and `gangline nodes ls` show which there are"
        )
    parse_zone(wish.zone)
    scope = (wish.project, wish.pool, wish.per)
    known = deployment.store.load("cost_thresholds", project="")
    if len(known) >= THRESHOLDS_MAX and scope not in {(row["project"], row["pool"], row["per"]) for row in known}:
        raise BadInput(
            f"there are {THRESHOLDS_MAX} thresholds, the most", hint="remove one: gangline costs thresholds rm ID"
        )
    row = {
        "id": deployment.new_id("th"),
        "project": wish.project,
        "pool": wish.pool,
        "per": wish.per,
        "micro_usd": max(1, round(wish.usd * 1e6)),
        "percents": json.dumps(percents),
        "forecast": int(wish.forecast),
        "zone": wish.zone,
        "notify": notify,
    }
    deployment.store.apply(write("set_threshold", **row, now=now_ms))
    (found,) = [
        each
        for each in deployment.store.load("cost_thresholds", project=wish.project)
        if (each["project"], each["pool"], each["per"]) == scope
    ]
    return _view(deployment, found, sums_of_scopes(deployment, wish.project, now_ms), now_ms)


def thresholds(deployment: Deployment, project: str | None, now_ms: int) -> tuple[ThresholdView, ...]:
    """Return the thresholds of a project; None: all, those of the whole service among them."""
    rows = deployment.store.load("cost_thresholds", project=project or "")
    sums = sums_of_scopes(deployment, project or "", now_ms)
    return tuple(_view(deployment, row, sums, now_ms) for row in rows)


def drop_threshold(deployment: Deployment, threshold: str) -> None:
    """Remove a threshold. Repeating this changes nothing."""
    deployment.store.apply(write("remove_threshold", id=threshold))


def watch_thresholds(deployment: Deployment, now_ms: int) -> None:
    """Record each threshold that is crossed, and add the notices of it; one that no endpoint hears of waits. Another server that looks at
    the same time records nothing more: it has no turn, and a crossing has one row."""
    sums = sums_of_scopes(deployment, "", now_ms)
    for row in deployment.store.load("cost_thresholds", project=""):
        now = _standing(deployment, row, sums, now_ms)
        told = [Crossing(percent=each["percent"], forecast=bool(each["forecast"])) for each in now.told]
        found = crossing(now.threshold, now.spent, now.expected, told)
        if found:
            crossed = {
                "threshold": row["id"],
                "from_ms": now.from_ms,
                "limit": row["micro_usd"],
                "percent": found.percent,
                "forecast": int(found.forecast),
                "micro_usd": found.micro_usd,
                "name": scope_words(row["project"], row["pool"]),
                "because": crossing_words(now.threshold, found),
            }
            deployment.store.apply(
                guard("hold_turn", server=deployment.server, now=now_ms),
                guard("add_crossing", **crossed, notify=row["notify"], now=now_ms),
                write("fan_out_crossing", notify=row["notify"], now=now_ms),
                write("count_crossing", notify=row["notify"]),
            )


def forget_crossings(deployment: Deployment, now_ms: int) -> None:
    """Delete the crossings of long ago."""
    deployment.store.apply(write("forget_crossings", before=now_ms - KEPT_MS))


def _standing(deployment: Deployment, row: Row, sums: Sums, now_ms: int) -> _Standing:
    threshold = Threshold(
        project=row["project"],
        pool=row["pool"],
        per=row["per"],
        micro_usd=row["micro_usd"],
        percents=tuple(json.loads(row["percents"])),
        forecast=bool(row["forecast"]),
    )
    from_ms, until_ms = current_span(threshold.per, now_ms, parse_zone(row["zone"]))
    spent = sums(from_ms, threshold.project, threshold.pool).micro_usd
    rates = cost_rates(deployment, sums, threshold.project, threshold.pool, now_ms)
    expected = expect_costs(spent, rates, now_ms=now_ms, until_ms=until_ms)
    return _Standing(
        threshold=threshold,
        from_ms=from_ms,
        until_ms=until_ms,
        spent=spent,
        expected=expected.micro_usd if expected else None,
        told=deployment.store.load("crossings", threshold=row["id"], from_ms=from_ms, limit=row["micro_usd"]),
    )


def _view(deployment: Deployment, row: Row, sums: Sums, now_ms: int) -> ThresholdView:
    now = _standing(deployment, row, sums, now_ms)
    return ThresholdView(
        id=row["id"],
        project=row["project"],
        pool=row["pool"],
        per=row["per"],
        usd=row["micro_usd"] / 1e6,
        percents=now.threshold.percents,
        forecast=now.threshold.forecast,
        zone=row["zone"],
        notify=row["notify"],
        endpoints=row["endpoints"],
        from_ms=now.from_ms,
        until_ms=now.until_ms,
        spent_usd=now.spent / 1e6,
        expected_usd=None if now.expected is None else now.expected / 1e6,
        notices=tuple(ThresholdNotice(**{**each, "forecast": bool(each["forecast"])}) for each in now.told),
    )
