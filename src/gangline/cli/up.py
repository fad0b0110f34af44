"""`gangline up`: the whole platform on this box."""

from typing import Annotated

import typer

from gangline import compose
from gangline.cli.output import Output, OutputOption, say
from gangline.cli.server import (
    BeatOption,
    HomeOption,
    HostOption,
    LeaseOption,
    PortOption,
    PriceOption,
    announce,
    make_policy,
)
from gangline.core.policy import Policy


def up(
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=64, help="How many nodes to run on this box.")] = 1,
    home: HomeOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = compose.DEFAULT_PORT,
    price_usd_per_hour: PriceOption = 0.0,
    lease_s: LeaseOption = Policy().lease_s,
    heartbeat_interval_s: BeatOption = Policy().heartbeat_interval_s,
    output: OutputOption = Output.text,
) -> None:
    """Run the service and some nodes here, each with a machine id of its own. Ctrl-C stops all of it; jobs go on later."""
    from gangline.adapters.local_nodes import LocalNode, start_node, stop_all

    folder = home or compose.read_settings().home
    started: list[LocalNode] = []

    def ready(access: compose.Access) -> None:
        announce(access, output)
        for number in range(1, nodes + 1):
            node_home = folder / "nodes" / str(number)
            node = start_node(name=f"local-{number}", home=node_home, server=access.url, join_token=access.join_token)
            started.append(node)
            say(f"node {node.name} (process {node.process.pid}) writes {node_home / 'worker.log'}")

    compose.run_server(
        home=folder,
        host=host,
        port=port,
        policy=make_policy(lease_s, heartbeat_interval_s),
        price_usd_per_hour=price_usd_per_hour,
        ready=ready,
        stopping=lambda: stop_all(started),
    )
