"""`gangline up`: the whole platform on this box."""

from functools import partial
from typing import Annotated

import typer

from gangline.cli.admin.node_range import parse_node_range
from gangline.cli.admin.server import (
    BeatOption,
    HomeOption,
    HostOption,
    LeaseOption,
    NodePriceOption,
    PortOption,
    SettingsOption,
    announce,
    server_options,
)
from gangline.cli.admin.worker import CacheOption
from gangline.cli.output import Output, OutputOption, show_log
from gangline.compose.server import run_server
from gangline.compose.settings import read_settings_of_box
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.server.settings import DEFAULT_POOL, NODES_MAX, PoolSettings


def up_command(
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="N|MIN..MAX",
            help="Run N nodes on this machine, or MIN to MAX of them depending on the work (default: pools.default of the "
            "settings, else 1).",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
    host: HostOption = None,
    port: PortOption = None,
    settings: SettingsOption = None,
    price_usd_per_hour: NodePriceOption = None,
    lease_s: LeaseOption = None,
    heartbeat_interval_s: BeatOption = None,
    cache_gb: CacheOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Run the server and some nodes on this machine, each with its own machine id. Ctrl-C stops all of them; their jobs resume after
    the next start."""
    given = server_options(home, host, port, settings, price_usd_per_hour, lease_s, heartbeat_interval_s)
    if nodes:
        given |= parse_nodes(nodes)
    # The nodes read their settings themselves; `up` refuses wrong ones here too, because only their logs would name them.
    found = read_settings_of_box(given | {"worker.cache_gb": cache_gb}).settings
    show_log(form=found.server.log_format, access=found.server.access_log)
    run_server(
        found,
        partial(announce, output=output, log_format=found.server.log_format),
        nodes=limits_of(found.pool(DEFAULT_POOL)),
        cache_gb=cache_gb,
    )


def limits_of(pool: PoolSettings) -> PoolLimits:
    """Return the number of nodes that the settings give, one where they give none."""
    if pool.nodes_min is None and pool.nodes_max is None:
        return PoolLimits(name=DEFAULT_POOL, nodes_min=1, nodes_max=1)
    least = pool.nodes_min or 0
    return PoolLimits(name=DEFAULT_POOL, nodes_min=least, nodes_max=least if pool.nodes_max is None else pool.nodes_max)


def parse_nodes(text: str) -> dict[str, int]:
    """Return the settings that `--nodes` sets; `4` is `4..4`. Raises `BadInput`."""
    least, most = parse_node_range(text, NODES_MAX, "one machine")
    return {"pools.default.nodes_min": least, "pools.default.nodes_max": most}
