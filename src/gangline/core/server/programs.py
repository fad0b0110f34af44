"""The settings of a machine's programs besides the operator's policy: folders, addresses and secrets."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le

from gangline.core.access import as_secret
from gangline.core.errors import BadInput
from gangline.core.operating.log_lines import LogFormat
from gangline.core.parsing import Checked
from gangline.core.policy import STRICT, Exact, SettingOrigin, Switch
from gangline.core.server.isolation import IsolationLevel

DEFAULT_PORT = 8420
DEFAULT_SERVER = f"http://127.0.0.1:{DEFAULT_PORT}"
KEY_MIN = 32
SECRETS_OF_BUCKETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
DATA_CACHE_GB = 100.0
"""Trainers, which read the variable themselves, have the same default."""
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
"""The path of the server's address: it stands in the attributes of pages as it is."""
DEFAULT_HOME = Path("~/.local/share/gangline")
"""As pages show it; `compose` always gives the folder of this user."""


def _why_no_secret(text: str) -> str:
    try:
        as_secret(text, "")
    except BadInput:
        return (
            "cannot be a secret: it contains control characters or letters outside ASCII; copy it again, in one piece"
        )
    return ""


def keys_of(text: str) -> list[str]:
    """Return the keys of a text that separates them by commas."""
    return [key for each in text.split(",") if (key := each.strip())]


def _why_no_key(text: str) -> str:
    short = any(len(key) < KEY_MIN for key in keys_of(text))
    return f"needs {KEY_MIN} random characters or more: openssl rand -hex 32" if short else ""


def _why_no_url(text: str) -> str:
    parts = urlsplit(text)
    place = parts.hostname and not parts.query and not parts.fragment and PLAIN_PATH.fullmatch(parts.path)
    if parts.hostname and not parts.hostname.isascii():
        return "has a host with letters outside ASCII; write it as DNS has it, such as xn--mller-kva.example"
    good = parts.scheme in ("http", "https") and place
    return "" if good else "is not an address such as https://gangline.example.org"


def _truth(text: str) -> bool:
    return text.lower() in ("1", "true", "yes", "on")


def _number(text: str) -> float | str:
    """Return what is no number as it is: it is reported with all else that is wrong."""
    try:
        return float(text)
    except ValueError:
        return text


