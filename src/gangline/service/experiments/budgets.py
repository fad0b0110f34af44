"""Answer which budgets there are: those of projects, and those of their experiments."""

from dataclasses import fields

from gangline.core.experiments.runs import spent_micro_usd
from gangline.core.reports.costs import BudgetsView, ExperimentBudget, ProjectBudget
from gangline.service.access.projects import project as project_view
from gangline.service.access.projects import projects
from gangline.service.deployment import Deployment
from gangline.service.experiments.loading import LoadedExperiment, experiment_rows, load_experiments

EXPERIMENTS_MAX = 50
"""The most experiments of one answer: each may have a thousand jobs to add up."""


def budgets(deployment: Deployment, project: str | None, now_ms: int) -> BudgetsView:
    """Return the budgets of a project and of its experiments; those of all projects, if it is None. Raise `NotFound`."""
    load = deployment.store.load
    listed = [row["id"] for row in load("open_budgets", project=project or "", limit=EXPERIMENTS_MAX)]
    rows = [row for row in experiment_rows(deployment, listed) if row["budget"] is not None]
    known = projects(deployment) if project is None else [project_view(deployment, project)]
    return BudgetsView(
        projects=tuple(
            ProjectBudget(**{field.name: getattr(each, field.name) for field in fields(ProjectBudget)})
            for each in known
        ),
        experiments=tuple(map(_budget, load_experiments(deployment, rows, now_ms))),
    )


def _budget(found: LoadedExperiment) -> ExperimentBudget:
    row = found.row
    return ExperimentBudget(
        experiment=row["id"],
        name=row["name"],
        project=row["project"],
        budget_usd=row["budget"] / 1e6,
        spent_usd=spent_micro_usd(found.runs) / 1e6,
        because=row["because"],
    )
