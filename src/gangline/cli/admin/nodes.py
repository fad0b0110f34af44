"""`gangline nodes`: who works here, and who is to work no more."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from gangline.cli.client import make_client
from gangline.cli.gauges import gauges_facts, load_text, print_history
from gangline.cli.lines import TableColumn, print_one_line_each
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, format_time, out, print_json, table
from gangline.core.display import LogText
from gangline.core.errors import BadInput
from gangline.core.fleet.nodes import MachineRecord, MachineSummary, MachineView, NodeDetail, NodeView
from gangline.core.jobs.naming import short

if TYPE_CHECKING:
    from gangline.compose.client import Client

COLUMNS = (
    TableColumn(header="node", shrinks_to=12),
    TableColumn(header="state"),
    TableColumn(header="gpu", shrinks_to=8),
    TableColumn(header=">load", goes=3),
    TableColumn(header=">slots", goes=1),
    TableColumn(header=">$/hour", goes=2),
    TableColumn(header="jobs", goes=4),
    TableColumn(header="why", shrinks_to=12, goes=5),
    TableColumn(header=">trust", goes=6),
    TableColumn(header="id", goes=7),
)
MACHINE_COLUMNS = (
    TableColumn(header="machine", shrinks_to=12),
    TableColumn(header=">lost"),
    TableColumn(header=">moved", goes=3),
    TableColumn(header=">pools", goes=2),
    TableColumn(header=">quarantines", goes=4),
    TableColumn(header="now"),
    TableColumn(header="last", goes=1),
    TableColumn(header="judged", shrinks_to=12, goes=5),
)
HOUR_S = 3_600
NodeArgument = Annotated[
    str, typer.Argument(help="Name the node, by its name or id, as `gangline nodes ls` shows it.", show_default=False)
]
StopOption = Annotated[
    bool, typer.Option("--stop", help="Save its jobs and hand them back now; without this, they run to their end.")
]
app = typer.Typer(no_args_is_help=True)


@app.command("ls")
def list_nodes_command(
    server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """List the nodes that have joined, and what each is doing. `load` is that of its GPUs, or of its processor if it has none."""
    found = list(make_client(server, token).nodes.list())
    if output is Output.json:
        print_json(found)
        return
    rows = [
        [
            node.name,
            _phases(node) or node.state,
            node.gpu or "–",
            load_text(node.gauges),
            str(node.slots),
            f"{node.price_usd_per_hour:.4f}" if node.price_known else "unknown",
            ", ".join(short(job.job) for job in node.jobs) or "–",
            node.because,
            str(node.trust),
            node.id,
        ]
        for node in found
    ]
    print_one_line_each(COLUMNS, rows)


@app.command("show")
def show_node_command(
    node: NodeArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Show a node: its jobs, its gauges now and over a day, its machine with strikes, quarantines and what it lost in all pools, its probe,
    and what its provider knows of it."""
    client = make_client(server, token)
    _show(client.nodes.get(_find(client, node)), output)


@app.command("machines")
def list_machines_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="List at most this many.")] = 20,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the machines behind the nodes of all pools, those that lost most attempts lately first. `nodes show` has the losses of one."""
    found = make_client(server, token).nodes.machines(limit=limit)
    if output is Output.json:
        print_json(found)
        return
    rows = [
        [
            each.id,
            f"{each.lost} of {each.attempts}",
            str(each.moved),
            str(each.pools),
            str(each.quarantines),
            _machine_state(each),
            format_time(each.last_ms) if each.last_ms else "–",
            each.because,
        ]
        for each in found
    ]
    print_one_line_each(MACHINE_COLUMNS, rows)


@app.command("drain")
def drain_node_command(
    node: NodeArgument,
    stop: StopOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Give a node no more work. A rented one is given back once it has no job."""
    client = make_client(server, token)
    _show(client.nodes.drain(_find(client, node), stop=stop), output)


