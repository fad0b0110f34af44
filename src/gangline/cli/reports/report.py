"""`gangline report`: what the jobs that meet some filters took, as a table, JSON, CSV, Parquet or a page."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group
from rich.text import Text

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
    check_text,
)
from gangline.cli.output import (
    PIPE_WIDTH,
    PlainConsole,
    ProjectOption,
    ServerOption,
    TokenOption,
    check_place,
    cost_in_words,
    format_time,
    out,
    print_json,
    say,
    table,
    write_text,
)
from gangline.cli.reports.rows import (
    ALL_JOBS,
    GROUP_COLUMNS,
    counted_rows,
    group_cells,
    no_jobs,
    per_job_rows,
    spent_rows,
    waited_rows,
)
from gangline.core.display import printable
from gangline.core.errors import BadInput
from gangline.core.reports.report import ReportedNodes

if TYPE_CHECKING:  # what `--help` need not wait for
    from gangline.core.reports.view import ReportView


class ReportOutput(StrEnum):
    text = "text"
    json = "json"
    csv = "csv"
    html = "html"
    parquet = "parquet"


INCLUDED: dict[ReportOutput, tuple[Literal["jobs", "attempts"], ...]] = {
    ReportOutput.text: (),
    ReportOutput.json: (),
    ReportOutput.csv: ("jobs",),
    ReportOutput.html: ("jobs", "attempts"),
    ReportOutput.parquet: ("jobs",),
}


def report_command(
    state: StateOption = None,
    label: LabelFilterOption = None,
    owner: OwnerOption = "",
    kind: JobKindOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    named: Annotated[
        str,
        typer.Option(help="Select jobs of this name, or whose id begins or ends so.", show_default=False),
    ] = "",
    search: SearchOption = "",
    file: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write into this file (default: print).", show_default=False),
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: Annotated[
        ReportOutput | None,
        typer.Option(
            "--output",
            "-o",
            help="Write tables, JSON, CSV or Parquet with a line for each job, or an HTML page (default: as FILE ends, else "
            "tables).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Report what jobs took: interruptions, minutes, dollars, waste by cause, waits. It takes all jobs, or those that meet every filter."""
    check_text(named, "--named")
    filters: dict[str, Any] = {**as_filters(state, label, owner, kind, since, until, search), "named": named}
    if file:
        check_place(file, "--to")
    kind_of_output = output or _by_ending(file)
    if kind_of_output is ReportOutput.parquet:
        _check_parquet(file)
    view = make_client(server, token, project).jobs.report(**filters, include=INCLUDED[kind_of_output])
    title = _title(filters)
    if file and kind_of_output is ReportOutput.parquet:
        from gangline.cli.reports.parquet import write_report

        write_report(view, file)
        say(f"the report is in {file}")
    elif file:
        write_text(file, _as_text(view, title, kind_of_output))
        say(f"the report is in {file}")
    elif kind_of_output is ReportOutput.text:
        out.print(as_tables(view, title))
    elif kind_of_output is ReportOutput.json:
        print_json(view)
    else:
        typer.echo(_as_text(view, title, kind_of_output), nl=False)


def _by_ending(file: Path | None) -> ReportOutput:
    ending = file.suffix.lower().removeprefix(".") if file else ""
    return ReportOutput(ending) if ending in INCLUDED else ReportOutput.text


def _title(filters: dict[str, Any]) -> str:
    """Return what the report is about, in the words of its options."""
    given = [
        f"{name} {', '.join(value) if not isinstance(value, str) else value}"
        for name, value in filters.items()
        if value
    ]
    return f"Jobs ({', '.join(given)})" if given else ALL_JOBS


def _as_text(view: "ReportView", title: str, output: ReportOutput) -> str:
    from gangline.cli.reports.cells import as_csv
    from gangline.cli.reports.page import report_page

    match output:
        case ReportOutput.json:
            return json.dumps(asdict(view)) + "\n"
        case ReportOutput.csv:
            return as_csv(view.lines)
        case ReportOutput.html:
            return report_page(view, title)
        case _:
            into = StringIO()
            PlainConsole(file=into, highlight=False, soft_wrap=True, width=PIPE_WIDTH).print(as_tables(view, title))
            return into.getvalue()


def _check_parquet(file: Path | None) -> None:
    from gangline.cli.reports.parquet import check_parquet

    if file is None:
        raise BadInput("Parquet is for files", hint="name one: --to report.parquet")
    check_parquet()


def as_tables(view: "ReportView", title: str) -> Group | Text:
    """Return the report as tables, like those of a simulation, or a sentence if it has no jobs."""
    if not view.jobs:
        return Text(no_jobs(title))
    rows = table("", ">")
    rows.show_header = False
    for name, show in (*counted_rows([view]), *per_job_rows(), *spent_rows([view]), *waited_rows([view])):
        rows.add_row(name, show(view))
    return Group(
        Text(printable(title), style="bold"),
        Text(f"{format_time(view.from_ms)} to {format_time(view.until_ms)}"),
        Text(),
        rows,
        *_groups("GPU", view.by_gpu),
        *_groups("pool", view.by_pool),
        *_notes(view),
    )


def _groups(called: str, groups: Iterable[ReportedNodes]) -> list[Any]:
    cells = [group_cells(group) for group in groups]
    if not cells:
        return []
    rows = table(called, *GROUP_COLUMNS)
    for row in cells:
        rows.add_row(*row)
    return [Text(), rows]


def _notes(view: "ReportView") -> list[Text]:
    notes = [Text(printable(f"failed: {because}")) for because in view.because]
    if view.cost_lacks:
        notes.append(Text(f"known cost: {cost_in_words(view.usd, view.cost_lacks)}"))
    if view.unfinished:
        notes.append(Text(f"{view.unfinished} of these jobs have not ended; a running attempt costs when it ends"))
    return [Text(), *notes] if notes else []
