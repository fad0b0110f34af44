"""Stop, resume and change an experiment for its owner."""

from dataclasses import dataclass

from gangline.core.errors import BadInput, Unreachable
from gangline.core.experiments.runs import ExperimentRun
from gangline.ports.store import guard, write
from gangline.service.attempts import TRIES_MAX
from gangline.service.deployment import Deployment
from gangline.service.experiments.loading import load_experiment, owned_experiment
from gangline.service.experiments.moves import holding_again
from gangline.service.experiments.tend import tend_experiment

STOPPED = "stopped: its jobs are canceled"
RESUMED = "resumed with its experiment"


def stop_runs(deployment: Deployment, project: str, experiment: str, now_ms: int) -> None:
    """Cancel all jobs that have not ended. An experiment that has ended stays as it is. Raise `NotFound`."""
    owned_experiment(deployment, project, experiment)
    deployment.store.apply(write("stop_experiment", id=experiment, because=STOPPED))
    tend_experiment(deployment, experiment, now_ms)


def resume_runs(deployment: Deployment, project: str, experiment: str, now_ms: int) -> None:
    """Let the paused jobs wait for their turn again, but for those that wait at a rung. Raise `BadInput` if it has ended or was stopped."""
    row = owned_experiment(deployment, project, experiment)
    if row["state"] != "running":
        raise BadInput(f"{row['name']} was stopped or has ended, and cannot be resumed", hint="submit it again")
    found = load_experiment(deployment, row, now_ms)
    for run in found.runs:
        if _is_resumed(run):
            again = holding_again(found.rows[run.job], RESUMED, now_ms)
            # where it changed meanwhile, it is no longer as its owner saw it
            deployment.store.apply(*again, write("wait_at", job=run.job, waits=""))
    tend_experiment(deployment, experiment, now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsWish:
    """What to change of an experiment's terms; None stays. `any_number` and `any_cost` take the limits away."""

    at_once: int | None = None
    budget_usd: float | None = None
    any_number: bool = False
    any_cost: bool = False


def change_terms(deployment: Deployment, project: str, experiment: str, wish: TermsWish, now_ms: int) -> None:
    """Change how many jobs run at once, and the budget. Raise `BadInput` if the experiment has ended."""
    for _ in range(TRIES_MAX):
        row = owned_experiment(deployment, project, experiment)
        if row["ended_ms"] is not None:
            raise BadInput(f"{row['name']} has ended", hint="submit another experiment")
        budget = row["budget"] if wish.budget_usd is None else round(wish.budget_usd * 1e6)
        terms = {
            "at_once": None if wish.any_number else wish.at_once or row["at_once"],
            "budget": None if wish.any_cost else budget,
        }
        if deployment.store.apply(guard("change_experiment", id=experiment, version=row["version"], **terms)):
            tend_experiment(deployment, experiment, now_ms)
            return
    raise Unreachable(f"{experiment} changed {TRIES_MAX} times meanwhile; try again")


def _is_resumed(run: ExperimentRun) -> bool:
    return run.pausing and not run.has_ended and run.waits != "rung"
