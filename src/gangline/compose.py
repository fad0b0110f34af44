"""The composition root: the one reader of environment variables, the one chooser of adapters."""

import json
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from gangline.core.autoscale import PoolLimits
from gangline.core.errors import UserError
from gangline.core.policy import Policy

if TYPE_CHECKING:
    from gangline.adapters.cache import Cache
    from gangline.adapters.hub import HuggingFaceHub
    from gangline.adapters.objects_local import LocalObjects
    from gangline.adapters.objects_s3 import S3Objects
    from gangline.adapters.pools.local import LocalPool
    from gangline.adapters.s3_wire import Bucket
    from gangline.core.layout import Rules
    from gangline.data.place import Place
    from gangline.exec.plan import Plan
    from gangline.exec.run import Exec
    from gangline.ports.notifier import Notifier
    from gangline.ports.objects import Objects
    from gangline.ports.server import Server
    from gangline.ports.tracker import Tracker
    from gangline.ports.transfer import Transfer
    from gangline.wire.client import Client
    from gangline.worker.agent import Agent

DEFAULT_PORT = 8420
DEFAULT_SERVER = f"http://127.0.0.1:{DEFAULT_PORT}"
ACCESS = "access.json"
PRIVATE = 0o600
S3_OPTIONS = {
    "AWS_ACCESS_KEY_ID": "aws_access_key_id",
    "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_REGION": "aws_region",
    "AWS_ENDPOINT_URL": "aws_endpoint",
}

