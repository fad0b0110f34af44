"""Answer which budgets there are, and what the fleet costs an hour now."""

from gangline.core.experiments.runs import spent_micro_usd
from gangline.core.reports.costs import BudgetsView, ExperimentBudget, FleetView, PoolSpending
from gangline.ports.store import Row
from gangline.service.access.projects import project as project_view
from gangline.service.access.projects import projects
from gangline.service.deployment import Deployment
from gangline.service.experiments.loading import load_experiment

EXPERIMENTS_MAX = 50
"""The most experiments of one answer: each may have a thousand jobs to add up."""


def budgets(deployment: Deployment, project: str | None, now_ms: int) -> BudgetsView:
    """Return the budgets of a project and of its experiments; those of all projects, if it is None. Raise `NotFound`."""
    load = deployment.store.load
    listed = [row["id"] for row in load("open_budgets", project=project or "", limit=EXPERIMENTS_MAX)]
    rows = [row for experiment in listed for row in load("experiment", id=experiment)]
    return BudgetsView(
        projects=tuple(projects(deployment)) if project is None else (project_view(deployment, project),),
        experiments=tuple(_budget(deployment, row, now_ms) for row in rows if row["budget"] is not None),
    )


def _budget(deployment: Deployment, row: Row, now_ms: int) -> ExperimentBudget:
    return ExperimentBudget(
        experiment=row["id"],
        name=row["name"],
        project=row["project"],
        budget_usd=row["budget"] / 1e6,
        spent_usd=spent_micro_usd(load_experiment(deployment, row, now_ms).runs) / 1e6,
        because=row["because"],
    )


def fleet_spending(deployment: Deployment) -> FleetView:
    """Return what the nodes of each pool cost an hour now, and of it what is idle or starts."""
    rows = deployment.store.load("fleet_spending")
    return FleetView(
        pools=tuple(
            PoolSpending(
                **{name: row[name] for name in ("pool", "nodes", "slots", "slots_free", "unpriced")},
                usd_per_hour=row["per_hour"] / 1e6,
                idle_usd_per_hour=row["idle_per_hour"] / 1e6,
                starting_usd_per_hour=row["starting_per_hour"] / 1e6,
            )
            for row in rows
        ),
        nodes=sum(row["nodes"] for row in rows),
        unpriced=sum(row["unpriced"] for row in rows),
        usd_per_hour=sum(row["per_hour"] for row in rows) / 1e6,
        idle_usd_per_hour=sum(row["idle_per_hour"] for row in rows) / 1e6,
        starting_usd_per_hour=sum(row["starting_per_hour"] for row in rows) / 1e6,
    )
