"""`gangline costs`: what a span of time cost, by day, pool, job, cause, project, node, user or GPU, as a table, as JSON or as CSV."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gangline.cli.client import make_client
from gangline.cli.jobs.lists.filters import check_text, moment
from gangline.cli.lines import TableColumn, print_one_line_each
from gangline.cli.output import ProjectOption, ServerOption, TokenOption, cost_in_words, out, print_json, say, usd
from gangline.core.display import printable
from gangline.core.reports.cost_lines import as_cost_lines, shown_rows

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
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: Annotated[
        CostsOutput, typer.Option("--output", "-o", help="Print a table, JSON, or CSV with a line for each row.")
    ] = CostsOutput.text,
) -> None:
    """Show what a span of time cost by day, pool, job, cause, project, node, user or GPU. Every sum is of the ledger. An operator who names no
    project sees all of them."""
    check_text(zone, "--zone")
    span: dict[Literal["since", "until"], str] = {"since": moment(since, "--since"), "until": moment(until, "--until")}
    found = make_client(server, token, project).costs.get(by.value, **span, zone=zone, limit=limit)
    if output is CostsOutput.json:
        print_json(found)
    elif output is CostsOutput.csv:
        typer.echo(as_cost_lines(found), nl=False)
    else:
        _show(found)


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
    if found.cost_lacks:
        out.print(f"known cost: {cost_in_words(found.usd, found.cost_lacks)}")


def _money(amount: float) -> str:
    """Format a sum. It is negative if a provider billed less than the ledger had."""
    return usd(amount) if amount else "–"
