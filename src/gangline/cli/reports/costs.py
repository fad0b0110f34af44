"""`gangline costs`: what a span of time cost, by day, pool, job, cause, project, node, user or GPU, as a table, JSON, CSV or Parquet."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gangline.cli.client import make_client
from gangline.cli.jobs.lists.filters import check_text, moment
from gangline.cli.lines import TableColumn, print_one_line_each
from gangline.cli.output import (
    ProjectOption,
    ServerOption,
    TokenOption,
    check_place,
    cost_in_words,
    out,
    print_json,
    say,
    usd,
    write_text,
)
from gangline.core.display import printable
from gangline.core.errors import BadInput
from gangline.core.reports.cost_lines import as_cost_lines, forecast_words, shown_rows

if TYPE_CHECKING:  # what `--help` need not wait for
    from gangline.core.reports.costs import CostsView

ROWS_MAX = 1000


class CostsBy(StrEnum):
    day = "day"
    pool = "pool"
    job = "job"
    cause = "cause"
    project = "project"
    node = "node"
    user = "user"
    gpu = "gpu"


class CostsOutput(StrEnum):
    text = "text"
    json = "json"
    csv = "csv"
    parquet = "parquet"


def costs_command(
    by: Annotated[CostsBy, typer.Option("--by", help="Sum the costs by this.")] = CostsBy.day,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            help="Count costs since then: an age (2h, 7d, 4w) or 2026-01-31T18:00:00Z (default: since the first).",
            show_default=False,
        ),
    ] = "",
    until: Annotated[
        str,
        typer.Option(
            "--until", help="Count costs before then, written as for --since (default: all).", show_default=False
        ),
    ] = "",
    zone: Annotated[
        str, typer.Option("--zone", help="Days are those of this time zone, such as Europe/Berlin.")
    ] = "UTC",
    limit: Annotated[
        int,
        typer.Option(min=1, max=ROWS_MAX, help="List at most this many rows, those that cost most; not of days."),
    ] = 200,
    forecast: Annotated[
        bool,
        typer.Option("--forecast", help="Say what this day and this month will have cost, and how that is computed."),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write JSON, CSV or Parquet into this file.", show_default=False),
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: Annotated[
        CostsOutput | None,
        typer.Option(
            "--output",
            "-o",
            help="Write a table, JSON, CSV or Parquet, the latter two with a line for each row (default: as FILE ends, else a "
            "table).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show what a span of time cost by day, pool, job, cause, project, node, user or GPU. Every sum is of the ledger. An operator who names
    no project sees all of them."""
    check_text(zone, "--zone")
    span: dict[Literal["since", "until"], str] = {"since": moment(since, "--since"), "until": moment(until, "--until")}
    form = _form(output, file)
    found = make_client(server, token, project).costs.get(by.value, **span, zone=zone, limit=limit, forecast=forecast)
    if file:
        _write(found, form, file)
    elif form is CostsOutput.json:
        print_json(found)
    elif form is CostsOutput.csv:
        typer.echo(as_cost_lines(found), nl=False)
    else:
        _show(found)
    if form in (CostsOutput.csv, CostsOutput.parquet):
        for each in found.forecast:
            say(forecast_words(each))


def _form(output: CostsOutput | None, file: Path | None) -> CostsOutput:
    """Return what to write, and check that it can be, before anything is asked. Raise `BadInput`."""
    if file is None:
        if output is CostsOutput.parquet:
            raise BadInput("Parquet is for files", hint="name one: --to costs.parquet")
        return output or CostsOutput.text
    check_place(file, "--to")
    ending = file.suffix.lower().removeprefix(".")
    form = output or next((each for each in CostsOutput if each.value == ending), CostsOutput.text)
    if form is CostsOutput.text:
        raise BadInput(
            f"{file} says no format", hint="let its name end in .csv, .json or .parquet, or choose one with -o"
        )
    if form is CostsOutput.parquet:
        from gangline.cli.reports.parquet import check_parquet

        check_parquet()
    return form


def _write(found: "CostsView", form: CostsOutput, file: Path) -> None:
    if form is CostsOutput.parquet:
        from gangline.cli.reports.parquet import write_costs

        write_costs(found, file)
    else:
        write_text(file, as_cost_lines(found) if form is CostsOutput.csv else json.dumps(asdict(found)) + "\n")
    say(f"the costs are in {file}")


def _show(found: "CostsView") -> None:
    if not found.rows:
        say("nothing in this span of time has cost anything")
    else:
        causes = list(found.parts) if found.by != "cause" else []
        columns = [TableColumn(header=found.by, shrinks_to=12), TableColumn(header=">cost")]
        columns += [TableColumn(header=f">{cause}", goes=number) for number, cause in enumerate(causes, 1)]
        rows = [
            [printable(row.label), _money(row.usd), *(_money(row.parts.get(cause, 0)) for cause in causes)]
            for row in shown_rows(found)
        ]
        total = ["all", _money(found.usd), *(_money(found.parts[cause]) for cause in causes)]
        print_one_line_each(columns, [*rows, total])
    if found.running_usd:
        out.print(f"running attempts: {usd(found.running_usd)} so far, which counts when they end")
    for each in found.forecast:
        out.print(forecast_words(each))
    if found.cost_lacks:
        out.print(f"known cost: {cost_in_words(found.usd, found.cost_lacks)}")


def _money(amount: float) -> str:
    """Format a sum. It is negative if a provider billed less than the ledger had."""
    return usd(amount) if amount else "–"
