"""`gangline queue`: who waits, why, and what would help."""

from typing import Annotated

import typer
from rich.text import Text

from gangline.cli.client import make_client
from gangline.cli.lines import TableColumn, print_one_line_each
from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    duration,
    out,
    print_json,
    say,
)
from gangline.core.display import printable
from gangline.core.jobs.naming import short
from gangline.core.jobs.queue.views import QueueGroup, QueueView
from gangline.core.words import counted

PAGE_MAX = 200
COLUMNS = (
    TableColumn(header=">place"),
    TableColumn(header="job"),
    TableColumn(header="name", shrinks_to=12),
    TableColumn(header="project", shrinks_to=8, goes=2),
    TableColumn(header=">priority", goes=3),
    TableColumn(header=">waited", goes=1),
    TableColumn(header="why", shrinks_to=16, goes=4),
)


def queue_command(
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="List at most this many jobs.")] = 50,
    after: Annotated[int, typer.Option(min=0, help="Leave out this many jobs, the first ones of the queue.")] = 0,
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show which jobs wait, in the order in which nodes would take them, why, and what would help. An operator who names no project
    sees all of them."""
    found = make_client(server, token, project).queue.get(limit=limit, after=after)
    if output is Output.json:
        print_json(found)
    elif not found.jobs:
        say("no job waits")
    else:
        _show(found)


def _show(found: QueueView) -> None:
    print_one_line_each(
        COLUMNS,
        [
            (
                "–" if job.place is None else str(job.place),
                short(job.job) if out.is_terminal else job.job,
                printable(job.name),
                job.project,
                str(job.priority),
                duration(job.waited_s),
                printable(job.because),
            )
            for job in found.page
        ],
    )
    for group in found.groups:
        out.print()
        out.print(Text(printable(_called(group)), style="bold"))
        out.print(group.because)
        for help_ in group.helps:
            out.print(f"  {help_}")
    if found.next is not None:
        say(f"{counted(found.jobs, 'job')} wait in all: `gangline queue --after {found.next}` lists more")


def _called(group: QueueGroup) -> str:
    asks = f" ({group.needs})" if group.needs else ""
    again = " interrupted" if group.interrupted else ""
    return f"{group.jobs}{again} {group.kind} of {group.project}{asks}, the first for {duration(group.waited_s)}"
