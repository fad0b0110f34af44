"""`gangline up`: the whole platform on this box."""

import re
from typing import Annotated

import typer

from gangline.cli.admin.server import (
    BeatOption,
    HomeOption,
    HostOption,
    LeaseOption,
    PortOption,
    PriceOption,
    announce,
    make_policy,
)
from gangline.cli.admin.worker import CacheOption
from gangline.cli.output import Output, OutputOption, show_log
from gangline.compose.server import run_server
from gangline.compose.settings import DEFAULT_PORT, read_settings
from gangline.core.errors import BadInput
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.policy import Policy

NODES_MAX = 64
NODES = re.compile(r"(\d{1,6})(?:\.\.(\d{1,6}))?")


def up(
    nodes: Annotated[
        str,
        typer.Option("--nodes", metavar="N|MIN..MAX", help="How many nodes run on this box: always, or as work comes."),
    ] = "1",
    home: HomeOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    price_usd_per_hour: PriceOption = 0.0,
    lease_s: LeaseOption = Policy().lease_s,
    heartbeat_interval_s: BeatOption = Policy().heartbeat_interval_s,
    cache_gb: CacheOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Run the service and some nodes here, each with a machine id of its own. Ctrl-C stops all of it; jobs go on later."""
    limits = parse_nodes(nodes)
    show_log()
    run_server(
        home=home or read_settings().home,
        host=host,
        port=port,
        policy=make_policy(lease_s, heartbeat_interval_s),
        price_usd_per_hour=price_usd_per_hour,
        ready=lambda access: announce(access, output),
        nodes=limits,
        cache_gb=cache_gb,
    )


def parse_nodes(text: str) -> PoolLimits:
    """`4` is `4..4`."""
    found = NODES.fullmatch(text.strip())
    hint = f"--nodes takes a number like 2, or two like 0..4, up to {NODES_MAX}"
    if not found:
        raise BadInput(f"{text!r} is no number of nodes", hint=hint)
    least, most = int(found[1]), int(found[2] or found[1])
    if least > most:
        raise BadInput(f"at least {least} and at most {most} nodes cannot be", hint=hint)
    if most > NODES_MAX:
        raise BadInput(f"{most} nodes are too many for one box", hint=hint)
    return PoolLimits(name="default", nodes_min=least, nodes_max=most)
