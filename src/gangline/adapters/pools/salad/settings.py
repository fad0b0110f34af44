"""The settings of a pool of SaladCloud."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gangline.core.parsing import Checked
from gangline.core.policy import STRICT, Exact

SaladPriority = Literal["high", "medium", "low", "batch"]
ClassName = Annotated[str, MinLen(1), MaxLen(100), Exact()]


def _like(pattern: str, said: str) -> Checked:
    return Checked(lambda text: "" if re.fullmatch(pattern, text) else f"must be {said}")


WholeName = Annotated[
    str, Exact(), _like("[a-z][a-z0-9-]{0,61}[a-z0-9]", "a name of lower-case letters, digits and hyphens")
]
CountryCode = Annotated[str, Exact(), _like("[a-z]{2}", "two lower-case letters")]
GroupPrefix = Annotated[
    str, Exact(), _like("[a-z][a-z0-9]{0,19}", "a word of at most 20 lower-case letters and digits")
]
KeysAddress = Annotated[str, MaxLen(1000), Exact(), _like(r"https?://\S+", "an address that begins with https://")]
ENDPOINT = "https://api.salad.com/api/public"
KEYS = "https://matrix-rest-api.salad.com/.well-known/workload-jwks.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaladSettings:
    """What a node of the pool asks for, and which of Salad's offers the pool uses."""

    __pydantic_config__: ClassVar[Any] = STRICT
    image: Annotated[
        Annotated[str, MinLen(1), MaxLen(2048), Exact()],
        "The container image of a node: any with Python and PyTorch. The worker is installed when the node starts.",
    ] = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
    classes: Annotated[
        tuple[ClassName, ...],
        "The GPU classes to rent, by Salad's name, e.g. `RTX 4090 (24 GB)`, or id. Without any, all NVIDIA classes are used.",
    ] = ()
    priorities: Annotated[
        tuple[SaladPriority, ...],
        MinLen(1),
        "The priorities to rent at. Lower ones cost less and are interrupted by higher ones.",
    ] = ("high", "medium", "low", "batch")
    cpu: Annotated[Annotated[int, Ge(1), Le(1024), Exact()], "A node has this many virtual CPUs."] = 4
    memory_gb: Annotated[Annotated[int, Ge(1), Le(1024), Exact()], "A node has this much memory."] = 16
    shared_memory_gb: Annotated[
        Annotated[int, Ge(1), Le(1024), Exact()], "This much of the memory may be used as /dev/shm, by data loaders."
    ] = 2
    storage_gb: Annotated[
        Annotated[int, Ge(1), Le(250), Exact()],
        "A node has this much disk, for the worker's libraries, bases and data.",
    ] = 50
    countries: Annotated[
        tuple[CountryCode, ...], "Machines are in these countries, e.g. `us`, `de`. Without any, they may be anywhere."
    ] = ()
    prefix: Annotated[
        GroupPrefix,
        "The names of the pool's container groups begin with this word and a hyphen. A server of release 0.2 that works in the same "
        "project needs another prefix: it deletes the groups that begin with its own.",
    ] = "gl"
    prove_machines: Annotated[
        Annotated[bool, Exact()],
        "A node joins only if it proves, by a token that Salad signs, that it is on the machine that Salad shows; quarantines and bans "
        "then follow Salad's machines.",
    ] = False
    timeout_s: Annotated[
        Annotated[float, Gt(0), Le(300), Exact()], "A request to Salad is given up after this long without an answer."
    ] = 15.0

    def __post_init__(self) -> None:
        assert self.shared_memory_gb <= self.memory_gb, "shared_memory_gb is at most memory_gb"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaladPoolSettings(SaladSettings):
    """The settings of a pool's row: those of its nodes, and whose they are."""

    organization: Annotated[WholeName, "The organization's name, as in the portal's address."]
    project: Annotated[WholeName, "The project's name, as in the portal's address."]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaladProvider:
    """How this server reaches Salad."""

    __pydantic_config__: ClassVar[Any] = STRICT
    endpoint: Annotated[Annotated[str, MinLen(1), MaxLen(1000), Exact()], "The address of Salad's API."] = ENDPOINT
    keys: Annotated[KeysAddress, "The address of the keys (JWKS) with which Salad signs the identity of a machine."] = (
        KEYS
    )
