"""The composition root of a worker: the agent of this machine, with its cache, its trainer and its way to the server."""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from gangline.compose.home import keep_files_private, private_home
from gangline.compose.hub import make_hub
from gangline.compose.machine import shown_cards, trainer_threads
from gangline.compose.notices import check_notice, make_notice
from gangline.compose.settings import existing, hub_home, strip_secrets
from gangline.core.errors import UserError
from gangline.core.server.programs import WorkerProgram
from gangline.core.server.settings import WorkerSettings

if TYPE_CHECKING:
    from gangline.adapters.cards import Card
    from gangline.adapters.host.cache import Cache
    from gangline.ports.server import Server
    from gangline.worker.agent import Agent


SECRETS_OF_DATA = (
    "GANGLINE_DATA_ACCESS_KEY_ID",
    "GANGLINE_DATA_SECRET_ACCESS_KEY",
    "GANGLINE_DATA_SESSION_TOKEN",
)
"""Trainers read these of the environment that they have from the worker."""


def hide_token(token: str) -> None:
    """Start this program again with its token in the environment, if it is among its arguments: these every user of the machine can read,
    and so could a run that has a user of its own."""
    words = iter(sys.orig_argv)
    kept = [word for word in words if not word.startswith("--token=") and (word != "--token" or not next(words, ""))]
    if kept != sys.orig_argv:
        os.environ["GANGLINE_TOKEN"] = token
        os.execv(sys.executable, kept)  # noqa: S606 - itself, with its own words


def make_agent(settings: WorkerSettings, *, patient: bool = False, wake: Callable[[], None] = lambda: None) -> "Agent":
    """Make a worker of this machine; a `patient` one waits where the server refuses it, and `wake` is called, by any thread, when it has
    something to do at once. Raises `UserError` where another one is at work in its home."""
    from gangline.adapters.cards import describe_gpu, gpu_memory_gb, uuids_of
    from gangline.adapters.host.gauges import MeasuredMachine, NodeGauges
    from gangline.adapters.host.host import LocalHost, describe_numerics, memory_bytes
    from gangline.adapters.host.trainer.beneath import open_of_runs
    from gangline.adapters.host.trainer.isolation import find_isolation
    from gangline.adapters.host.trainer.process import ProcessTrainer
    from gangline.adapters.hub import NodesHub
    from gangline.adapters.transfer.transfer import NodesTransfer
    from gangline.core.runs.proof import CHECKPOINTS_IN, ISOLATION, shortages
    from gangline.core.server.isolation import isolation_sentence
    from gangline.ports.server import Join
    from gangline.version import VERSION
    from gangline.wire.agent import HttpServer
    from gangline.worker.agent import Agent
    from gangline.worker.edges import Edges

    of, cards = settings.worker, shown_cards()
    slots = slots_of(of, cards)
    check_notice(of.notice)
    strip_secrets(*SECRETS_OF_DATA)
    if of.cache is None:  # else its files are for other users of this machine, too: the umask decides for whom
        keep_files_private()
    cache = make_cache(of, private_home(of.home, passable=True))
    news = list[str]()
    host = LocalHost(of.home, cache, Path(of.tmpfs).resolve() if of.tmpfs else None, news.append)
    isolation = find_isolation(host.runs, of.isolation, memory=host.memory)
    if isolation.why_not_memory:
        host.give_up_memory(isolation.why_not_memory)
    in_memory = host.memory
    roots = [host.runs, *([in_memory.root] if in_memory else [])]
    reached: Server = HttpServer(of.server, of.token)
    machine = of.machine or host.machine()
    gpu, room_bytes, memory = describe_gpu(cards), cache.room_bytes(), memory_bytes()
    hub = NodesHub(make_hub(settings.hub), cache.folder, of.hub_cache or hub_home() / "hub", cache.read_only)
    rng = Random(machine)  # noqa: S311 - jitter, not a secret
    edges = Edges(
        server=reached,
        transfer=NodesTransfer(
            of.server, hub, rng, opens=partial(open_of_runs, roots), news=wake, finds=cache.unchecked
        ),
        trainer=ProcessTrainer(
            card=gpu.get("gpu", ""),
            cards=[card.id for card in cards],
            slots=slots,
            isolation=isolation,
            environments=cache.environments,
            memory=in_memory,
        ),
        host=host,
        rng=rng,
        gauges=NodeGauges(MeasuredMachine(of.home, cards).measure).take,
    )
    join = Join(
        machine=machine,
        name=of.name or socket.gethostname(),
        node=of.node,
        place=of.place,
        slots=slots,
        gpu=gpu.get("gpu", ""),
        gpu_memory_gb=gpu_memory_gb(gpu),
        # Who names a machine says which it is.
        cards=() if of.machine else tuple(sha256(uuid.encode()).hexdigest() for uuid in uuids_of(cards)),
        capabilities={"gangline": VERSION, "python": sys.version.split()[0]}
        | describe_numerics(threads=trainer_threads(), with_gpu=bool(gpu))
        | gpu,
        bases=host.bases(),
        problems=shortages(disk_free_bytes=room_bytes, folder=str(cache.folder), memory_bytes=memory),
        measured={
            "disk": f"{room_bytes / 1e9:.0f} GB",
            "memory": f"{memory / 1e9:.0f} GB",
            ISOLATION: isolation.level,
            CHECKPOINTS_IN: in_memory.place if in_memory else f"disk: {host.why_not}",
        },
    )
    return Agent(
        edges,
        join,
        patient=patient,
        notice=make_notice(of.notice, news.append),
        identity=make_identity(of.identity_url),
        news=news,
        welcome=[
            isolation_sentence(isolation.level, isolation.why),
            in_memory.sentence if in_memory else f"checkpoints are written to disk: {host.why_not}",
        ],
    )


