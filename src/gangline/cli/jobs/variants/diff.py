"""`gangline jobs diff`: in what two jobs differ, and what came of each."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
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
from gangline.core.jobs.lists.diff import ComparedJob, InputHas, JobOutcome, JobsDiff, compare
from gangline.core.runs.contract import REPORT
from gangline.core.views import JobView

if TYPE_CHECKING:
    from gangline.compose.client import Client

HEADS = ("first", "second")
HAS: dict[InputHas, str] = {
    "only the first": "the first alone",
    "only the second": "the second alone",
    "other content": "both, with other content",
}
REPORT_BYTES_MAX = 2**20
"""A report of our own trainers is much shorter; a command's file of that name may be anything."""


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
    "held-out loss": lambda job: format_number(job.held_out_loss),
    "loss": lambda job: format_number(job.loss),
    "time": lambda job: duration(job.seconds) if job.seconds else NOTHING,
    "cost": lambda job: cost(job.cost_usd, job.cost_lacks),
    "GPU": lambda job: ", ".join(gpu or "none" for gpu in job.gpus) or NOTHING,
}


def _job(client: "Client", job: str) -> ComparedJob:
    view = client.jobs.get(job)
    summary, now_ms = view.summary, time.time() * 1000
    spent = sum((each.ended_ms or now_ms) - each.started_ms for each in view.attempts) / 1000
    return ComparedJob(
        spec=view.spec,
        outcome=JobOutcome(
            id=job,
            name=summary.name,
            state=summary.state,
            because=summary.because,
            step=summary.step,
            steps=summary.steps,
            held_out_loss=_held_out_loss(client, view),
            loss=summary.loss,
            seconds=round(max(0.0, spent), 1),
            cost_usd=summary.cost_usd,
            cost_lacks=summary.cost_lacks,
            gpus=tuple(dict.fromkeys(each.gpu for each in view.attempts)),
            numerics=tuple(dict.fromkeys(each.numerics for each in view.attempts if each.numerics)),
        ),
    )


def _held_out_loss(client: "Client", view: JobView) -> float | None:
    """Return the last held-out loss that was measured while the job trained, or else the one of its result."""
    measured = [point.values.get("held_out_loss") for point in client.metrics.get(view.id).points]
    known = [loss for loss in measured if loss is not None]
    if known:
        return known[-1]
    if not view.spec.get("held_out") or view.state != "succeeded":
        return None
    reports = [
        each for each in client.artifacts.list(view.id) if each.path == REPORT and each.bytes <= REPORT_BYTES_MAX
    ]
    with TemporaryDirectory() as folder:
        for path in client.files.download_all(reports, Path(folder)):
            photos = json.loads(path.read_text()).get("held_out") or []
            return fmean(each["loss_after"] for each in photos) if photos else None
    return None
