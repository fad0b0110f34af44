"""Submit an experiment from the command line: show what it would take, submit it, and follow it."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from gangline.cli.jobs.follow import progress_line
from gangline.cli.output import (
    EXIT_INTERRUPTED,
    Output,
    as_typed,
    cost_alone,
    duration,
    err,
    facts,
    format_number,
    out,
    print_json,
    say,
    usd,
)
from gangline.core.display import printable
from gangline.core.errors import Unreachable
from gangline.core.experiments.best import BestView
from gangline.core.experiments.terms import MEASURES
from gangline.core.experiments.views import ExperimentPlanView, ExperimentView
from gangline.core.words import counted, listed, times_in_words

if TYPE_CHECKING:
    from gangline.compose.client import Client

LOOK_S = 2.0
"""The time between two looks at an experiment that is followed."""
EXIT_JOBS_FAILED = 1
STATES = ("held", "queued", "running", "paused", "succeeded", "failed", "canceled")


def show_experiment_plan(found: ExperimentPlanView) -> None:
    """Show what an experiment would take, before anything is uploaded."""
    err.print(
        facts(
            ("jobs", _jobs(found)),
            ("steps in all", _range(f"{found.steps_least:,}", f"{found.steps:,}")),
            ("time on nodes in all", _hours(found)),
            ("price of all", _usd(found)),
            ("prepared", f"{times_in_words(found.prepares)} for all jobs" if found.prepares else "by each job"),
            ("compared by", MEASURES[found.measure]),
        )
    )
    say(found.because)


def _jobs(found: ExperimentPlanView) -> str:
    seeds = f" × {counted(found.seeds, 'seed')}" if found.seeds > 1 else ""
    varied = f" of {listed(found.settings)}" if found.settings else ""
    return f"{found.jobs}: {counted(found.combinations, 'combination')}{varied}{seeds}"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _hours(found: ExperimentPlanView) -> str:
    if found.hours_low is None or found.hours_high is None:
        return "not known: no node has done such work yet"
    return _range(duration(found.hours_low * 3600), duration(found.hours_high * 3600))


def _usd(found: ExperimentPlanView) -> str:
    if found.usd_low is None or found.usd_high is None:
        return "not known: the pace or the price of a node is not known"
    return _range(usd(found.usd_low), usd(found.usd_high))


def submit_experiment_and_watch(client: "Client", asked: Mapping[str, Any], *, detach: bool, output: Output) -> None:
    """Submit an experiment and, unless it is to be left alone, watch it until all its jobs have ended."""
    made = client.experiments.submit(asked)
    with watching_experiment(made.id):
        say(f"{made.id} ({made.name}) has {counted(made.jobs, 'job')}: {made.because}")
        if detach:
            print_json(made) if output is Output.json else out.print(made.id)
            return
        ended = follow_experiment(client, made.id)
    if output is Output.json:
        print_json(ended)
    tell_experiment_end(ended)


def tell_experiment_end(ended: ExperimentView) -> None:
    """Say how an experiment ended and what to do next. Exit with 1 if none of its jobs succeeded."""
    say(f"{ended.name} has {ended.state}: {counts_in_words(ended)}, {cost_alone(ended.spent_usd, ended.cost_lacks)}")
    say(f"compare its jobs:    {as_typed('gangline', 'experiments', 'show', ended.id)}")
    if ended.best:
        say(f"the best one:        {ended.best.because}")
        say(f"download the best:   {as_typed('gangline', 'experiments', 'best', ended.id, '--download', 'best')}")
    if not ended.counts.get("succeeded"):
        raise typer.Exit(EXIT_JOBS_FAILED)


def counts_in_words(found: ExperimentView) -> str:
    """Return how many jobs are in which state, those first that have the farthest to go."""
    return ", ".join(f"{found.counts[state]} {state}" for state in STATES if found.counts.get(state))


def best_in_words(best: BestView | None) -> str:
    """Return what the best combination is compared by: of several seeds their mean, as elsewhere the number of one job."""
    if best is None or best.seeds < 2:
        return format_number(best.value if best else None)
    return f"ø {best.mean:.4f}"


def follow_experiment(client: "Client", experiment: str) -> ExperimentView:
    """Show how far an experiment is until it runs no more. If the server does not answer, wait for it."""
    pause = threading.Event()
    with progress_line() as line:
        task = line.add_task(experiment, total=None)
        while True:
            try:
                found = client.experiments.get(experiment)
            except Unreachable as error:
                line.update(task, description=f"waiting for the server: {error.message}")
            else:
                line.update(task, description=_progress(found))
                if found.state != "running":
                    return found
            pause.wait(LOOK_S)


def _progress(found: ExperimentView) -> str:
    best = f"  best {best_in_words(found.best)}" if found.best else ""
    said = f"{printable(found.name)}  {counts_in_words(found)}  {cost_alone(found.spent_usd, found.cost_lacks)}{best}"
    return said if len(said) <= err.width else f"{said[: err.width - 1]}…"


@contextmanager
def watching_experiment(experiment: str) -> Iterator[None]:
    """Let Ctrl-C end the watching but not the experiment, and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        again = as_typed("gangline", "experiments", "show", experiment, "--follow")
        say(f"the experiment continues; `{again}` shows it again")
        raise typer.Exit(EXIT_INTERRUPTED) from None
