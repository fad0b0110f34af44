"""Answer what a span of time cost, by day, pool, job, cause, project, node, user or GPU: sums that the database makes of the ledger."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from gangline.core.errors import BadInput
from gangline.core.money.cost import DAY_MS, Cause, unknown_parts
from gangline.core.reports.costs import CostKey, CostsView, cost_row, dollars_by_cause
from gangline.core.reports.days import name_of_day, offset_spans, parse_zone
from gangline.ports.store import Row, Store
from gangline.service.deployment import Deployment
from gangline.service.reports.forecast import forecasts

DAYS_MAX = 1000
"""The most days of one answer."""
OF_NONE: Mapping[CostKey, str] = {
    "job": "no job",
    "project": "no project",
    "pool": "no pool",
    "user": "no user",
    "gpu": "no node",
}
"""The labels of costs without a key: the time of nodes that belongs to nobody, and nodes that are not known any more."""
LAST_MS = 2**53
"""After every line of the ledger."""
Costs = dict[Cause, int]


def costs(
    deployment: Deployment,
    project: str | None,
    by: CostKey,
    now_ms: int,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    zone: str = "UTC",
    limit: int = 200,
    forecast: bool = False,
) -> CostsView:
    """Return what a project cost (None: all of them, with what nodes cost that no project caused), in the rows that cost most, at most
    `limit`. Days are never left out. With `forecast`, also what the current day and month will have cost.

    Raise `BadInput` for a zone that does not exist, and for more than `DAYS_MAX` days.
    """
    parse_zone(zone)
    of = {"project": project or ""}
    span = {"since": since_ms or 0, "until": LAST_MS if until_ms is None else until_ms}
    rows, others, others_count = (
        (_by_day(deployment, of, span, zone), None, 0) if by == "day" else _by_key(deployment, of, span, by, limit)
    )
    total = _added([each for _, each in rows] + ([others] if others else []))
    unpriced = deployment.store.load("unpriced_in_span", **of, **span)[0]["unpriced"]
    return CostsView(
        by=by,
        since_ms=since_ms,
        until_ms=until_ms,
        zone=zone,
        rows=tuple(cost_row(key, label, each) for (key, label), each in rows),
        others=None if others is None else cost_row("", f"{others_count} others", others),
        others_count=others_count,
        usd=sum(total.values()) / 1e6,
        parts=dollars_by_cause(total),
        running_usd=deployment.store.load("running_costs", **of, now=now_ms)[0]["micro_usd"] / 1e6,
        cost_lacks=unknown_parts(deployment.policy, node_time=bool(unpriced)),
        forecast=forecasts(deployment, project, now_ms, zone) if forecast else (),
    )


def count_interruptions(
    deployment: Deployment, project: str | None, *, since_ms: int | None, until_ms: int | None
) -> int:
    """Return how many attempts of a project were interrupted in a span of time (None: of all projects, and without a limit)."""
    span = {"since": since_ms or 0, "until": LAST_MS if until_ms is None else until_ms}
    return deployment.store.load("interruptions_in_span", project=project or "", **span)[0]["interruptions"]


Rows = list[tuple[tuple[str, str], Costs]]
"""Of each row its key, its label, and its costs."""


def _load_by(store: Store, by: CostKey, values: Mapping[str, str | int]) -> list[Row]:
    if by == "job":
        return store.load("costs_of_jobs", **values)
    if by == "user":
        return store.load("costs_of_users", **values)
    return store.load("costs", **values)


def _by_key(
    deployment: Deployment, of: Mapping[str, str], span: Mapping[str, int], by: CostKey, limit: int
) -> tuple[Rows, Costs | None, int]:
    found = _load_by(deployment.store, by, {**of, **span, "by": by, "limit": limit})
    listed: dict[int, Costs] = defaultdict(dict)
    names = dict[int, tuple[str, str]]()
    for row in found:
        listed[row["place"]][row["cause"]] = row["micro_usd"]
        names[row["place"]] = row["of_key"], row["name"] or row["of_key"] or OF_NONE.get(by, "")
    others = listed.pop(0, None)
    count = max(0, found[0]["keys"] - limit) if found else 0
    return [(names[place], listed[place]) for place in sorted(listed)], others, count


def _by_day(deployment: Deployment, of: Mapping[str, str], span: Mapping[str, int], zone: str) -> Rows:
    """Return the days that cost something, in order: a statement for each span of one offset from UTC, as clocks are changed."""
    known = deployment.store.load("span_of_ledger", **of)[0]
    if known["from_ms"] is None:
        return []
    begins, ends = max(span["since"], known["from_ms"]), min(span["until"], known["to_ms"] + 1)
    if ends - begins > DAYS_MAX * DAY_MS:
        raise BadInput(
            f"these are more than {DAYS_MAX} days, the most that one answer has", hint="give a later `since`"
        )
    days: dict[int, Counter[Cause]] = defaultdict(Counter)
    for each in offset_spans(begins, ends, parse_zone(zone)):
        within = {"since": each.from_ms, "until": each.until_ms, "offset": each.offset_ms}
        for row in deployment.store.load("costs_of_days", **of, **within):
            days[row["day"]][row["cause"]] += row["micro_usd"]
    return [((name_of_day(day), name_of_day(day)), dict(days[day])) for day in sorted(days)]


def _added(several: Iterable[Costs]) -> Costs:
    total = Counter[Cause]()
    for each in several:
        total.update(each)
    return dict(total)
