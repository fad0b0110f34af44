"""The composition root of the server: its store, its bytes, its secrets, its trackers, and the nodes of its own box."""

import os
import secrets
import socket
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.compose.access import Access, keep_access, new_secret
from gangline.compose.buckets import open_bucket
from gangline.compose.hub import make_hub
from gangline.compose.settings import existing, needing, read_settings
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.policy import Policy

if TYPE_CHECKING:
    from gangline.adapters.objects.local import LocalObjects
    from gangline.adapters.objects.s3 import S3Objects
    from gangline.adapters.pools.local import LocalPool
    from gangline.ports.tracker import Tracker

NO_NODES = PoolLimits(name="default", nodes_min=0, nodes_max=0)


def run_server(
    *,
    home: Path,
    host: str,
    port: int,
    policy: Policy,
    price_usd_per_hour: float,
    ready: Callable[[Access], None],
    nodes: PoolLimits = NO_NODES,
    cache_gb: float | None = None,
) -> None:
    """Serve until told to stop, with `nodes` of this box. `ready` is called once requests are taken."""
    with needing("server"):
        from gangline.api.app import make_app
        from gangline.api.serve import listen, serve
    from gangline.adapters.objects.local import LocalObjects
    from gangline.adapters.store import open_store
    from gangline.service.access.access import admit
    from gangline.service.deployment import Deployment, RentedPool

    home = existing(home)
    listening = listen(host, port)
    access = keep_access(home, f"http://{host}:{listening.getsockname()[1]}")
    price = round(price_usd_per_hour * 1e6)
    store = open_store(read_settings().database or str(home / "gangline.sqlite"))
    objects = make_objects(home, access.signing_secret)
    local = _nodes_of_this_box(home, nodes.nodes_max, access, price, cache_gb)
    deployment = Deployment(
        store=store,
        objects=objects,
        hub=make_hub(),
        policy=policy,
        new_id=new_id,
        new_secret=new_secret,
        up_since_ms=store.now_ms(),
        price_micro_usd_per_hour=price,
        pools={nodes.name: RentedPool(nodes, local)},
        server=f"{socket.gethostname()}:{home}",
        trackers=make_trackers(home),
    )
    admit(deployment, access.operator_key, "operator", now_ms=store.now_ms())
    admit(deployment, access.join_token, "join", now_ms=store.now_ms())
    try:
        app = make_app(deployment, objects if isinstance(objects, LocalObjects) else None)
        serve(app, deployment, listening, ready=lambda: ready(access), stopping=local.stop_all)
    finally:
        store.close()


def make_objects(home: Path, signing_secret: str) -> "LocalObjects | S3Objects":
    """Open a bucket where the environment names one, else a folder of `home`. Raises `UserError` where the bucket cannot be used."""
    place = os.environ.get("GANGLINE_OBJECTS", "")
    if not place:
        from gangline.adapters.objects.local import LocalObjects

        return LocalObjects(home / "store", signing_secret)
    return open_bucket(place, "GANGLINE_OBJECTS")


def make_trackers(home: Path) -> "tuple[Tracker, ...]":
    """Make those that the environment names. W&B reads its own settings from there, such as WANDB_API_KEY and WANDB_MODE."""
    project, folder = os.environ.get("GANGLINE_WANDB_PROJECT", ""), os.environ.get("GANGLINE_TENSORBOARD", "")
    found: list[Tracker] = []
    if project:
        from gangline.adapters.trackers.wandb import Wandb

        with needing("trackers"):
            if find_spec("wandb") is None:
                raise ModuleNotFoundError(name="wandb")
        found.append(Wandb(project, home / "wandb"))
    if folder:
        with needing("trackers"):
            from gangline.adapters.trackers.tensorboard import TensorBoard
        found.append(TensorBoard(existing(Path(folder))))
    return tuple(found)


def _nodes_of_this_box(
    home: Path, nodes_max: int, access: Access, price_micro_usd_per_hour: int, cache_gb: float | None
) -> "LocalPool":
    """Make a pool of workers that share one cache: a base comes to this box once."""
    from gangline.adapters.host.host import describe_gpu, gpu_memory_gb
    from gangline.adapters.pools.local import WORKER, LocalPool
    from gangline.ports.pool import Offer

    gpu = describe_gpu()
    offer = Offer(
        id="local",
        gpu=gpu.get("gpu", ""),
        gpu_memory_gb=gpu_memory_gb(gpu),
        price_micro_usd_per_hour=price_micro_usd_per_hour,
    )
    limit = ("--cache-gb", f"{cache_gb:g}") if cache_gb else ()
    return LocalPool(
        home / "nodes",
        nodes_max=nodes_max,
        offer=offer,
        server=access.url,
        join_token=access.join_token,
        command=(*WORKER, "--cache", str(home / "cache"), *limit),
    )


def new_id(kind: str) -> str:
    """Make a name that sorts by time to the millisecond; 32 random bits tell those of one millisecond apart."""
    return f"{kind}-{time.time_ns() // 1_000_000:011x}{secrets.token_hex(4)}"
