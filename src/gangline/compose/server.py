"""The composition root of the server: its store, its bytes, its secrets, its trackers, and the nodes of its own box."""

import hashlib
import logging
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.compose.access import ACCESS, Access, keep_access, keep_sealing_keys, new_secret
from gangline.compose.buckets import open_bucket
from gangline.compose.home import DATABASE, keep_files_private, locked, private_home
from gangline.compose.hub import make_hub
from gangline.compose.machine import shown_cards
from gangline.compose.places import make_deliverer, make_fetcher, make_inspector, make_mailer, make_poster
from gangline.compose.pools import Drivers, OpenedPool, make_entries
from gangline.compose.settings import needing, strip_secrets
from gangline.core.errors import Denied, UserError
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.server.programs import ServerProgram
from gangline.core.server.settings import DEFAULT_POOL, NODES_MAX, PoolSettings, ServerSettings

if TYPE_CHECKING:
    from gangline.adapters.objects.local import LocalObjects
    from gangline.adapters.objects.s3 import S3Objects
    from gangline.adapters.pools.local import LocalPool
    from gangline.core.access import Role
    from gangline.ports.tracker import Tracker
    from gangline.service.deployment import Deployment
    from gangline.service.renting import Renting
    from gangline.web.new.tiny import TinyBase

NO_NODES = PoolLimits(name=DEFAULT_POOL, nodes_min=0, nodes_max=0)
log = logging.getLogger("gangline.access")


def run_server(
    settings: ServerSettings,
    ready: Callable[[Access, Callable[[], str]], None],
    *,
    nodes: PoolLimits = NO_NODES,
    cache_gb: float | None = None,
) -> None:
    """Serve until told to stop, with `nodes` of this box. `ready` is called once requests are taken, also with what makes a link that
    signs in to the page.

    Raises `UserError` where another server runs in its home, before anything of it is touched."""
    with needing("server"):
        from gangline.api.answers.below_path import path_of_address
        from gangline.api.app import make_app
        from gangline.api.serve import listen, serve
        from gangline.web.page import add_page, refuse_path_of_a_screen
    from gangline.adapters.objects.local import LocalObjects
    from gangline.adapters.package import InstalledPackage, bundled_presets
    from gangline.service.deployment import RentedPool
    from gangline.service.driving import OwnThread
    from gangline.service.renting import Renting

    of, home = settings.server, settings.server.home
    refuse_path_of_a_screen(path_of_address(of.url))
    users_umask = keep_files_private()
    with locked(private_home(home)) as lock:
        listening = listen(of.host, of.port)
        here = f"http://{of.host}:{listening.getsockname()[1]}"
        access = keep_access(
            home, here, public_url=of.url.rstrip("/"), operator_key=of.operator_key, join_token=of.join_token
        )
        lock.tell(url=access.url)
        local = _nodes_of_this_box(of, home / "nodes", nodes.nodes_max, access, settings.pool(nodes.name), cache_gb)
        drive = partial(OwnThread, limit_s=settings.policy.provider_answers_s)
        own = {nodes.name: RentedPool(nodes, drive(nodes.name, local), nodes_called="local")}
        url = access.address
        near = LocalPools(local, partial(_local_pool, settings, access, cache_gb))
        drivers = Drivers(make_entries(near.add), settings.providers, url=url, secrets=of.pool_secrets)
        renting = Renting(own, drivers, drive)
        with _deployed(access, settings, renting, drivers, make_trackers(of, users_umask)) as deployment:
            access = let_in(deployment, access, of)
            objects = deployment.objects
            served = objects if isinstance(objects, LocalObjects) else None
            app = make_app(
                deployment,
                served,
                settings.limits,
                package=InstalledPackage(home / "wheels"),
                url=access.public_url,
                metrics_token=of.metrics_token,
            )
            add_page(
                app,
                deployment,
                settings.limits,
                over_http=of.page_over_http,
                presets=bundled_presets(),
                tiny=_tiny_base(),
            )
            serve(
                app,
                deployment,
                listening,
                ready=lambda: ready(access, partial(_sign_in_link, deployment, access)),
                stopping=near.stop_all,
                drain_s=of.drain_s,
            )


def _tiny_base() -> "TinyBase":
    from gangline.adapters.package import bundled
    from gangline.web.new.tiny import NAME, TinyBase

    recipe = bundled("recipes", "tiny_subject.toml").read_text()
    return TinyBase(folder=bundled("assets", NAME), licence="apache-2.0", recipe=recipe)