Word = Annotated[str, Exact()]
"""Of a command line, so it may hold bytes that are no UTF-8: a bound of its length would refuse these without saying what they are."""
Secret = Annotated[str, Checked(_why_no_secret)]
Port = Annotated[int, Ge(0), Le(65535), Exact()]
Gigabytes = Annotated[float, Ge(0), Le(1e6), Exact()]
LOG_FORMAT = SettingOrigin("GANGLINE_LOG_FORMAT")
LOG_FORMAT_MEANING = (
    "How the log is written: text for people, or json with one object on each line, with its time, level and the job, attempt and node "
    "that it is about."
)
SETTINGS = SettingOrigin("GANGLINE_SETTINGS", "--settings", in_file=False, read=Path)
SETTINGS_MEANING = (
    "The settings file; without one, gangline.toml in the home that GANGLINE_HOME names is read if it is there."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """How a server or a worker reaches the Hugging Face hub."""

    __pydantic_config__: ClassVar[Any] = STRICT
    token: Annotated[
        Secret,
        SettingOrigin("HF_TOKEN", secret=True),
        "The token with which gated models are downloaded.",
    ] = field(default="", repr=False)
    endpoint: Annotated[
        Word, SettingOrigin("HF_ENDPOINT"), "The address of another hub; without it, huggingface.co is asked."
    ] = ""
    offline: Annotated[
        Switch,
        SettingOrigin("HF_HUB_OFFLINE", read=_truth),
        "Whether no hub may be asked for anything.",
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProgram:
    """Where a server listens, and where it keeps what it knows."""

    __pydantic_config__: ClassVar[Any] = STRICT
    home: Annotated[
        Path,
        SettingOrigin("GANGLINE_HOME", "--home", in_file=False),
        "The folder of the server: its secrets, and what is not kept elsewhere. XDG_DATA_HOME moves the default.",
    ] = DEFAULT_HOME
    settings: Annotated[Path | None, SETTINGS, SETTINGS_MEANING] = None
    host: Annotated[Word, SettingOrigin(option="--host"), "The address to listen on."] = "127.0.0.1"
    port: Annotated[Port, SettingOrigin(option="--port"), "The port to listen on; 0 takes a free one."] = DEFAULT_PORT
    url: Annotated[
        Annotated[str, Checked(_why_no_url)],
        SettingOrigin("GANGLINE_URL"),
        "Nodes that are rented elsewhere reach the server at this address; without it, only workers of this machine do.",
    ] = ""
    page_over_http: Annotated[
        Switch,
        SettingOrigin("GANGLINE_PAGE_OVER_HTTP", read=_truth),
        "Whether people may sign in to the page over plain http from other machines, where others on the way can read their keys.",
    ] = False
    pool_secrets: Annotated[
        Path | None,
        SettingOrigin("GANGLINE_POOL_SECRETS", read=Path),
        "The folder of pools' secrets, one file each, beside the variables GANGLINE_POOL_NAME.",
    ] = None
    database_url: Annotated[
        str,
        SettingOrigin("GANGLINE_DATABASE_URL", secret=True),
        "The PostgreSQL database, as postgresql://USER:PASSWORD@HOST/NAME; without it, SQLite in the home is used.",
    ] = field(default="", repr=False)
    objects: Annotated[
        Word,
        SettingOrigin("GANGLINE_OBJECTS"),
        "The bucket for files, as s3://BUCKET/PREFIX; without it, they are kept in the home.",
    ] = ""
    secrets_key: Annotated[
        Annotated[str, Checked(_why_no_key)],
        SettingOrigin("GANGLINE_SECRETS_KEY", secret=True),
        "The key that encrypts users' secrets in the database, the same for all its servers; without it, one is made in the home. Of "
        "several, separated by commas, the first encrypts and the others only decrypt.",
    ] = field(default="", repr=False)
    operator_key: Annotated[
        Annotated[Secret, Checked(_why_no_key)],
        SettingOrigin("GANGLINE_OPERATOR_KEY", secret=True),
        "The operator's key, for servers that keep no home of their own; without it, one is made in the home.",
    ] = field(default="", repr=False)
    join_token: Annotated[
        Annotated[Secret, Checked(_why_no_key)],
        SettingOrigin("GANGLINE_JOIN_TOKEN", secret=True),
        "The join token of the pool default, for workers that are deployed with the server; without it, one is made in the home.",
    ] = field(default="", repr=False)
    wandb_project: Annotated[
        Word,
        SettingOrigin("GANGLINE_WANDB_PROJECT"),
        "The project of Weights & Biases that metrics are sent to; its own variables, such as WANDB_API_KEY, hold as ever.",
    ] = ""
    tensorboard: Annotated[
        Path | None,
        SettingOrigin("GANGLINE_TENSORBOARD", read=Path),
        "The folder that metrics are written to for TensorBoard.",
    ] = None
    log_format: Annotated[LogFormat, LOG_FORMAT, LOG_FORMAT_MEANING] = "text"
    access_log: Annotated[
        Switch,
        SettingOrigin("GANGLINE_ACCESS_LOG", read=_truth),
        "Whether the log has a line for each request: its route, status and duration, without ids or keys.",
    ] = False
    metrics_token: Annotated[
        Annotated[str, Checked(_why_no_key)],
        SettingOrigin("GANGLINE_METRICS_TOKEN", secret=True),
        "The token that lets Prometheus read /metrics, and nothing else; without one, only operators' keys do.",
    ] = field(default="", repr=False)
    drain_s: Annotated[
        Annotated[float, Ge(0), Le(3600), Exact()],
        SettingOrigin("GANGLINE_DRAIN_S", read=_number),
        "After SIGTERM the server answers for this many seconds while /readyz fails, so that a load balancer can notice.",
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgram:
    """Which server a worker works for, and with what of its machine."""

    __pydantic_config__: ClassVar[Any] = STRICT
    home: Annotated[
        Path,
        SettingOrigin("GANGLINE_HOME", "--home", in_file=False),
        "The folder of the worker: its cache, runs and machine id. GANGLINE_HOME and XDG_DATA_HOME move the default.",
    ] = DEFAULT_HOME / "worker"
    settings: Annotated[Path | None, SETTINGS, SETTINGS_MEANING] = None
    log_format: Annotated[LogFormat, LOG_FORMAT, LOG_FORMAT_MEANING] = "text"
    server: Annotated[Word, SettingOrigin("GANGLINE_SERVER", "--server"), "The server's URL."] = DEFAULT_SERVER
    token: Annotated[Secret, SettingOrigin("GANGLINE_TOKEN", "--token", secret=True), "The join token."] = field(
        default="", repr=False
    )
    name: Annotated[Word, SettingOrigin(option="--name"), "What people call the node; without it, the host's name."] = (
        ""
    )
    machine: Annotated[
        Word, SettingOrigin(option="--machine"), "The machine id; without it, the one kept in the home."
    ] = ""
    node: Annotated[
        Word,
        SettingOrigin("GANGLINE_NODE", in_file=False),
        "The node that this machine was rented as; the server that rents it sets it.",
    ] = ""
    place: Annotated[
        Word,
        SettingOrigin("GANGLINE_PLACE", in_file=False),
        "What the provider calls this machine, where it moves nodes between machines; the node's start sets it.",
    ] = ""
    identity_url: Annotated[
        Word,
        SettingOrigin("GANGLINE_IDENTITY_URL", in_file=False),
        "The provider's metadata service, which signs a token that proves which machine this is; the node's start sets it.",
    ] = ""
    slots: Annotated[
        Annotated[int, Ge(1), Le(1024), Exact()] | None,
        SettingOrigin(option="--slots"),
        "The GPUs of the machine that jobs may use, each for one job; without it, all that CUDA_VISIBLE_DEVICES shows, or 1.",
    ] = None
    isolation: Annotated[
        IsolationLevel | None,
        SettingOrigin("GANGLINE_ISOLATION", "--isolation"),
        "How runs are kept apart: none, uid (a user for each) or sandbox (bubblewrap); without it, the strongest that works here.",
    ] = None
    tmpfs: Annotated[
        Word,
        SettingOrigin("GANGLINE_TMPFS", "--tmpfs"),
        (
            "Checkpoints and results of runs lie in this folder in memory (tmpfs) while two fit into a quarter of what is free, "
            "else on the disk; empty: always on the disk."
        ),
    ] = "/dev/shm"  # noqa: S108 - the worker makes a folder of its own there
    notice: Annotated[
        Word,
        SettingOrigin("GANGLINE_NOTICE", "--notice"),
        "Who says that the machine will be taken away: aws, gcp, azure, or a file that appears; without it, nobody is asked.",
    ] = ""
    cache: Annotated[
        Path | None,
        SettingOrigin(option="--cache"),
        "Where bases are kept, which workers of one machine may share; without it, in the home.",
    ] = None
    cache_gb: Annotated[
        Gigabytes | None,
        SettingOrigin("GANGLINE_CACHE_GB", "--cache-gb", read=_number),
        "Bases that no job uses are deleted beyond this size; without it, half of what is free.",
    ] = None
    read_only_cache: Annotated[
        Path | None,
        SettingOrigin("GANGLINE_READ_ONLY_CACHE", read=Path),
        "A folder laid out as the cache of a worker, such as bases in an image: its files are copied from there instead of downloaded.",
    ] = None
    hub_cache: Annotated[
        Path | None,
        SettingOrigin("HF_HUB_CACHE", read=Path),
        "Where the hub's own client keeps what it has downloaded; without it, hub/ in HF_HOME, else in ~/.cache/huggingface.",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDataSettings:
    """How trainers of a node read data sets in buckets. Trainers have these from the worker's environment, so no file may set them."""

    __pydantic_config__: ClassVar[Any] = STRICT
    access_key_id: Annotated[
        Secret, SettingOrigin("GANGLINE_DATA_ACCESS_KEY_ID", in_file=False), "The access key of the bucket."
    ] = ""
    secret_access_key: Annotated[
        Secret,
        SettingOrigin("GANGLINE_DATA_SECRET_ACCESS_KEY", secret=True),
        "The secret key of the bucket.",
    ] = field(default="", repr=False)
    session_token: Annotated[
        Secret,
        SettingOrigin("GANGLINE_DATA_SESSION_TOKEN", secret=True),
        "The session token of the key.",
    ] = field(default="", repr=False)
    region: Annotated[Word, SettingOrigin("GANGLINE_DATA_REGION", in_file=False), "The region of the bucket."] = (
        "us-east-1"
    )
    endpoint_url: Annotated[
        Word,
        SettingOrigin("GANGLINE_DATA_ENDPOINT_URL", in_file=False),
        "The address of the object store; without it, Amazon's.",
    ] = ""
    cache: Annotated[
        Path | None,
        SettingOrigin("GANGLINE_DATA_CACHE", in_file=False, read=Path),
        "The folder that keeps what was read, which the ranks of a machine share; without it, nothing is kept.",
    ] = None
    cache_gb: Annotated[
        Annotated[float, Gt(0), Le(1e6), Exact()],
        SettingOrigin("GANGLINE_DATA_CACHE_GB", in_file=False, read=_number),
        "The size of that folder at most.",
    ] = DATA_CACHE_GB
