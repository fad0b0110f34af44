"""Answer which budgets there are: those of projects, and those of their experiments."""

from dataclasses import fields

from gangline.core.experiments.runs import spent_micro_usd
from gangline.core.reports.costs import BudgetsView, ExperimentBudget, ProjectBudget
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
    known = projects(deployment) if project is None else [project_view(deployment, project)]
    return BudgetsView(
        projects=tuple(
            ProjectBudget(**{field.name: getattr(each, field.name) for field in fields(ProjectBudget)})
            for each in known
        ),
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
