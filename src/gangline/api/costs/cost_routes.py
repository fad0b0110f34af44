"""Routes for costs, budgets and what the fleet costs an hour now."""

from typing import Annotated

from annotated_types import MaxLen
from fastapi import APIRouter, Query

from gangline.api.jobs.filters import MomentText
from gangline.api.lanes import ReportRoute, UserRoute
from gangline.api.who import Now, Operator, ThisDeployment, ViewerReach
from gangline.core.jobs.lists.filters import parse_moment
from gangline.core.reports.costs import BudgetsView, CostKey, CostsView, FleetView
from gangline.service.experiments import budgets
from gangline.service.reports import costs, spending

router = APIRouter(prefix="/v1", tags=["costs"], route_class=UserRoute)
of_many_lines = APIRouter(prefix="/v1", tags=["costs"], route_class=ReportRoute)

ZoneText = Annotated[
    str, Query(min_length=1, description="The time zone of days, by its IANA name: Europe/Berlin."), MaxLen(60)
]
ROWS_MAX = 1000


@of_many_lines.get("/costs")
def show_costs(
    deployment: ThisDeployment,
    now: Now,
    reach: ViewerReach,
    by: CostKey = "day",
    since: MomentText = None,
    until: MomentText = None,
    zone: ZoneText = "UTC",
    limit: Annotated[int, Query(ge=1, le=ROWS_MAX, description="The most rows. Days are never left out.")] = 200,
    forecast: Annotated[bool, Query(description="Say what the current day and month will have cost.")] = False,
) -> CostsView:
    """Show what the project cost from `since` until `until`, by the ledger: a row for each day, pool, job, cause, project, node, user or
    GPU, with its parts by cause. The sum is the same by each of them.

    If an operator names no project, all are shown, with the time of nodes that no project caused. 422 for more than 1,000 days.
    """
    since_ms = None if since is None else parse_moment(since, "since")
    until_ms = None if until is None else parse_moment(until, "until")
    span = {"since_ms": since_ms, "until_ms": until_ms}
    return costs.costs(deployment, reach, by, now, **span, zone=zone, limit=limit, forecast=forecast)


@router.get("/budgets")
def show_budgets(deployment: ThisDeployment, now: Now, reach: ViewerReach) -> BudgetsView:
    """Show the budgets of the project and of its experiments that have not ended; of all projects if an operator names none."""
    return budgets.budgets(deployment, reach, now)


@router.get("/fleet")
def show_fleet(deployment: ThisDeployment, _: Operator) -> FleetView:
    """Show what the nodes of each pool cost an hour now, and of it what is idle or starts. Needs an operator's key."""
    return spending.fleet_spending(deployment)
