"""`gangline experiments change`: change how many jobs of an experiment run at once, and its budget."""

import math
from typing import Annotated

import typer

from gangline.cli.experiments.which import ExperimentArgument, client_and_experiment
from gangline.cli.jobs.submitting.experiment import counts_in_words
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, print_json, say
from gangline.core.errors import BadInput
from gangline.core.experiments.views import ExperimentView

NO_LIMIT = "none"


def change_experiment_command(
    experiment: ExperimentArgument,
    at_once: Annotated[
        str,
        typer.Option(
            "--at-once",
            metavar="N|none",
            help="Let at most this many jobs wait for a node or train at once; `none` takes the limit away (default: as it is).",
            show_default=False,
        ),
    ] = "",
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            metavar="USD|none",
            help="Set the budget of the experiment, in dollars in all; `none` takes it away (default: as it is).",
            show_default=False,
        ),
    ] = "",
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Change how many jobs of an experiment run at once, and its budget. Jobs that a spent budget has paused continue when it is raised."""
    if not (at_once or budget):
        raise BadInput("nothing says what to change", hint="give --at-once or --budget")
    number = None if at_once in ("", NO_LIMIT) else _number(at_once)
    usd = None if budget in ("", NO_LIMIT) else _usd(budget)
    client, experiment = client_and_experiment(server, token, experiment)
    changed = client.experiments.change(
        experiment, at_once=number, budget_usd=usd, any_number=at_once == NO_LIMIT, any_cost=budget == NO_LIMIT
    )
    tell_experiment(changed, output)


def tell_experiment(found: ExperimentView, output: Output) -> None:
    """Say what an experiment does now."""
    if output is Output.json:
        print_json(found)
    elif found.state == "ended":
        say(f"{found.name} has ended: {found.because}")  # which counts its jobs
    else:
        say(f"{found.name} is {found.state}: {found.because} ({counts_in_words(found)})")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise BadInput(f"--at-once {text} is not a number of jobs", hint="give a whole number from 1 on, or none")
    return int(text)


def _usd(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise BadInput(f"--budget {text} is not an amount in dollars", hint="give a number above 0, or none")
    return found