def make_identity(url: str) -> Callable[[], str]:
    """Return a function that fetches a token of the provider's metadata service; without one, it returns ""."""
    from gangline.adapters.pools.salad.metadata import fetch_identity

    return partial(fetch_identity, url) if url else lambda: ""


def slots_of(of: WorkerProgram, cards: "Sequence[Card]") -> int:
    """Return the number of slots: one for each GPU that trainers see, unless the settings name another. Raises `UserError`."""
    if of.slots and cards and of.slots > len(cards):
        raise UserError(
            f"{of.slots} slots are more than the {len(cards)} GPUs that this worker sees"
            if len(cards) > 1
            else f"{of.slots} slots are more than the one GPU that this worker sees",
            hint="each slot has a GPU of its own: lower --slots, or show the worker more in CUDA_VISIBLE_DEVICES",
        )
    return of.slots or max(1, len(cards))


def make_cache(of: WorkerProgram, home: Path) -> "Cache":
    """Make a worker's own cache, or the one that it shares with others of its machine. Raises `UserError` where its files cannot be
    linked into `home`, or where the one that is only read is no folder."""
    from gangline.adapters.host.cache import ENVIRONMENTS, Cache
    from gangline.adapters.host.environments import Environments

    folder, limit = of.cache or home / "cache", round(of.cache_gb * 1e9) if of.cache_gb else None
    # Runs pass through to environments, and a cache of its own is the worker's alone.
    if of.read_only_cache and not of.read_only_cache.is_dir():
        raise UserError(
            f"the read-only cache {of.read_only_cache} is no folder",
            hint="GANGLINE_READ_ONLY_CACHE names a folder laid out as a worker's cache",
        )
    cache = Cache(existing(folder), limit, Environments((of.cache or home) / ENVIRONMENTS), of.read_only_cache)
    if folder.stat().st_dev != home.stat().st_dev:
        raise UserError(f"the cache {folder} is on another disk than {home}", hint="choose both on one disk")
    return cache
