"""`gangline nodes`: who works here."""

import typer

from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, out, print_json, table
from gangline.compose.client import make_client

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command("ls")
def list_nodes(server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text) -> None:
    """The nodes that are here, and what each is doing."""
    found = make_client(server, token).nodes()
    if output is Output.json:
        print_json(found)
        return
    rows = table("node", "name", "state", "gpu", ">slots", ">$/hour", ">trust", "job", "why")
    for node in found:
        rows.add_row(
            node.id,
            node.name,
            node.phase or node.state,
            node.gpu or "–",
            str(node.slots),
            f"{node.price_usd_per_hour:.4f}" if node.price_known else "unknown",
            str(node.trust),
            node.job or "–",
            node.because,
        )
    out.print(rows)
