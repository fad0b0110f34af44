"""The screen of costs and budgets, its files, and how an operator sets a budget."""

from typing import Annotated, Literal

from fastapi import Query, Response
from fastapi.responses import HTMLResponse

from gangline.api.access_routes import Allowance
from gangline.api.lanes import USERS, json_response
from gangline.api.who import Now, Operator, ThisDeployment
from gangline.core.parsing import parse_as
from gangline.core.reports.cost_lines import as_cost_lines
from gangline.core.reports.costs import CostsView
from gangline.service.access import projects
from gangline.service.deployment import Deployment
from gangline.service.reports.costs import costs
from gangline.web.cost.asked import KEYS, SPANS, CostsAsked, as_moment
from gangline.web.cost.drawn import HEIGHT, SAYS
from gangline.web.cost.followed import CostScreen, CostSeen, ShownBudgets, shown_budgets, shown_costs
from gangline.web.frame.forms import SentFields
from gangline.web.frame.rendering import block
from gangline.web.frame.routes import SlowPageRoute, like, page_router, screen
from gangline.web.frame.scope import Scope, ScopeLater
from gangline.web.frame.visitor import Looking, LookingLater, Visit
from gangline.web.live.following import Following

router = page_router()
of_many_lines = page_router(SlowPageRoute)
EXPORTED = 1000
CSV = "text/csv; charset=utf-8"
Format = Literal["csv", "json"]


@of_many_lines.get("/cost", **like("GET /v1/costs", "GET /v1/budgets"))
def costs_screen(deployment: ThisDeployment, now: Now, look: Looking, scope: Scope, asked: CostsAsked) -> Response:
    """Show what the chosen days cost, on what, and which budgets there are."""
    shown = shown_costs(deployment, scope, asked, now)
    return screen(
        look,
        "cost/screen.html",
        shown=shown,
        asked=asked,
        scope=scope,
        address=asked.as_pairs(),
        report=_report_fields(shown.found),
        keys=[key for key in KEYS if key != "project" or scope is None],
        spans=SPANS,
        says=SAYS,
        height=HEIGHT,
        limits=_budgets(deployment, look, scope, now),
    )


@router.get("/live/cost", **like("GET /v1/costs", "GET /v1/budgets"))
async def follow_costs(following: Following, look: LookingLater, scope: ScopeLater, asked: CostsAsked) -> Response:
    """Follow the costs of the chosen days. The stream ends with the key of its session."""
    looking, project = await USERS.run(lambda: (look.get(), scope.get()))
    seen = CostSeen(project=project, asked=asked, operates=looking.sees("operator"), may=looking.may("operator"))
    return await following.follow(looking, ("cost", seen), lambda: CostScreen(seen))


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
    return HTMLResponse(block("cost/budgets.html", "budgets", of=_budgets(deployment, look, scope, now)))


def _budgets(deployment: Deployment, look: Visit, project: str | None, now_ms: int) -> ShownBudgets:
    return shown_budgets(deployment, project, now_ms, operates=look.sees("operator"), may=look.may("operator"))


def _report_fields(found: CostsView) -> list[tuple[str, str]]:
    """Return the fields of an address that reports on the jobs that were submitted in the same span."""
    limits = (("since", found.since_ms), ("until", found.until_ms))
    return [(name, as_moment(at_ms)) for name, at_ms in limits if at_ms is not None]
