"""`gangline worker`: one node's agent."""

import logging
import sys
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from gangline.cli.admin.server import SettingsOption
from gangline.cli.output import Output, OutputOption, print_json, show_log
from gangline.compose.settings import read_worker_settings
from gangline.compose.worker import hide_token, make_agent
from gangline.core.errors import BadInput, UserError
from gangline.core.server.isolation import IsolationLevel
from gangline.core.server.programs import DEFAULT_SERVER

log = logging.getLogger("gangline.worker")

CacheOption = Annotated[
    float | None,
    typer.Option(
        "--cache-gb",
        min=0.001,
        help="Delete unused bases from the cache beyond this size in GB (default: GANGLINE_CACHE_GB, else half of the free "
        "disk).",
    ),
]


def worker_command(
    server: Annotated[
        str | None,
        typer.Option(help=f"Work for the server at this URL (default: GANGLINE_SERVER, else {DEFAULT_SERVER})."),
    ] = None,
    token: Annotated[str | None, typer.Option(help="Join with this token (default: GANGLINE_TOKEN).")] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            help="Keep the worker's cache, runs and machine id in this folder, which no other worker may use (default: the "
            "folder worker in GANGLINE_HOME).",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name the node (default: the host's name).")] = None,
    machine: Annotated[str | None, typer.Option(help="Use this machine id (default: the one kept in --home).")] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Cache bases in this folder, which workers of one machine may share (default: a folder in --home).",
            show_default=False,
        ),
    ] = None,
    cache_gb: CacheOption = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="Use this many GPUs. Each trains a LoRA of its own; a job from scratch may take several (default: all that "
            "CUDA_VISIBLE_DEVICES shows; on a machine without a GPU, 1).",
            show_default=False,
        ),
    ] = None,
    notice: Annotated[
        str | None,
        typer.Option(
            "--notice",
            help="Hand all jobs back before the machine is preempted: ask the provider (aws, gcp or azure) for its notice, or watch "
            "for a file at this path (default: GANGLINE_NOTICE, else none).",
            show_default=False,
        ),
    ] = None,
    isolation: Annotated[
        IsolationLevel | None,
        typer.Option(
            "--isolation",
            help="Keep runs apart from this machine by this level only: none, uid (a user for each run; needs root) or sandbox "
            "(bubblewrap). The worker ends if that does not work (default: GANGLINE_ISOLATION, else the strongest that works).",
            show_default=False,
        ),
    ] = None,
    tmpfs: Annotated[
        str | None,
        typer.Option(
            "--tmpfs",
            help="Keep checkpoints and results of runs in this folder in memory (tmpfs) while two fit into a quarter of what is free, "
            "else on the disk; '' keeps all on the disk (default: GANGLINE_TMPFS, else /dev/shm).",
            show_default=False,
        ),
    ] = None,
    settings: SettingsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Work for a server: claim jobs, train and upload. On SIGTERM, Ctrl-C or a provider's --notice the worker saves
    checkpoints, gives its jobs back and exits.

    The worker first loads the libraries and tests the GPU. If it cannot run any job, it says why and exits with code 2.
    So it does at a terminal if the server refuses it; elsewhere it says why and asks again, at least once a minute."""
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
        "worker.notice": notice,
        "worker.isolation": isolation,
        "worker.tmpfs": tmpfs,
        "worker.settings": settings,
    }
    found = read_worker_settings(given).settings
    if not found.worker.token:
        raise BadInput(
            "a worker needs a join token",
            hint="set GANGLINE_TOKEN to one; `gangline join-tokens add` makes join tokens",
        )
    hide_token(found.worker.token)
    show_log(form=found.worker.log_format)
    tell = _print_news if output is Output.json else log.info
    woken = Event()
    agent = make_agent(found, patient=not sys.stderr.isatty(), wake=woken.set)
    run(agent, tell, woken)
    if agent.failed:
        raise UserError(
            f"this node {agent.failed}", hint="fix the cause and start the worker again; it then repeats its checks"
        )


def _print_news(news: str) -> None:
    print_json({"news": news})
