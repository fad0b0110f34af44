"""Answer what users ask about experiments. Writes nothing."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gangline.core.access import OwnerView
from gangline.core.experiments.best import BestView, best_of_left, best_so_far
from gangline.core.experiments.halving import saved_by_halving, saved_view
from gangline.core.experiments.runs import (
    STOPPED_BEFORE,
    Experiment,
    how_jobs_ended,
    is_as_recorded,
    price_of_step,
    spent_micro_usd,
)
from gangline.core.experiments.views import ExperimentPage, ExperimentRunView, ExperimentView
from gangline.core.jobs.lists.cursor import read_cursor, write_cursor
from gangline.core.jobs.lists.filters import NEWEST, JobFilters, ListPosition
from gangline.core.money.cost import unknown_parts
from gangline.core.parsing import parse_as
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.experiments.loading import (
    LoadedExperiment,
    as_experiment,
    count_states,
    experiment_rows,
    load_experiment,
    load_experiments,
    owned_experiment,
)
from gangline.service.experiments.sums import ExperimentSums, sums_at_rest
from gangline.service.jobs.lists.summaries import summaries

PAGE_MAX = 50
"""A page has at most this many experiments: each may have a thousand jobs to count."""
OF_EXPERIMENTS = JobFilters(named="experiments")
"""It makes the cursors of this list others than those of lists of jobs."""


def experiment_view(deployment: Deployment, project: str, experiment: str, now_ms: int) -> ExperimentView:
    """Return an experiment as it is now. Raise `NotFound`."""
    return _view(deployment, load_experiment(deployment, owned_experiment(deployment, project, experiment), now_ms))


def page_of_experiments(
    deployment: Deployment, project: str, now_ms: int, *, limit: int, cursor: str | None
) -> ExperimentPage:
    """Return a page of a project's experiments, newest first. Raise `BadInput` for a cursor that is not of this list."""
    start = NEWEST if cursor is None else read_cursor(cursor, OF_EXPERIMENTS)
    before = {"before_ms": start.at_ms, "before_id": start.id}
    found = deployment.store.load("experiments_page", project=project, **before, limit=limit + 1)
    listed = experiment_rows(deployment, [row["id"] for row in found[:limit]])
    last = ListPosition(found[limit - 1]["made_ms"], found[limit - 1]["id"]) if len(found) > limit else None
    return ExperimentPage(
        experiments=tuple(experiment_views(deployment, listed, now_ms)),
        next=None if last is None else write_cursor(last, OF_EXPERIMENTS),
    )


def runs_view(deployment: Deployment, project: str, experiment: str, now_ms: int) -> list[ExperimentRunView]:
    """Return the jobs of an experiment, in the order of their numbers. Raise `NotFound`."""
    found = load_experiment(deployment, owned_experiment(deployment, project, experiment), now_ms)
    shown = {each.id: each for each in summaries(deployment, project, [run.job for run in found.runs], now_ms)}
    return [
        ExperimentRunView(
            **{name: getattr(run, name) for name in ("number", "job", "name", "settings", "seed", "rung")},
            state="held" if run.held else shown[run.job].state,
            because=shown[run.job].because,
            step=shown[run.job].step,
            steps=run.steps,
            held_out_loss=run.measured.held_out_loss,
            best_held_out_loss=run.measured.best_held_out_loss,
            best_step=run.measured.best_step,
            loss=shown[run.job].loss if run.measured.loss is None else run.measured.loss,
            training_s=round((found.rows[run.job]["training_ms"] or 0) / 1000, 1),
            cost_usd=shown[run.job].cost_usd,
            cost_lacks=shown[run.job].cost_lacks,
        )
        for run in found.runs
        if run.job in shown  # else it was deleted meanwhile
    ]


