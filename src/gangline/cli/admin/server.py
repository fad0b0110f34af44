"""`gangline server`: the service alone."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.output import Output, OutputOption, print_json, say
from gangline.compose.access import Access
from gangline.compose.server import run_server
from gangline.compose.settings import DEFAULT_PORT, read_settings
from gangline.core.errors import BadInput
from gangline.core.policy import Policy

HomeOption = Annotated[
    Path | None, typer.Option("--home", help="Where everything is kept; else GANGLINE_HOME.", show_default=False)
]
HostOption = Annotated[str, typer.Option("--host", help="The address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")]
PriceOption = Annotated[
    float, typer.Option("--price-usd-per-hour", min=0, help="What an hour of a node costs, for the bill.")
]
LeaseOption = Annotated[float, typer.Option("--lease-s", min=1, help="A node silent for so long loses its job.")]
BeatOption = Annotated[float, typer.Option("--heartbeat-interval-s", min=0.1, help="How often nodes report.")]


def server(
    home: HomeOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    price_usd_per_hour: PriceOption = 0.0,
    lease_s: LeaseOption = Policy().lease_s,
    heartbeat_interval_s: BeatOption = Policy().heartbeat_interval_s,
    output: OutputOption = Output.text,
) -> None:
    """Run the service: the queue, the object store, the API. Workers come to it from anywhere."""
    run_server(
        home=home or read_settings().home,
        host=host,
        port=port,
        policy=make_policy(lease_s, heartbeat_interval_s),
        price_usd_per_hour=price_usd_per_hour,
        ready=lambda access: announce(access, output),
    )


def make_policy(lease_s: float, heartbeat_interval_s: float) -> Policy:
    if heartbeat_interval_s * 2 > lease_s:
        raise BadInput(
            f"a lease of {lease_s:g} s leaves no room for a lost heartbeat every {heartbeat_interval_s:g} s",
            hint="make --lease-s at least twice --heartbeat-interval-s",
        )
    default = Policy()
    return Policy(
        lease_s=lease_s,
        heartbeat_interval_s=heartbeat_interval_s,
        claim_interval_s=min(default.claim_interval_s, heartbeat_interval_s),
        tick_interval_s=min(default.tick_interval_s, heartbeat_interval_s / 2),
        node_silent_s=3 * lease_s,
        seek_faster=False,  # all nodes of this box are the same machine
        ban_yields_s=min(default.ban_yields_s, 2 * lease_s),
        retry_first_s=min(default.retry_first_s, heartbeat_interval_s),
        rest_first_s=min(default.rest_first_s, heartbeat_interval_s),
        scale_interval_s=min(default.scale_interval_s, heartbeat_interval_s),
        idle_s=min(default.idle_s, 2 * lease_s),
    )


def announce(access: Access, output: Output) -> None:
    if output is Output.json:
        print_json({"url": access.url, "operator_key": access.operator_key, "join_token": access.join_token})
        return
    say(f"Gangline serves at {access.url} (API: {access.url}/docs). Ctrl-C stops it.")
    say(f"a node joins with   gangline worker --server {access.url} --token {access.join_token}")
    say("a user elsewhere gets a key with   gangline keys add NAME")
    say(f"and sets GANGLINE_SERVER={access.url} GANGLINE_TOKEN=…")
