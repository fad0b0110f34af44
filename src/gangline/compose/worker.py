"""The composition root of a worker: the agent of this machine, with its cache, its trainer and its way to the server."""

import os
import socket
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from gangline.compose.home import keep_files_private, private_home
from gangline.compose.hub import make_hub, users_cache
from gangline.compose.settings import existing, read_settings
from gangline.core.errors import UserError

if TYPE_CHECKING:
    from gangline.adapters.host.cache import Cache
    from gangline.ports.server import Server
    from gangline.worker.agent import Agent


def make_agent(
    *,
    home: Path,
    server: str,
    token: str,
    name: str | None,
    machine: str | None,
    shared_cache: Path | None = None,
    cache_gb: float | None = None,
    slots: int = 1,
) -> "Agent":
    """Make a worker of this machine. Raises `UserError` where another one is at work in `home`."""
    from gangline import __version__
    from gangline.adapters.host.host import LocalHost, describe_gpu, describe_numerics, gpu_memory_gb, memory_bytes
    from gangline.adapters.host.trainer_process import ProcessTrainer
    from gangline.adapters.hub import NodesHub
    from gangline.adapters.transfer.transfer import NodesTransfer
    from gangline.core.runs.proof import shortages
    from gangline.ports.server import Join
    from gangline.wire.agent import HttpServer
    from gangline.worker.agent import Agent
    from gangline.worker.edges import Edges

    if shared_cache is None:  # else its files are for other users of this machine, too: the umask decides for whom
        keep_files_private()
    cache = make_cache(private_home(home), shared_cache, cache_gb)
    host = LocalHost(home, cache)
    reached: Server = HttpServer(server, token)
    machine = machine or host.machine()
    gpu, room_bytes, memory = describe_gpu(), cache.room_bytes(), memory_bytes()
    rng = Random(machine)  # noqa: S311 - jitter, not a secret
    edges = Edges(
        server=reached,
        transfer=NodesTransfer(server, NodesHub(make_hub(), cache.folder, users_cache()), rng),
        trainer=ProcessTrainer(card=gpu.get("gpu", "")),
        host=host,
        rng=rng,
    )
    join = Join(
        machine=machine,
        name=name or socket.gethostname(),
        node=os.environ.get("GANGLINE_NODE", ""),
        slots=slots,
        gpu=gpu.get("gpu", ""),
        gpu_memory_gb=gpu_memory_gb(gpu),
        capabilities={"gangline": __version__, "python": sys.version.split()[0]}
        | describe_numerics(with_gpu=bool(gpu))
        | gpu,
        bases=host.bases(),
        problems=shortages(disk_free_bytes=room_bytes, folder=str(cache.folder), memory_bytes=memory),
        measured={"disk": f"{room_bytes / 1e9:.0f} GB", "memory": f"{memory / 1e9:.0f} GB"},
    )
    return Agent(edges, join)


def make_cache(home: Path, shared: Path | None, cache_gb: float | None) -> "Cache":
    """Make a worker's own cache, or the one that it shares with others of its machine. Raises `UserError` where its files cannot be
    linked into `home`."""
    from gangline.adapters.host.cache import Cache

    folder, wanted_gb = shared or home / "cache", cache_gb or read_settings().cache_gb
    cache = Cache(existing(folder), None if wanted_gb is None else round(wanted_gb * 1e9))
    if folder.stat().st_dev != home.stat().st_dev:
        raise UserError(f"the cache {folder} is on another disk than {home}", hint="choose both on one disk")
    return cache
