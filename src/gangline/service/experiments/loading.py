"""Load an experiment and its jobs as decisions see them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.errors import NotFound
from gangline.core.experiments.measured import unpack_measurements
from gangline.core.experiments.runs import Experiment, ExperimentRun
from gangline.core.experiments.terms import HalvingTerms
from gangline.core.job import HELD
from gangline.core.jobs.lists.ids import as_list
from gangline.ports.store import Row
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.summaries import saved_step
from gangline.service.money.bill import spent_so_far


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedExperiment:
    """An experiment and its jobs, with the rows that they were read from: `row` of the experiment, `rows` of its jobs by id."""

    experiment: Experiment
    runs: tuple[ExperimentRun, ...]
    row: Row
    rows: dict[str, Row]

    @property
    def steps(self) -> int:
        """Return the steps of a job; all have as many where that matters."""
        return max((run.steps for run in self.runs), default=0)


def owned_experiment(deployment: Deployment, project: str, experiment: str) -> Row:
    """Return the row of an experiment. Raise `NotFound` if the project has none of this id."""
    rows = experiment_rows(deployment, [experiment])
    if not rows or rows[0]["project"] != project:
        raise NotFound(f"there is no experiment {experiment}", hint="`gangline experiments ls` lists them")
    return rows[0]


def experiment_rows(deployment: Deployment, experiments: Sequence[str]) -> list[Row]:
    """Return the rows of those of these experiments that are there."""
    return list(deployment.store.load("experiments", **as_list(experiments))) if experiments else []


def experiment_of_job(deployment: Deployment, job: str) -> Row | None:
    """Return the id and the name of the experiment of a job; None if it is of none."""
    return next(iter(deployment.store.load("experiments_of_jobs", **as_list([job]))), None)


def load_experiment(deployment: Deployment, row: Row, now_ms: int) -> LoadedExperiment:
    """Return an experiment, given its row, with its jobs as they are now."""
    return load_experiments(deployment, [row], now_ms)[0]


def load_experiments(deployment: Deployment, rows: Sequence[Row], now_ms: int) -> list[LoadedExperiment]:
    """Return several experiments, given their rows, with their jobs as they are now: one statement reads all of these."""
    if not rows:
        return []
    of_each = dict[str, list[Row]]()
    for each in deployment.store.load("runs_of_experiments", now=now_ms, **as_list([row["id"] for row in rows])):
        of_each.setdefault(each["experiment"], []).append(each)
    return [
        LoadedExperiment(
            experiment=as_experiment(row),
            runs=tuple(as_run(each, now_ms) for each in of_each.get(row["id"], ())),
            row=row,
            rows={each["job"]: each for each in of_each.get(row["id"], ())},
        )
        for row in rows
    ]


def as_experiment(row: Row) -> Experiment:
    return Experiment(
        **{name: row[name] for name in ("id", "name", "state", "because", "measure", "at_once", "budget", "price")},
        halving=HalvingTerms(**json.loads(row["halving"])) if row["halving"] else None,
    )


def as_run(row: Row, now_ms: int) -> ExperimentRun:
    live = row["last_state"] == "live"
    succeeded = row["state"] == "succeeded"
    return ExperimentRun(
        **{
            name: row[name]
            for name in ("job", "name", "number", "seed", "state", "version", "steps", "prepares", "rung")
        },
        **{name: row[name] for name in ("because", "waits")},
        settings=json.loads(row["settings"]),
        held=row["state"] == "queued" and row["fetching"] == HELD,
        pausing=row["state"] == "paused" or (live and row["stop_kind"] == "paused"),
        step=(row["ended_step"] or row["steps"]) if succeeded else max(row["step"], saved_step(row)),
        trained=bool(row["trained"]),
        micro_usd=spent_so_far(row, now_ms),
        priced=not row["unpriced"],
        dropped=bool(row["dropped"]),
        measured=unpack_measurements(row["measured"]),
    )


def count_states(runs: Sequence[ExperimentRun]) -> dict[str, int]:
    """Return how many jobs are in each state, `held` among them; a state without jobs is left out."""
    states = ["held" if run.held else run.state for run in runs]
    return {state: states.count(state) for state in dict.fromkeys(sorted(states))}
