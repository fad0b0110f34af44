"""`gangline experiments show`: the jobs of an experiment beside each other, and what it waits for."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gangline.cli.experiments.which import ExperimentArgument, client_and_experiment
from gangline.cli.jobs.submitting.experiment import (
    counts_in_words,
    follow_experiment,
    watching_experiment,
)
from gangline.cli.jobs.variants.clone import value_in_words
from gangline.cli.lines import TableColumn, one_line_each
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    cost,
    cost_in_words,
    duration,
    facts,
    format_number,
    out,
    print_json,
    usd,
)
from gangline.core.display import printable
from gangline.core.experiments.comparison import (
    CombinationView,
    differing_settings,
    ranked_combinations,
    ranked_runs,
)
from gangline.core.experiments.terms import MEASURES
from gangline.core.experiments.views import ExperimentRunView, ExperimentView
from gangline.core.jobs.naming import short
from gangline.core.words import counted


def show_experiment_command(
    experiment: ExperimentArgument,
    runs: Annotated[
        bool, typer.Option("--runs", help="List every job, also where several have the same settings.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait until all its jobs have ended, and then show them.")
    ] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show what an experiment waits for, and compare its jobs by what differs between them, the best first."""
    client, experiment = client_and_experiment(server, token, experiment)
    if follow:
        with watching_experiment(experiment):
            follow_experiment(client, experiment)
    found, made = client.experiments.get(experiment), tuple(client.experiments.runs(experiment))
    if output is Output.json:
        together = ranked_combinations(made, found.measure)
        print_json({"experiment": found, "combinations": together, "runs": ranked_runs(made, found.measure)})
        return
    out.print(experiment_page(found, made, every_run=runs))


def experiment_page(found: ExperimentView, runs: Sequence[ExperimentRunView], *, every_run: bool) -> Group:
    """Return the page of an experiment. Jobs of the same settings are one row with their means, unless every one is wanted."""
    several = len({str(sorted(run.settings.items(), key=str)) for run in runs}) < len(runs)
    if several and found.settings and not every_run:
        rows = _combinations(ranked_combinations(runs, found.measure), found)
    else:
        rows = _runs(ranked_runs(runs, found.measure), found, seeds=several)
    return Group(_head(found), Text(), rows)


def _head(found: ExperimentView) -> Table:
    limits = [f"{found.at_once} at a time"] if found.at_once else []
    limits += [f"budget {usd(found.budget_usd)}"] if found.budget_usd else []
    expected = (
        f", about {usd(found.expected_usd)} at its end" if found.expected_usd and found.state == "running" else ""
    )
    return facts(
        ("experiment", found.id),
        ("name", found.name),
        ("state", f"{found.state}: {found.because}"),
        ("jobs", f"{found.jobs}: {counts_in_words(found)}"),
        *([("limits", ", ".join(limits))] if limits else []),
        ("cost", cost_in_words(found.spent_usd, found.cost_lacks) + expected),
        ("compared by", MEASURES[found.measure]),
        *([("best", found.best.because)] if found.best else []),
        *_saved(found),
    )


def _saved(found: ExperimentView) -> list[tuple[str, str]]:
    if found.saved is None or found.halving is None:
        return []
    price = f", about {usd(found.saved.usd)}" if found.saved.usd is not None else ""
    what = (
        f"{counted(found.saved.jobs, 'job')} ended early: {counted(found.saved.steps, 'step')} were not trained{price}"
    )
    return [("halving saved", what)]


def _columns(settings: Sequence[str], first: Sequence[TableColumn], last: Sequence[TableColumn]) -> list[TableColumn]:
    return [*first, *(TableColumn(header=f">{printable(name)}", shrinks_to=8) for name in settings), *last]


LOSSES = (TableColumn(header=f">{MEASURES['held_out_loss']}"), TableColumn(header=f">{MEASURES['loss']}", goes=2))
STEP, WHY = TableColumn(header=">step", goes=1), TableColumn(header="why", shrinks_to=16, goes=6)
SPENT = (TableColumn(header=">time", goes=3), TableColumn(header=">cost", goes=4))


def _runs(runs: Sequence[ExperimentRunView], found: ExperimentView, *, seeds: bool) -> Table:
    settings = differing_settings(runs, found.settings)
    seed = [TableColumn(header=">seed")] if seeds else []
    columns = _columns(
        settings,
        [TableColumn(header="job"), TableColumn(header=">run", goes=5)],
        [*seed, *LOSSES, STEP, *SPENT, TableColumn(header="state"), WHY],
    )
    rows = [
        [
            run.job if not out.is_terminal else short(run.job),
            str(run.number),
            *(setting_in_words(run.settings, name) for name in settings),
            *([str(run.seed)] if seeds else []),
            format_number(run.best_held_out_loss),
            format_number(run.loss),
            f"{run.step}/{run.steps}" if run.steps else str(run.step),
            duration(run.training_s) if run.training_s else "–",
            cost(run.cost_usd, run.cost_lacks),
            run.state,
            "" if run.state == "succeeded" else printable(run.because),
        ]
        for run in runs
    ]
    return one_line_each(columns, rows, out.width)


def _combinations(combinations: Sequence[CombinationView], found: ExperimentView) -> Table:
    settings = differing_settings(combinations, found.settings)
    columns = _columns(
        settings,
        [],
        [TableColumn(header=">jobs"), *LOSSES, *SPENT, TableColumn(header="states", shrinks_to=12)],
    )
    rows = [
        [
            *(setting_in_words(each.settings, name) for name in settings),
            str(each.jobs) if each.compared == each.jobs else f"{each.compared} of {each.jobs}",
            _mean(each.best_held_out_loss, each.compared),
            _mean(each.loss, each.compared),
            duration(each.training_s) if each.training_s else "–",
            cost(each.cost_usd, each.cost_lacks),
            _states(each.states),
        ]
        for each in combinations
    ]
    return one_line_each(columns, rows, out.width)


def _mean(value: float | None, of: int) -> str:
    return format_number(value) if value is None or of < 2 else f"ø {value:.4f}"


def _states(states: Sequence[str]) -> str:
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def setting_in_words(settings: Mapping[str, Any], name: str) -> str:
    return printable(value_in_words(settings[name])) if name in settings else "default"
