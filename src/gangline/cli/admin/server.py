"""`gangline server`: the service alone."""

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.cli.output import Output, OutputOption, print_json, say, show_log
from gangline.compose.access import Access
from gangline.compose.server import run_server
from gangline.compose.settings import read_server_settings
from gangline.core.operating.log_lines import LogFormat
from gangline.core.server.programs import DEFAULT_PORT

log = logging.getLogger("gangline.server")

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", help="Keep all data of the server in this folder (default: GANGLINE_HOME).", show_default=False
    ),
]
HostOption = Annotated[str | None, typer.Option("--host", help="Listen on this address.", show_default="127.0.0.1")]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, help="Listen on this port; 0 takes a free one.", show_default=str(DEFAULT_PORT)
    ),
]
SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="Read the settings from this file (default: GANGLINE_SETTINGS, else gangline.toml in the server's folder).",
        show_default=False,
    ),
]
NodePriceOption = Annotated[
    float | None,
    typer.Option(
        "--price-usd-per-hour",
        min=0,
        help="Bill nodes of the pool default at this price an hour, 0 if they are free (default: unknown).",
        show_default=False,
    ),
]
LeaseOption = Annotated[
    float | None,
    typer.Option(
        "--lease-s",
        min=1,
        help="Override lease_s of the settings: a node loses its job after this many seconds without a heartbeat (default: "
        "45).",
        show_default=False,
    ),
]
BeatOption = Annotated[
    float | None,
    typer.Option(
        "--heartbeat-interval-s",
        min=0.1,
        help="Override heartbeat_interval_s of the settings: nodes report at this interval in seconds (default: 10).",
        show_default=False,
    ),
]


def server_command(
    home: HomeOption = None,
    host: HostOption = None,
    port: PortOption = None,
    settings: SettingsOption = None,
    price_usd_per_hour: NodePriceOption = None,
    lease_s: LeaseOption = None,
    heartbeat_interval_s: BeatOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Run the server: the queue, the object store and the API. Workers connect to it from anywhere."""
    given = server_options(home, host, port, settings, price_usd_per_hour, lease_s, heartbeat_interval_s)
    found = read_server_settings(given).settings
    show_log(logging.WARNING, found.server.log_format, access=found.server.access_log)
    run_server(found, partial(announce, output=output, log_format=found.server.log_format))


def server_options(
    home: Path | None,
    host: str | None,
    port: int | None,
    settings: Path | None,
    price_usd_per_hour: float | None,
    lease_s: float | None,
    heartbeat_interval_s: float | None,
) -> dict[str, Any]:
    """Name the settings that the options of `server` and `up` set."""
    return {
        "server.home": home,
        "server.host": host,
        "server.port": port,
        "server.settings": settings,
        "pools.default.price_usd_per_hour": price_usd_per_hour,
        "policy.lease_s": lease_s,
        "policy.heartbeat_interval_s": heartbeat_interval_s,
    }


def announce(access: Access, make_link: Callable[[], str], *, output: Output, log_format: LogFormat) -> None:
    """Tell whoever started the server how to reach it, with its secrets. A log, which more people may read, has the address alone."""
    if output is Output.json:
        secrets = {"operator_key": access.operator_key, "join_token": access.join_token}
        print_json({"url": access.url, **secrets, "page": make_link()})
        return
    if log_format == "json" or not sys.stderr.isatty():
        log.setLevel(logging.INFO)
        log.info("Gangline serves at %s", access.address)
        return
    say(f"Gangline serves at {access.address} (API: {access.address}/docs). Ctrl-C stops it.")
    say(f"its page, once, within five minutes: {make_link()}   (later: gangline open)")
    say(f"to join a node, run   GANGLINE_TOKEN={access.join_token} gangline worker --server {access.address}")
    say("to make a key for a user on another machine, run   gangline keys add NAME")
    say(f"the user then sets GANGLINE_SERVER={access.address} GANGLINE_TOKEN=…")
