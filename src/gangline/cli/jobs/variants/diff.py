"""`gangline jobs diff`: in what two jobs differ, and what came of each."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from gangline.cli.jobs.variants.clone import NOTHING, changes_table
from gangline.cli.jobs.which import client_and_job, complete_job
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    cost,
    duration,
    format_number,
    out,
    print_json,
    say,
    table,
)
from gangline.core.compared.outcome import compared_job
from gangline.core.experiments.terms import MEASURES
from gangline.core.jobs.lists.diff import ComparedJob, InputHas, JobOutcome, JobsDiff, compare
from gangline.core.jobs.story.held_out import REPORT_BYTES_MAX
from gangline.core.runs.contract import REPORT

if TYPE_CHECKING:
    from gangline.compose.client import Client

HEADS = ("first", "second")
HAS: dict[InputHas, str] = {
    "only the first": "the first alone",
    "only the second": "the second alone",
    "other content": "both, with other content",
}


def diff_jobs_command(
    first: Annotated[
        str,
        typer.Argument(help="Compare this job, named as elsewhere.", autocompletion=complete_job, show_default=False),
    ],
    second: Annotated[
        str, typer.Argument(help="Compare it with this job.", autocompletion=complete_job, show_default=False)
    ],
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Compare two jobs: the settings and inputs in which they differ, and what came of each."""
    client, one = client_and_job(server, token, first)
    found = compare(_job(client, one), _job(client, client.jobs.find(second)))
    if output is Output.json:
        print_json(found)
        return
    if changes := (*found.models, *found.settings):
        out.print(changes_table(changes, *HEADS))
    if found.inputs:
        inputs = table("input", "file", "is in")
        for each in found.inputs:
            inputs.add_row(each.role, each.path, HAS[each.has])
        out.print(inputs)
    if not changes and not found.inputs:
        say("the two jobs have the same settings and inputs")
    out.print(_outcomes(found))


def _outcomes(found: JobsDiff) -> Table:
    rows = table("outcome", *HEADS)
    for called, shown in OUTCOMES.items():
        rows.add_row(called, shown(found.first), shown(found.second))
    same = {None: NOTHING, True: "the same", False: "other GPUs, drivers or libraries"}[found.same_numerics]
    rows.add_row("numerics", *(2 * (same,)))
    return rows


OUTCOMES: dict[str, Callable[[JobOutcome], str]] = {
    "job": lambda job: job.id,
    "name": lambda job: job.name,
    "state": lambda job: job.state,
    "step": lambda job: f"{job.step} of {job.steps}" if job.steps else str(job.step),
    MEASURES["held_out_loss"]: lambda job: format_number(job.best_held_out_loss),
    MEASURES["loss"]: lambda job: format_number(job.loss),
    "time": lambda job: duration(job.seconds) if job.seconds else NOTHING,
    "cost": lambda job: cost(job.cost_usd, job.cost_lacks),
    "GPU": lambda job: ", ".join(gpu or "none" for gpu in job.gpus) or NOTHING,
}


def _job(client: "Client", job: str) -> ComparedJob:
    view = client.jobs.get(job)

    def read_report() -> str | None:
        reports = [
            each for each in client.artifacts.list(view.id) if each.path == REPORT and each.bytes <= REPORT_BYTES_MAX
        ]
        with TemporaryDirectory() as folder:
            return next((path.read_text() for path in client.files.download_all(reports, Path(folder))), None)

    return compared_job(view, client.metrics.get(view.id).points, read_report, time.time() * 1000)