log = logging.getLogger("gangline.compose")
# Below that it writes down whole URLs, and a signed one opens something.
logging.getLogger("httpx").setLevel(logging.WARNING)
KEY_HINT = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a machine with a role of its own needs neither"
)
NO_NODES = PoolLimits(name="default", nodes_min=0, nodes_max=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The environment's part: `home` is where this machine keeps everything of Gangline's."""

    home: Path
    server: str | None
    token: str | None
    project: str | None
    database: str | None
    cache_gb: float | None


def read_settings() -> Settings:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Settings(
        home=Path(os.environ.get("GANGLINE_HOME") or Path(data) / "gangline"),
        server=os.environ.get("GANGLINE_SERVER") or None,
        token=os.environ.get("GANGLINE_TOKEN") or None,
        project=os.environ.get("GANGLINE_PROJECT") or None,
        database=os.environ.get("GANGLINE_DATABASE_URL") or None,
        cache_gb=_number("GANGLINE_CACHE_GB"),
    )


def _number(name: str) -> float | None:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise UserError(f"{name} is {text}, which is no number") from None


class Shown(Protocol):
    """Where a program's output and our own words go."""

    def show(self, stream: int, content: bytes) -> None: ...

    def say(self, text: str) -> None: ...

    def status(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The secrets of a server, kept in its home, readable by its owner alone. `operator_key` is empty in a home of 0.1:
    the next start makes one."""

    url: str
    operator_key: str = field(repr=False)
    join_token: str = field(repr=False)
    signing_secret: str = field(repr=False)


def read_access(home: Path) -> Access | None:
    path = home / ACCESS
    try:
        found = {"operator_key": ""} | json.loads(path.read_text())
        return Access(**{name: found[name] for name in Access.__slots__})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read: {error}", hint="remove it, and start the server again") from None


def keep_access(home: Path, url: str) -> Access:
    """The same secrets at every start; `url` is where the server is this time."""
    before = read_access(home)
    access = Access(
        url=url,
        operator_key=(before and before.operator_key) or new_secret("operator"),
        join_token=before.join_token if before else new_secret("join"),
        signing_secret=before.signing_secret if before else secrets.token_urlsafe(32),
    )
    partial = home / f".{ACCESS}"
    partial.touch(PRIVATE)
    partial.write_text(json.dumps({name: getattr(access, name) for name in access.__slots__}, indent=1))
    partial.rename(home / ACCESS)
    return access


def make_client(server: str | None, token: str | None, project: str | None = None) -> "Client":
    """What is not given comes from the environment, then from a server of this machine. `project` is for operators to say."""
    from gangline.wire.client import Client

    settings = read_settings()
    local = read_access(settings.home)
    url = server or settings.server or (local.url if local else DEFAULT_SERVER)
    ours = local.operator_key if local and local.url == url else None
    known = token or settings.token or ours
    return Client(url, known or "", project or settings.project)


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
    from gangline.adapters.objects_local import LocalObjects
    from gangline.adapters.store import open_store
    from gangline.service.access import admit
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
    """A bucket where the environment names one, else a folder of `home`. Raises `UserError` where the bucket cannot be used."""
    place = os.environ.get("GANGLINE_OBJECTS", "")
    if not place:
        from gangline.adapters.objects_local import LocalObjects

        return LocalObjects(home / "store", signing_secret)
    return _objects_in(place, "GANGLINE_OBJECTS")


def _objects_in(place: str, called: str) -> "S3Objects":
    """Raises `UserError` where the bucket cannot be used."""
    with needing("s3"):
        from gangline.adapters.objects_s3 import S3Objects
        from gangline.adapters.s3_abilities import find_abilities
        from gangline.adapters.s3_wire import Wire
    wire = Wire(_read_bucket(place, called))
    abilities = find_abilities(wire)
    for lack in abilities.lacking():
        log.warning("the object store at %s lacks %s", wire.place, lack)
    return S3Objects(wire, abilities)


def make_trackers(home: Path) -> "tuple[Tracker, ...]":
    """Those that the environment names. W&B reads its own settings from there, such as WANDB_API_KEY and WANDB_MODE."""
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


def data_place(address: str) -> "Place":
    """A folder, or s3://BUCKET/PREFIX with what the environment says of the key; where it names none, the machine's own role is used."""
    from gangline.data.place import Place

    if "://" not in address:
        return Place(str(Path(address).expanduser().absolute()))
    parts = urlsplit(address)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise UserError(f"{address} is no place for data", hint="give a folder, or s3://BUCKET/PREFIX")
    options = {option: value for name, option in S3_OPTIONS.items() if (value := os.environ.get(name, ""))}
    if options.get("aws_endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    return Place(address.rstrip("/"), {"aws_region": "us-east-1"} | options)


def lend_keys_of_data() -> None:
    """A trainer that is started here reads buckets as its user does, where it was given nothing of its own."""
    for name in S3_OPTIONS:
        if name in os.environ:
            os.environ.setdefault(f"GANGLINE_DATA_{name.removeprefix('AWS_')}", os.environ[name])


def _read_bucket(place: str, called: str) -> "Bucket":
    """`called`: what the user named it by. Its key is found as Amazon's own tools find one, and renewed where it ends."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    from gangline.adapters.s3_wire import Bucket

    parts = urlsplit(place)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise UserError(f"{called} is {place}, which is no bucket", hint="it looks like s3://BUCKET/PREFIX")
    endpoint = (os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")).rstrip("/")
    if endpoint and not (endpoint.startswith(("http://", "https://")) and urlsplit(endpoint).hostname):
        raise UserError(f"AWS_ENDPOINT_URL is no address: {endpoint}", hint="it looks like https://HOST:PORT")
    try:
        session = Session()
        credentials = session.get_credentials()
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or "us-east-1"
    except BotoCoreError as error:
        raise UserError(f"the key of {place} cannot be read: {error}", hint=KEY_HINT) from None
    if credentials is None:
        raise UserError(f"no key was found for {place}", hint=KEY_HINT)
    return Bucket(
        name=parts.netloc, prefix=parts.path.strip("/"), region=region, endpoint=endpoint, credentials=credentials
    )


def _nodes_of_this_box(
    home: Path, nodes_max: int, access: Access, price_micro_usd_per_hour: int, cache_gb: float | None
) -> "LocalPool":
    """They share one cache: a base comes to this box once."""
    from gangline.adapters.host import describe_gpu, gpu_memory_gb
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


def make_hub() -> "HuggingFaceHub":
    """The one that the environment names, as its own client reads it."""
    from gangline.adapters.hub import ENDPOINT, HuggingFaceHub

    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    endpoint = "" if offline else os.environ.get("HF_ENDPOINT") or ENDPOINT
    return HuggingFaceHub(endpoint, os.environ.get("HF_TOKEN", ""))


def make_cache(home: Path, shared: Path | None, cache_gb: float | None) -> "Cache":
    """A worker's own, or the one that it shares with others of its machine. Raises `UserError` where its files cannot be in both."""
    from gangline.adapters.cache import Cache

    folder, wanted_gb = shared or home / "cache", cache_gb or read_settings().cache_gb
    cache = Cache(existing(folder), None if wanted_gb is None else round(wanted_gb * 1e9))
    if folder.stat().st_dev != home.stat().st_dev:
        raise UserError(f"the cache {folder} is on another disk than {home}", hint="choose both on one disk")
    return cache


def _users_cache() -> Path:
    """Where the hub's own client keeps what it fetched."""
    hub_home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or hub_home / "hub")


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
    """A worker of this machine. Raises `UserError` where another one is at work in `home`."""
    from gangline import __version__
    from gangline.adapters.host import LocalHost, describe_gpu, describe_numerics, gpu_memory_gb
    from gangline.adapters.hub import NodesHub
    from gangline.adapters.trainer_process import ProcessTrainer
    from gangline.adapters.transfer import NodesTransfer
    from gangline.ports.server import Join
    from gangline.wire.agent import HttpServer
    from gangline.worker.agent import Agent
    from gangline.worker.edges import Edges

    cache = make_cache(existing(home), shared_cache, cache_gb)
    host = LocalHost(home, cache)
    reached: Server = HttpServer(server, token)
    machine = machine or host.machine()
    rng = Random(machine)  # noqa: S311 - jitter, not a secret
    edges = Edges(
        server=reached,
        transfer=NodesTransfer(server, NodesHub(make_hub(), cache.folder, _users_cache()), rng),
        trainer=ProcessTrainer(),
        host=host,
        rng=rng,
    )
    gpu = describe_gpu()
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
    )
    return Agent(edges, join)


def make_exec(
    plan: "Plan",
    *,
    checkpoints: Path,
    to: str,
    data: list[tuple[str, Path]],
    webhook: str,
    notice: str,
    terminal: "Callable[[Path], Shown]",
) -> "Exec":
    """Raises `UserError` for whatever can be seen to be wrong before anything is touched."""
    host = socket.gethostname()
    rng = Random(f"{host} {os.getpid()}")  # noqa: S311 - jitter, not a secret
    with needing("exec"):
        from gangline.adapters.command import KeptCommand, find_program
        from gangline.adapters.notices import PROVIDERS, Notices
        from gangline.adapters.workspace import LocalWorkspace
        from gangline.exec.bring import bring
        from gangline.exec.depot import Depot
        from gangline.exec.plan import Tools
        from gangline.exec.run import Exec
        from gangline.posix import adopt_orphans

        objects, transfer, address = _depot_at(to, rng)
    find_program(plan.command[0])
    _check_places(checkpoints, to, plan.results)
    with needing("exec"):
        places = [(_with_key(data_place(address)), folder) for address, folder in data]
    if notice not in ("", *PROVIDERS):
        _check_notice(Path(notice))
    workspace = LocalWorkspace(checkpoints, plan.rules)
    adopt_orphans()
    shown = terminal(workspace.log)
    notifier = _make_notifier(webhook, shown.say)

    def fetch(stopped: Callable[[], bool]) -> int:
        return sum(bring(place, folder, workspace.state / "data.json", shown.say, stopped) for place, folder in places)

    return Exec(
        plan,
        Tools(
            depot=Depot(objects=objects, transfer=transfer, address=address, rng=rng, now_ms=_now_ms),
            workspace=workspace,
            start=KeptCommand,
            notifier=notifier,
            notice=Notices(notice, shown.say) if notice else lambda: "",
            bring=fetch,
            show=shown.show,
            log=workspace.log,
            say=shown.say,
            status=shown.status,
            host=host,
            now_s=time.monotonic,
            now_ms=_now_ms,
        ),
    )


def _check_places(checkpoints: Path, to: str, results: tuple[Path, ...]) -> None:
    """Before anything is made there."""
    if "://" not in to:
        store, folder = Path(to).expanduser().resolve(), checkpoints.resolve()
        if store == folder or store in folder.parents or folder in store.parents:
            raise UserError(
                f"--to {to} and --checkpoints {checkpoints} lie in each other",
                hint="the store is for this alone: name another",
            )
    names = [path.resolve().name for path in results]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise UserError(
            f"two --results are both called {double}", hint="rename one, or name the folder that holds both"
        )
    missing = next((path for path in results if not path.resolve().name), None)
    if missing is not None:
        raise UserError(f"--results {missing} has no name", hint="name a file or a folder")


def _check_notice(file: Path) -> None:
    if not file.absolute().parent.is_dir():
        raise UserError(f"--notice {file} is neither a provider nor a file", hint="say aws, gcp, azure or a path")
    if file.exists():
        raise UserError(f"--notice {file} has appeared already", hint="remove it: it says that this machine is to go")


def exec_rules(layout: str, complete_when: str) -> "Rules":
    from gangline.core.layout import Rules

    if complete_when.startswith(("/", "./", "../")) or "**" in complete_when:
        raise UserError(
            f"--complete-when {complete_when} is no pattern of paths below --checkpoints",
            hint="as 'step_*/done' or 'model_*.pt'; * stands for no slash",
        )
    return Rules(layout=layout, complete_when=complete_when)  # type: ignore[arg-type]


def _depot_at(to: str, rng: Random) -> "tuple[Objects, Transfer, str]":
    """A bucket or a folder, how files get there, and what people call it."""
    from gangline.adapters.folder import FolderObjects, FolderTransfer
    from gangline.adapters.transfer import HttpTransfer
    from gangline.exec.plan import NICE

    if "://" in to or to.startswith("s3:"):
        return _objects_in(to, "--to"), HttpTransfer("", rng, nice=NICE), to.rstrip("/")
    folder = Path(to).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror}",
            hint="--to is s3://BUCKET/PREFIX, or a folder on a disk that stays",
        ) from None
    objects = FolderObjects(folder)
    objects.sweep(time.time())
    return objects, FolderTransfer(objects, nice=NICE), str(folder)


