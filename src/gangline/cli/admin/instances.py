"""`gangline pools instances`: what a pool's provider lists now, whatever the server believes."""

from gangline.cli.admin.pools import PoolArgument, app
from gangline.cli.client import make_client
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, format_time, out, print_json, table
from gangline.core.fleet.pools import InstanceView


@app.command("instances")
def list_instances_command(
    name: PoolArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Ask a pool's provider which instances it has now, and from when until when it bills them."""
    found = list(make_client(server, token).pools.instances(name))
    if output is Output.json:
        print_json(found)
        return
    rows = table("instance", "rental", "state", "billed from", "billed to", "why")
    for each in found:
        ends = [format_time(each.billed_from_ms), format_time(each.billed_to_ms)]
        rows.add_row(each.id, each.rental, _state(each), *ends, each.ended or each.progress)
    out.print(rows)


def _state(instance: InstanceView) -> str:
    if instance.billed_to_ms is not None:
        return "ended"
    return "starting" if instance.billed_from_ms is None else "running"