@app.command("quarantine")
def quarantine_node_command(
    node: NodeArgument,
    hours: Annotated[
        float, typer.Option("--hours", min=0.01, max=8760, help="Give its machine no work for this long.")
    ] = 24,
    stop: StopOption = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Say why. It is shown with the node.")] = "",
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Give a node's machine no work for a time, whatever node it joins as. Then it is on trial, with one job at a time."""
    client = make_client(server, token)
    _show(client.nodes.quarantine(_find(client, node), lasts_s=hours * HOUR_S, stop=stop, reason=reason), output)


@app.command("release")
def release_node_command(
    node: NodeArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Let a node work again that drains, is in quarantine or on trial. Its machine's strikes are forgotten."""
    client = make_client(server, token)
    _show(client.nodes.release(_find(client, node)), output)


@app.command("logs")
def node_logs_command(
    node: NodeArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Print what a rented node printed last, as its provider has it: why did it never join?"""
    client = make_client(server, token)
    text = client.nodes.logs(_find(client, node))
    if output is Output.json:
        print_json({"node": node, "text": text})
    else:
        log = LogText()
        typer.echo(log.feed(text) + log.end())


def _phases(node: NodeView) -> str:
    return ", ".join(dict.fromkeys(job.phase for job in node.jobs))


def _find(client: "Client", text: str) -> str:
    """Return the id of the node of this name, or the text itself: it may be the id of one that is gone."""
    found = sorted({node.id for node in client.nodes.list() if text in (node.id, node.name)})
    if len(found) > 1:
        raise BadInput(f"{len(found)} nodes have the name {text}", hint=f"use an id: {', '.join(found)}")
    return found[0] if found else text


def _show(node: NodeDetail, output: Output) -> None:
    if output is Output.json:
        print_json(node)
        return
    facts = {
        "id": node.id,
        "pool": node.pool,
        "state": node.state,
        "why": node.because,
        "slowed": node.slowed,
        "gpu": f"{node.gpu}, {node.gpu_memory_gb:g} GB" if node.gpu else "none",
        "slots": f"{node.slots_taken} of {node.slots} taken",
        "price": f"${node.price_usd_per_hour:.4f} an hour" if node.price_known else "unknown",
        "trust": str(node.trust),
        "joined": format_time(node.joined_ms) if node.joined_ms else "not yet",
        "last heard of": format_time(node.seen_ms),
        "rental": node.rental or "",
        "offer": node.offer,
        "instance": node.instance or "",
        "place": node.place,
    }
    facts |= gauges_facts(node.gauges) | _machine_facts(node.machine)
    facts |= {f"job {short(job.job)}": f"{job.phase}, step {job.step}" for job in node.jobs}
    facts |= {f"cannot do {what}": why for what, why in node.problems.items()}
    facts |= node.capabilities
    rows = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            rows.add_row(name, value)
    out.print(f"node {node.name}")
    out.print(rows)
    print_history(node.gauges_history)
    if node.machine and node.machine.record:
        _print_losses(node.machine.record)


def _machine_state(machine: MachineSummary) -> str:
    if machine.quarantined_until_ms:
        return "quarantined"
    return "on trial" if machine.on_trial else "trusted"


def _print_losses(record: MachineRecord) -> None:
    if not record.losses:
        return
    out.print()
    out.print("lost on this machine, newest first")
    rows = table("when", "pool", "node", "job", "why")
    for loss in record.losses:
        of = short(loss.job) if loss.job else "another project's"
        rows.add_row(format_time(loss.at_ms), loss.pool, loss.node, of, loss.because or loss.state)
    out.print(rows)


def _machine_facts(machine: MachineView | None) -> dict[str, str]:
    if machine is None:
        return {}
    until = format_time(machine.quarantined_until_ms) if machine.quarantined_until_ms else ""
    return {
        "machine": machine.id,
        "its record": machine.record.says if machine.record else "",
        "strikes": f"{machine.strikes:g} since its last quarantine, {machine.quarantines} quarantines",
        "in quarantine until": until,
        "rests until": format_time(machine.rests_until_ms) if machine.rests_until_ms else "",
        "on trial": "one job at a time" if machine.on_trial and not until else "",
        "judged": machine.because,
    }