def _with_key(place: "Place") -> "Place":
    """The key that Amazon's tools would find, where the environment names none."""
    if not place.is_remote:
        return place
    import_module("obstore")  # it is missed now, or never
    if "aws_access_key_id" in place.options:
        return place
    from botocore.session import Session

    credentials = Session().get_credentials()
    if credentials is None:
        return place
    key = credentials.get_frozen_credentials()
    found = {"aws_access_key_id": key.access_key, "aws_secret_access_key": key.secret_key}
    token = {"aws_session_token": key.token} if key.token else {}
    return replace(place, options=place.options | found | token)


def _make_notifier(url: str, say: Callable[[str], None]) -> "Notifier":
    from gangline.adapters.notifiers.nobody import Nobody

    if not url:
        return Nobody()
    with needing("exec"):
        from gangline.adapters.notifiers.webhook import Webhooks
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise UserError(f"--webhook {url} is no address", hint="it looks like https://HOST/PATH")
    try:
        return Webhooks(url, os.environ.get("GANGLINE_WEBHOOK_SECRET", ""), _now_ms, say)
    except ValueError:
        raise UserError(
            "GANGLINE_WEBHOOK_SECRET is no secret of a webhook",
            hint="it looks like whsec_ and base64, as `whsec_MfKQ9r8G…`",
        ) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def existing(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}", hint="choose another with --home") from None
    return folder


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """What is imported within needs that extra. Raises `UserError` where it lacks."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed", hint=f"pip install 'gangline[{extra}]'") from None


def new_secret(kind: str) -> str:
    """Its beginning says what it is, to people and to what scans for leaked secrets."""
    return f"gl_{kind}_{secrets.token_urlsafe(24)}"


def new_id(kind: str) -> str:
    """Sorts by time to the millisecond; 32 random bits tell those of one millisecond apart."""
    return f"{kind}-{time.time_ns() // 1_000_000:011x}{secrets.token_hex(4)}"
