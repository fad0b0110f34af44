"""`gangline jobs ls`: the jobs that meet some filters, as a table, as JSON or as JSON lines."""

from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from gangline.cli.client import make_client
from gangline.cli.jobs.lists.filters import (
    JobKindOption,
    LabelFilterOption,
    OwnerOption,
    SearchOption,
    SinceOption,
    StateOption,
    UntilOption,
    as_filters,
)
from gangline.cli.jobs.lists.labels import labels_in_words
from gangline.cli.lines import TableColumn, one_line_each
from gangline.cli.output import ServerOption, TokenOption, clock, cost, out, print_json
from gangline.core.display import printable
from gangline.core.jobs.naming import short
from gangline.core.views import JobSummary


class ListOutput(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"


def list_jobs_command(
    state: StateOption = None,
    label: LabelFilterOption = None,
    owner: OwnerOption = "",
    kind: JobKindOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    search: SearchOption = "",
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="List at most this many jobs, the newest (default: all).", show_default=False),
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: Annotated[
        ListOutput,
        typer.Option(
            "--output", "-o", help="Print a table, JSON, or a line of JSON for each job as soon as it is read."
        ),
    ] = ListOutput.text,
) -> None:
    """List jobs, newest first: all of them, or those that meet every filter."""
    filters = as_filters(state, label, owner, kind, since, until, search)
    found = make_client(server, token).jobs.list(**filters, limit=limit)
    if output is ListOutput.jsonl:
        for job in found:
            print_json(job)
    elif output is ListOutput.json:
        print_json(list(found))
    else:
        out.print(as_lines(list(found), out.width, ids_whole=not out.is_terminal))


COLUMNS = (
    TableColumn(header="job"),
    TableColumn(header="name", shrinks_to=12),
    TableColumn(header="state"),
    TableColumn(header=">step"),
    TableColumn(header=">ETA", goes=2),
    TableColumn(header=">cost", goes=1),
    TableColumn(header="owner", shrinks_to=8, goes=4),
    TableColumn(header="labels", shrinks_to=12, goes=5),
    TableColumn(header="why", shrinks_to=16, goes=3),
)


def as_lines(jobs: list[JobSummary], width: int, *, ids_whole: bool) -> Table:
    """Return a line for each job. A short id is enough for every command; programs get whole ones.

    Owners are shown where there are several, and labels where there are any.
    """
    rows = [
        (
            job.id if ids_whole else short(job.id),
            printable(job.name),
            job.phase or job.state,
            job.steps_done,
            clock(job.eta_s),
            cost(job.cost_usd, job.cost_lacks),
            printable(job.owner.name or job.owner.id) if job.owner else "–",
            labels_in_words(job.labels),
            printable(job.because),
        )
        for job in jobs
    ]
    left_out = {"owner"} if len({job.owner and job.owner.id for job in jobs}) < 2 else set[str]()
    left_out |= set[str]() if any(job.labels for job in jobs) else {"labels"}
    shown = [number for number, column in enumerate(COLUMNS) if column.header not in left_out]
    return one_line_each(
        [COLUMNS[number] for number in shown], [[row[number] for number in shown] for row in rows], width
    )
