"""Routes for costs, budgets and what the fleet costs an hour now."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from fastapi import APIRouter, Query

from gangline.api.jobs.filters import MomentText
from gangline.api.lanes import ReportRoute, UserRoute
from gangline.api.who import Now, Operator, ThisDeployment, ViewerReach
from gangline.core.display import Label
from gangline.core.jobs.lists.filters import parse_moment
from gangline.core.money.forecast import CostSpan
from gangline.core.money.thresholds import PERCENTS
from gangline.core.policy import STRICT
from gangline.core.reports.costs import BudgetsView, CostKey, CostsView, FleetView
from gangline.core.reports.thresholds import ThresholdView
from gangline.service.experiments import budgets
from gangline.service.reports import costs, spending, thresholds

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


ProjectText = Annotated[Label, MaxLen(40)]
Percent = Annotated[int, Ge(1), Le(thresholds.PERCENT_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedThreshold:
    """A threshold to set: `usd` a day or month of `zone` for the costs of `project` (empty: of everything that the service costs) on
    nodes of `pool` (empty: of all). The endpoints of the project `notify` (default: `project`) get a notice when `percents` of it are
    spent, and with `forecast` when more is expected to be."""

    __pydantic_config__: ClassVar[Any] = STRICT
    usd: Annotated[float, Gt(0), Le(1e9)]
    per: CostSpan
    project: ProjectText = ""
    pool: Annotated[Label, MaxLen(200)] = ""
    percents: Annotated[tuple[Percent, ...], MinLen(1), MaxLen(20)] = PERCENTS
    forecast: bool = True
    zone: Annotated[Label, MinLen(1), MaxLen(60)] = "UTC"
    notify: ProjectText = ""


@of_many_lines.put("/costs/thresholds", responses={404: {}})
def set_threshold(deployment: ThisDeployment, now: Now, _: Operator, wanted: WantedThreshold) -> ThresholdView:
    """Set the threshold of a project and a pool for each day or month, or change it. It gives notice, once for each share of it in each
    day or month, and stops nothing. Needs an operator's key. As long as `endpoints` of the answer is 0, nobody hears of it.

    404 for a project or a pool that is not there, 422 for a zone that does not exist, and if neither `project` nor `notify` is given.
    """
    wish = {field.name: getattr(wanted, field.name) for field in fields(thresholds.ThresholdWish)}
    return thresholds.keep_threshold(deployment, thresholds.ThresholdWish(**wish), now)


@of_many_lines.get("/costs/thresholds")
def list_thresholds(deployment: ThisDeployment, now: Now, reach: ViewerReach) -> tuple[ThresholdView, ...]:
    """List the thresholds of the project, with what is spent and expected of them, and the notices of the current day or month; all
    thresholds, those of the whole service among them, if an operator names no project."""
    return thresholds.thresholds(deployment, reach, now)


@router.delete("/costs/thresholds/{threshold}", status_code=204)
def remove_threshold(deployment: ThisDeployment, _: Operator, threshold: str) -> None:
    """Remove a threshold. Repeating this changes nothing. Needs an operator's key."""
    thresholds.drop_threshold(deployment, threshold)


@router.get("/fleet")
def show_fleet(deployment: ThisDeployment, _: Operator) -> FleetView:
    """Show what the nodes of each pool cost an hour now, and of it what is idle or starts. Needs an operator's key."""
    return spending.fleet_spending(deployment)
