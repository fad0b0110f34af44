"""`gangline jobs ls`: the jobs that meet some filters, as a table, as JSON or as JSON lines."""

import re
import time
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from gangline.cli.client import make_client
from gangline.cli.jobs.lists.labels import labels_in_words
from gangline.cli.lines import TableColumn, one_line_each
from gangline.cli.output import ServerOption, TokenOption, clock, cost, out, print_json
from gangline.core.display import is_text, printable
from gangline.core.errors import BadInput
from gangline.core.jobs.lists.filters import parse_label_filters
from gangline.core.jobs.naming import short
from gangline.core.views import JobSummary

AGE = re.compile(r"(\d{1,6})([smhdw])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class ListOutput(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"


class ListedState(StrEnum):
    queued = "queued"
    running = "running"
    paused = "paused"
    succeeded = "succeeded"
    failed = "failed"
    canceled = "canceled"


def list_jobs_command(
    state: Annotated[
        list[ListedState] | None,
        typer.Option(help="List jobs in this state. Repeat it for several states.", show_default=False),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE|KEY",
            help="List jobs with this label, or with this key and any value. Repeat it: a job must have all of them.",
            show_default=False,
        ),
    ] = None,
    owner: Annotated[
        str, typer.Option(help="List jobs of this key: its id, its name, or `me` for your own.", show_default=False)
    ] = "",
    kind: Annotated[str, typer.Option(help="List jobs of this kind: lora, scratch, command.", show_default=False)] = "",
    since: Annotated[
        str,
        typer.Option(
            help="List jobs submitted since then: an age (90s, 30m, 2h, 7d, 2w) or 2026-01-31T18:00:00Z.",
            show_default=False,
        ),
    ] = "",
    until: Annotated[
        str, typer.Option(help="List jobs submitted before then, written as for --since.", show_default=False)
    ] = "",
    search: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="List jobs whose name, id, prompts, base or labels contain this text, in capitals or not.",
            show_default=False,
        ),
    ] = "",
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
    parse_label_filters(label or [])
    for option, text in (
        ("--owner", owner),
        ("--kind", kind),
        ("--since", since),
        ("--until", until),
        ("--search", search),
    ):
        if not is_text(text):
            raise BadInput(f"{option}: {text!r} is not valid Unicode", hint="type it again")
    found = make_client(server, token).jobs.list(
        state=[each.value for each in state or ()],
        label=label or (),
        owner=owner,
        kind=kind,
        since=moment(since, "--since"),
        until=moment(until, "--until"),
        search=search,
        limit=limit,
    )
    if output is ListOutput.jsonl:
        for job in found:
            print_json(job)
    elif output is ListOutput.json:
        print_json(list(found))
    else:
        out.print(as_lines(list(found), out.width, ids_whole=not out.is_terminal))


def moment(given: str, option: str) -> str:
    """Return a time as the server reads it; an age is counted back from now. Raise `BadInput`."""
    age = AGE.fullmatch(given)
    if age:
        now = datetime.fromtimestamp(time.time(), UTC)
        try:
            then = now - timedelta(seconds=int(age[1]) * SECONDS[age[2]])
        except OverflowError:
            raise BadInput(f"{option} {given!r} is before the year 1", hint="write 2h, 7d or 100w") from None
        return then.isoformat(timespec="milliseconds")
    if given and not given[:4].isdecimal():
        raise BadInput(f"{option} {given!r} is neither an age nor a time", hint="write 2h, 7d or 2026-01-31T18:00:00Z")
    return given


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
