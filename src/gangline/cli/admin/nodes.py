"""`gangline nodes`: who works here."""

import sys

import typer

from gangline.cli.lines import TableColumn, one_line_each
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, out, print_json
from gangline.compose.client import make_client
from gangline.core.jobs.naming import short

COLUMNS = (
    TableColumn(header="node", shrinks_to=12),
    TableColumn(header="state"),
    TableColumn(header="gpu", shrinks_to=8),
    TableColumn(header=">slots", goes=1),
    TableColumn(header=">$/hour", goes=2),
    TableColumn(header="job", goes=3),
    TableColumn(header="why", shrinks_to=12, goes=4),
    TableColumn(header=">trust", goes=5),
    TableColumn(header="id", goes=6),
)
app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command("ls")
def list_nodes_command(
    server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """List the nodes that have joined, and what each is doing."""
    found = make_client(server, token).nodes()
    if output is Output.json:
        print_json(found)
        return
    rows = [
        [
            node.name,
            node.phase or node.state,
            node.gpu or "–",
            str(node.slots),
            f"{node.price_usd_per_hour:.4f}" if node.price_known else "unknown",
            short(node.job) if node.job else "–",
            node.because,
            str(node.trust),
            node.id,
        ]
        for node in found
    ]
    out.print(one_line_each(COLUMNS, rows, out.width if out.is_terminal else sys.maxsize))
