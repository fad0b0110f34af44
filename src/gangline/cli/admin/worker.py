"""`gangline worker`: one node's agent."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.admin.server import SettingsOption
from gangline.cli.output import Output, OutputOption, print_json, say
from gangline.compose.settings import read_worker_settings
from gangline.compose.worker import make_agent
from gangline.core.errors import BadInput, UserError

CacheOption = Annotated[
    float | None,
    typer.Option(
        "--cache-gb",
        min=0.001,
        help="Bases that nobody uses go beyond this; else GANGLINE_CACHE_GB, else half of what is free.",
    ),
]


def worker_command(
    server: Annotated[str | None, typer.Option(help="The server's URL; else GANGLINE_SERVER.")] = None,
    token: Annotated[str | None, typer.Option(help="The join token; else GANGLINE_TOKEN.")] = None,
    home: Annotated[
        Path | None, typer.Option(help="Its folder: cache, runs, machine id. One worker each.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="What people call it; else the host's name.")] = None,
    machine: Annotated[str | None, typer.Option(help="Its machine id; else one kept in its home.")] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Where bases stay; workers of one machine may share it; else in its home.", show_default=False
        ),
    ] = None,
    cache_gb: CacheOption = None,
    slots: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Into how many ranks a job may be split here: its GPUs.", show_default="1"),
    ] = None,
    settings: SettingsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Work for a server: take jobs, train, hand in. SIGTERM or Ctrl-C saves, hands the job back and leaves.

    It first loads the libraries and tries the card. A machine that can do no job says why, and the exit code is 2."""
    from gangline.worker.loop import run

    given = {
        "worker.server": server,
        "worker.token": token,
        "worker.home": home,
        "worker.name": name,
        "worker.machine": machine,
        "worker.cache": cache,
        "worker.cache_gb": cache_gb,
        "worker.slots": slots,
        "worker.settings": settings,
    }
    found = read_worker_settings(given).settings
    if not found.worker.token:
        raise BadInput(
            "a worker needs a join token",
            hint="`gangline server` prints one, `gangline join-tokens add` makes more; set GANGLINE_TOKEN to it",
        )
    agent = make_agent(found)
    run(agent, lambda news: _tell(news, output))
    if agent.failed:
        raise UserError(f"this node {agent.failed}", hint="repair that and start the worker again: it is tried anew")


def _tell(news: str, output: Output) -> None:
    if output is Output.json:
        print_json({"news": news})
    else:
        say(f"{datetime.now().astimezone():%H:%M:%S} {news}")
