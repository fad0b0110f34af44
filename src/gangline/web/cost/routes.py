"""The screen of costs and budgets, its files, and how an operator sets a budget."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Response

from gangline.api.access_routes import Allowance
from gangline.api.lanes import json_response
from gangline.api.who import Now, Operator, ThisDeployment
from gangline.core.money.cost import Cause
from gangline.core.parsing import parse_as
from gangline.core.reports.cost_lines import as_cost_lines, shown_rows
from gangline.core.reports.costs import CostsView
from gangline.core.reports.days import parse_zone
from gangline.service.access import projects
from gangline.service.deployment import Deployment
from gangline.service.experiments.budgets import budgets
from gangline.service.reports.costs import costs, count_interruptions
from gangline.web.cost.asked import KEYS, SPANS, AskedCosts, CostsAsked, as_moment
from gangline.web.cost.drawn import HEIGHT, SAYS, Chart, chart_of_days, most_of, row_bar
from gangline.web.frame.forms import SentFields
from gangline.web.frame.routes import SlowPageRoute, like, page_router, part, screen
from gangline.web.frame.scope import Scope
from gangline.web.frame.visitor import Looking, Visit

router = page_router()
of_many_lines = page_router(SlowPageRoute)
ROWS = 100
EXPORTED = 1000
CSV = "text/csv; charset=utf-8"
FEW_USD = 0.1
"""Sums below this are shown with more digits."""
Format = Literal["csv", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCosts:
    """Costs, and of them what `interruptions` lost. `digits` are those of every sum, so that they stand below each other. `causes` have
    columns of their own."""

    found: CostsView
    interruptions: int
    chart: Chart | None
    digits: int
    causes: tuple[Cause, ...]

    def share(self, cause: Cause) -> float:
        """Return the share of a cause in all costs."""
        return self.found.parts.get(cause, 0.0) / self.found.usd if self.found.usd else 0.0


@of_many_lines.get("/cost", **like("GET /v1/costs", "GET /v1/budgets"))
def costs_screen(deployment: ThisDeployment, now: Now, look: Looking, scope: Scope, asked: CostsAsked) -> Response:
    """Show what the chosen days cost, on what, and which budgets there are."""
    shown = _shown(deployment, scope, asked, now)
    rows = shown_rows(shown.found)
    most = most_of(rows)
    return screen(
        look,
        "cost/screen.html",
        shown=shown,
        rows=[(row, row_bar(row, most)) for row in rows],
        asked=asked,
        scope=scope,
        address=asked.as_pairs(),
        report=_report_fields(shown.found),
        keys=[key for key in KEYS if key != "project" or scope is None],
        spans=SPANS,
        says=SAYS,
        height=HEIGHT,
        **_budgets(deployment, look, scope, now),
    )


@of_many_lines.get("/cost/export", **like("GET /v1/costs"))
def export_costs(
    deployment: ThisDeployment,
    now: Now,
    scope: Scope,
    asked: CostsAsked,
    form: Annotated[Format, Query(alias="format")] = "csv",
) -> Response:
    """Download the costs as CSV, or as JSON as the API has them."""
    since_ms, until_ms = asked.span(now)
    found = costs(
        deployment, scope, asked.by, now, since_ms=since_ms, until_ms=until_ms, zone=asked.zone, limit=EXPORTED
    )
    answer = json_response(found) if form == "json" else Response(as_cost_lines(found), media_type=CSV)
    answer.headers["Content-Disposition"] = f'attachment; filename="costs-by-{asked.by}.{form}"'
    return answer


@router.post("/cost/projects/{project}", **like("PUT /v1/projects/{project}"))
def set_budget(
    deployment: ThisDeployment, now: Now, _: Operator, look: Looking, scope: Scope, sent: SentFields, project: str
) -> Response:
    """Set the budget and the share of a project. An empty budget is no limit."""
    given = {name: sent.text(name) for name in ("share", "budget_usd") if sent.text(name)}
    wanted = parse_as(Allowance, given, options=True)
    projects.set_allowance(deployment, project, share=wanted.share, budget_usd=wanted.budget_usd)
    return part("cost/budgets.html", look=look, scope=scope, **_budgets(deployment, look, scope, now))


def _shown(deployment: Deployment, project: str | None, asked: AskedCosts, now_ms: int) -> ShownCosts:
    since_ms, until_ms = asked.span(now_ms)
    span = {"since_ms": since_ms, "until_ms": until_ms}
    found = costs(deployment, project, asked.by, now_ms, **span, zone=asked.zone, limit=ROWS)
    zone = parse_zone(asked.zone)
    first, last = (
        (f"{datetime.fromtimestamp(at_ms / 1000, zone).date()}" for at_ms in (since_ms, now_ms))
        if since_ms is not None and asked.days != "own"
        else (None, None)
    )
    return ShownCosts(
        found=found,
        interruptions=count_interruptions(deployment, project, **span),
        chart=chart_of_days(found.rows, first, last) if asked.by == "day" else None,
        digits=6 if abs(found.usd) < FEW_USD else 4,
        causes=tuple(found.parts),
    )


def _budgets(deployment: Deployment, look: Visit, project: str | None, now_ms: int) -> dict[str, Any]:
    """Return the budgets, and for operators the shares of projects."""
    shares = {each.project: each.share for each in projects.projects(deployment)} if look.sees("operator") else {}
    return {"budgets": budgets(deployment, project, now_ms), "shares": shares, "may": look.may("operator")}


def _report_fields(found: CostsView) -> list[tuple[str, str]]:
    """Return the fields of an address that reports on the jobs that were submitted in the same span."""
    limits = (("since", found.since_ms), ("until", found.until_ms))
    return [(name, as_moment(at_ms)) for name, at_ms in limits if at_ms is not None]