def experiment_views(deployment: Deployment, rows: Sequence[Row], now_ms: int) -> list[ExperimentView]:
    """Return these experiments, given their rows. Of those that have ended and whose jobs are all at rest, what is shown is a sum over
    their jobs; of others, which job is the best so far depends on each of them."""
    sums = sums_at_rest(deployment, [row for row in rows if row["ended_ms"] is not None])
    for row in rows:
        if row["id"] in sums and not is_as_recorded(row["because"], sums[row["id"]].counts):
            del sums[row["id"]]  # jobs were deleted, so the best one is compared with those that are left
    others = load_experiments(deployment, [row for row in rows if row["id"] not in sums], now_ms)
    looked_at = {each.row["id"]: each for each in others}
    return [
        _summed(deployment, row, sums[row["id"]]) if row["id"] in sums else _view(deployment, looked_at[row["id"]])
        for row in rows
    ]


def _summed(deployment: Deployment, row: Row, sums: ExperimentSums) -> ExperimentView:
    experiment = as_experiment(row)
    price = sums.price if sums.price is not None else experiment.price
    return _shown(
        row,
        experiment,
        jobs=sums.jobs,
        counts=sums.counts,
        spent_usd=sums.micro_usd / 1e6,
        expected_usd=None if price is None else round(sums.micro_usd / 1e6, 6),
        best=parse_as(BestView, json.loads(row["best_as"])) if sums.has_best else None,
        saved=saved_view(sums.dropped, sums.dropped_steps, price) if experiment.halving else None,
        cost_lacks=unknown_parts(deployment.policy, node_time=sums.unpriced > 0) if sums.tried else (),
    )


def _view(deployment: Deployment, found: LoadedExperiment) -> ExperimentView:
    experiment, runs = found.experiment, found.runs
    tried = [run for run in runs if found.rows[run.job]["fencing"]]
    return _shown(
        found.row,
        experiment,
        jobs=len(runs),
        counts=count_states(runs),
        spent_usd=spent_micro_usd(runs) / 1e6,
        expected_usd=_expected_usd(found),
        best=_best(found),
        saved=saved_by_halving(runs, experiment.price) if experiment.halving else None,
        cost_lacks=unknown_parts(deployment.policy, node_time=not all(run.priced for run in tried)) if tried else (),
    )


def _shown(row: Row, experiment: Experiment, **of_runs: Any) -> ExperimentView:
    names = ("id", "name", "state", "measure", "at_once", "halving")
    return ExperimentView(
        **{name: getattr(experiment, name) for name in names},
        because=_because(experiment, of_runs["counts"]),
        **of_runs,
        settings=tuple(json.loads(row["settings"])),
        budget_usd=None if experiment.budget is None else experiment.budget / 1e6,
        made_ms=row["made_ms"],
        ended_ms=row["ended_ms"],
        owner=OwnerView(id=row["owner"], name=row["owner_name"] or "") if row["owner"] else None,
    )


def _because(experiment: Experiment, counts: Mapping[str, int]) -> str:
    """Return the reason of its state; of one that has ended, how those of its jobs ended that are left."""
    if experiment.state != "ended":
        return experiment.because
    stopped = STOPPED_BEFORE if experiment.because.startswith(STOPPED_BEFORE) else ""
    return stopped + how_jobs_ended(counts)


def _expected_usd(found: LoadedExperiment) -> float | None:
    price = price_of_step(found.runs, found.experiment.price)
    if price is None:
        return None
    left = sum(max(0, run.steps - run.step) for run in found.runs if not run.has_ended)
    return round((spent_micro_usd(found.runs) + left * price) / 1e6, 6)


def _best(found: LoadedExperiment) -> BestView | None:
    """Return the best job: of an experiment that has ended, the one that was best, as it was compared then, unless it is deleted. Where
    others were deleted, it is compared with those that are left."""
    experiment = found.experiment
    if experiment.state != "ended":
        return best_so_far(found.runs, experiment.measure, ended=False)
    if found.row["best"] not in found.rows:
        return None
    recorded = parse_as(BestView, json.loads(found.row["best_as"]))
    if is_as_recorded(experiment.because, count_states(found.runs)):
        return recorded
    return best_of_left(recorded, found.runs, experiment.measure)
