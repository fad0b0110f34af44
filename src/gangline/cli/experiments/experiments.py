"""`gangline experiments`: list, compare and steer jobs that were submitted together."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.client import make_client
from gangline.cli.experiments.change import change_experiment_command, tell_experiment
from gangline.cli.experiments.run import run_experiment_command
from gangline.cli.experiments.sheet import sheet_command
from gangline.cli.experiments.show import show_experiment_command
from gangline.cli.experiments.which import ExperimentArgument, client_and_experiment
from gangline.cli.jobs.submitting.experiment import best_in_words, counts_in_words
from gangline.cli.lines import TableColumn, one_line_each
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    cost,
    format_time,
    out,
    print_json,
    say,
)
from gangline.compose.settings import existing
from gangline.core.display import printable
from gangline.core.errors import NotFound

app = typer.Typer(no_args_is_help=True)
app.command("run")(run_experiment_command)
app.command("change")(change_experiment_command)
app.command("show")(show_experiment_command)
app.command("sheet")(sheet_command)

COLUMNS = (
    TableColumn(header="experiment"),
    TableColumn(header="name", shrinks_to=12),
    TableColumn(header="state"),
    TableColumn(header="jobs", shrinks_to=12),
    TableColumn(header=">best", goes=2),
    TableColumn(header=">cost", goes=3),
    TableColumn(header="submitted", goes=4),
    TableColumn(header="owner", shrinks_to=8, goes=5),
    TableColumn(header="why", shrinks_to=16, goes=1),
)


@app.command("ls")
def list_experiments_command(
    limit: Annotated[
        int | None, typer.Option(min=1, help="List at most this many, the newest (default: all).", show_default=False)
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the experiments, newest first. `best` is what the best job is compared by; `ø` is a mean over its seeds."""
    found = list(islice(make_client(server, token).experiments.list(limit=limit), limit))
    if output is Output.json:
        print_json(found)
        return
    rows = [
        [
            each.id,
            printable(each.name),
            each.state,
            f"{each.jobs}: {counts_in_words(each)}",
            best_in_words(each.best),
            cost(each.spent_usd, each.cost_lacks),
            format_time(each.made_ms),
            printable(each.owner.name or each.owner.id) if each.owner else "–",
            printable(each.because),
        ]
        for each in found
    ]
    several = len({each.owner and each.owner.id for each in found}) > 1
    shown = [number for number, column in enumerate(COLUMNS) if several or column.header != "owner"]
    lines = [[row[number] for number in shown] for row in rows]
    out.print(one_line_each([COLUMNS[number] for number in shown], lines, out.width))


@app.command("best")
def best_command(
    experiment: ExperimentArgument,
    download: Annotated[
        Path | None,
        typer.Option("--download", help="Download the results of the best job into this folder.", show_default=False),
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show the best job of an experiment and why it is the best; before the end, the best so far."""
    client, experiment = client_and_experiment(server, token, experiment)
    found = client.experiments.get(experiment)
    if found.best is None:
        raise NotFound(f"no job of {found.name} has a result to compare: {found.because}")
    files: tuple[Path, ...] = ()
    if download is not None:
        if not list(client.artifacts.list(found.best.job)):
            raise NotFound(
                f"the best job so far, {found.best.job}, has no results to download yet",
                hint=f"`gangline experiments show {found.id} --follow` waits for the end",
            )
        files = client.artifacts.download(found.best.job, existing(download))
    if output is Output.json:
        print_json(
            {"experiment": found.id, "state": found.state, "best": found.best, "files": [str(file) for file in files]}
        )
        return
    say(found.best.because if found.state != "running" else f"so far: {found.best.because}")
    for file in files:
        say(f"downloaded {file}")
    out.print(found.best.job)


@app.command("stop")
def stop_experiment_command(
    experiment: ExperimentArgument,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Cancel all jobs of an experiment that have not ended. What the others made stays."""
    client, experiment = client_and_experiment(server, token, experiment)
    before = client.experiments.get(experiment)
    if before.state != "ended":
        tell_experiment(client.experiments.stop(experiment), output)
    elif output is Output.json:
        print_json(before)
    else:
        say(f"{before.name} has ended already; nothing was stopped")


@app.command("resume")
def resume_experiment_command(
    experiment: ExperimentArgument,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Let the paused jobs of an experiment wait for their turn again, but for those that halving compares.

    `gangline experiments change` raises a budget that has paused them.
    """
    client, experiment = client_and_experiment(server, token, experiment)
    tell_experiment(client.experiments.resume(experiment), output)