@contextmanager
def _deployed(
    access: Access,
    settings: ServerSettings,
    renting: "Renting",
    drivers: Drivers,
    trackers: "tuple[Tracker, ...]",
) -> "Iterator[Deployment]":
    """Open the store and the bytes of a home that is ours alone."""
    from gangline.adapters.sealing import JweSealer
    from gangline.adapters.store import open_store
    from gangline.service.access.secrets import reseal
    from gangline.service.deployment import Deployment
    from gangline.service.notices.endpoints import reseal_endpoints

    home = settings.server.home
    store = open_store(settings.server.database_url or str(home / DATABASE))
    try:
        deployment = Deployment(
            store=store,
            objects=make_objects(settings.server, access.signing_secret),
            hub=make_hub(settings.hub),
            policy=settings.policy,
            new_id=new_id,
            new_secret=new_secret,
            up_since_ms=store.now_ms(),
            pools=renting,
            open_pools=renting.refresh,
            drivers=drivers,
            url=drivers.url,
            settings_of_pools=settings.pools,
            server=_server_name(home, access.signing_secret),
            trackers=trackers,
            fetcher=make_fetcher(home, settings),
            inspector=make_inspector(home),
            deliverer=make_deliverer(settings),
            fetching=settings.fetching,
            sealer=JweSealer(keep_sealing_keys(home, settings.server.secrets_key)),
            poster=make_poster(settings.notices),
            mailer=make_mailer(settings.mail, store.now_ms),
            notices=settings.notices,
        )
        if not settings.server.objects:
            _refuse_two_folders(deployment)
        reseal(deployment)
        reseal_endpoints(deployment)
        yield deployment
    finally:
        store.close()


def let_in(deployment: "Deployment", access: Access, of: ServerProgram) -> Access:
    """Let in who has these secrets, and return them. One that was revoked opens nothing: the home's join token is replaced, and of any
    other the log says so."""
    from gangline.service.access.access import ensure_secret

    now_ms = deployment.store.now_ms()
    ensure_secret(deployment, access.operator_key, "operator", now_ms=now_ms)
    ensure_secret(deployment, access.join_token, "join", now_ms=now_ms)
    file = of.home / ACCESS
    if why := _why_denied(deployment, access.operator_key, "operator", now_ms):
        place = "GANGLINE_OPERATOR_KEY" if of.operator_key else f"operator_key in {file}"
        log.warning("%s: %s; put another one there, and start the server again", place, why)
    if why := _why_denied(deployment, access.join_token, "join", now_ms):
        if of.join_token:
            log.warning("GANGLINE_JOIN_TOKEN: %s; put another one there, and start the server again", why)
            return access
        log.warning("join_token in %s: %s; there is another one now", file, why)
        access = keep_access(of.home, access.url, public_url=access.public_url, join_token=new_secret("join"))
        ensure_secret(deployment, access.join_token, "join", now_ms=now_ms)
    return access


def _why_denied(deployment: "Deployment", secret: str, role: "Role", now_ms: int) -> str:
    from gangline.service.access.access import recognize

    try:
        recognize(deployment, secret, role, now_ms)
    except Denied as error:
        return error.message
    return ""


def _sign_in_link(deployment: "Deployment", access: Access) -> str:
    """Make a link that signs the operator in to the page, once; the plain address if the key was revoked."""
    from gangline.service.access.access import recognize
    from gangline.service.access.sessions import make_code

    now_ms = deployment.store.now_ms()
    try:
        operator = recognize(deployment, access.operator_key, "operator", now_ms)
    except Denied:
        return access.address
    return access.address + make_code(deployment, operator, None, now_ms).path


def _refuse_two_folders(deployment: "Deployment") -> None:
    """Raise `UserError` where a server of another home is at work on this database: each would keep its uploads in a folder of its
    own, where the other one's nodes do not find them. A home that moved, or whose host has another name now, is still the same."""
    from gangline.service.outage import take_turn

    if take_turn(deployment, deployment.store.now_ms()):  # at once, so that of two that start together one is refused
        return
    found = deployment.store.load("ticks")[0]
    other, _, home_id = found["ticker"].rpartition("#")
    if home_id and home_id != deployment.server.rpartition("#")[2]:
        wait_s = max(0, found["turn_ends_ms"] - deployment.store.now_ms()) // 1000 + 1
        raise UserError(
            f"another server ({other}) uses this database, and this one would keep its files where the other cannot read them",
            hint="set GANGLINE_OBJECTS to one bucket for both servers; "
            f"if the other one was stopped, try again in {wait_s} s",
        )


def _server_name(home: Path, signing_secret: str) -> str:
    """Return a name for people, and behind `#` an id that a home keeps wherever it lies."""
    return f"{socket.gethostname()}:{home}#{hashlib.sha256(signing_secret.encode()).hexdigest()[:12]}"


def make_objects(of: ServerProgram, signing_secret: str, *, beside: bool = False) -> "LocalObjects | S3Objects":
    """Open a bucket where the settings name one, else a folder of the home, `beside` a server that may be at work in it. Raises
    `UserError` where the bucket cannot be used."""
    if not of.objects:
        from gangline.adapters.objects.local import LocalObjects

        return LocalObjects(of.home / "store", signing_secret, beside=beside)
    return open_bucket(of.objects, "GANGLINE_OBJECTS")


def make_trackers(of: ServerProgram, users_umask: int) -> "tuple[Tracker, ...]":
    """Make those that the settings name. TensorBoard's files are open to whom `users_umask` lets in.
    W&B reads its own settings from the environment, such as WANDB_API_KEY and WANDB_MODE."""
    strip_secrets("WANDB_API_KEY")
    found: list[Tracker] = []
    if of.wandb_project:
        from gangline.adapters.trackers.wandb import Wandb

        with needing("trackers"):
            if find_spec("wandb") is None:
                raise ModuleNotFoundError(name="wandb")
        found.append(Wandb(of.wandb_project, of.home / "wandb"))
    if of.tensorboard:
        with needing("trackers"):
            from gangline.adapters.trackers.tensorboard import TensorBoard
        found.append(TensorBoard(of.tensorboard, users_umask))
    return tuple(found)


class LocalPools:
    """The pools of workers on this box: the server's own, and those that operators added."""

    def __init__(self, own: "LocalPool", make: "Callable[[OpenedPool], LocalPool]") -> None:
        self._pools = {"": own}
        self._make = make

    def add(self, opened: OpenedPool) -> "LocalPool":
        """Return the pool of this name. It is made once: it alone knows which of its nodes run."""
        if opened.name not in self._pools:
            self._pools[opened.name] = self._make(opened)
        return self._pools[opened.name]

    def stop_all(self) -> None:
        """Stop the nodes of all of them at once; each saves and hands its job back."""
        with ThreadPoolExecutor(len(self._pools)) as stopping:
            list(stopping.map(lambda pool: pool.stop_all(), self._pools.values()))


def _local_pool(settings: ServerSettings, access: Access, cache_gb: float | None, opened: OpenedPool) -> "LocalPool":
    """Make a further pool of workers on this box, which an operator added."""
    homes = settings.server.home / "pools" / opened.name
    return _nodes_of_this_box(settings.server, homes, NODES_MAX, access, settings.pool(opened.name), cache_gb)


def _nodes_of_this_box(
    of: ServerProgram, homes: Path, nodes_max: int, access: Access, pool: PoolSettings, cache_gb: float | None
) -> "LocalPool":
    """Make a pool of workers that share one cache, as a base comes to this box once, and the box's cards."""
    from gangline.adapters.cards import describe_gpu, gpu_memory_gb
    from gangline.adapters.pools.local import WORKER, LocalPool
    from gangline.ports.pool import Offer

    cards = shown_cards()
    gpu = describe_gpu(cards)
    offer = Offer(
        id="local",
        gpu=gpu.get("gpu", ""),
        gpu_memory_gb=gpu_memory_gb(gpu),
        trust=pool.trust_of_own,
        price_micro_usd_per_hour=pool.price_micro_usd_per_hour or 0,
        price_known=pool.price_micro_usd_per_hour is not None,
    )
    home, file = of.home, ("--settings", str(of.settings)) if of.settings else ()
    limit = ("--cache-gb", f"{cache_gb:g}") if cache_gb else ()
    one = ("--slots", "1") if cards else ()  # whatever the settings of workers say: each sees one card
    return LocalPool(
        homes,
        nodes_max=nodes_max,
        offer=offer,
        server=access.url,
        cards=[card.id for card in cards],
        # A worker looks for a file of settings where its server did.
        command=("env", f"GANGLINE_HOME={home}", *WORKER, "--cache", str(home / "cache"), *file, *limit, *one),
    )


def new_id(kind: str) -> str:
    """Make a name that sorts by time to the millisecond; 32 random bits tell those of one millisecond apart."""
    return f"{kind}-{time.time_ns() // 1_000_000:011x}{secrets.token_hex(4)}"
