"""The settings of a pool of SaladCloud."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gangline.core.policy import STRICT, Exact

SaladPriority = Literal["high", "medium", "low", "batch"]
ClassName = Annotated[str, MinLen(1), MaxLen(100), Exact()]
COUNTRY, PREFIX = r"[a-z]{2}", r"[a-z][a-z0-9]{0,19}"
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
        tuple[ClassName, ...], "Machines are in these countries, e.g. `us`, `de`. Without any, they may be anywhere."
    ] = ()
    prefix: Annotated[
        Annotated[str, Exact()],
        "The names of the pool's container groups begin with this word and a hyphen. Give each Gangline server that shares a "
        "project of Salad another one: groups of this prefix that the server does not know are deleted.",
    ] = "gl"
    timeout_s: Annotated[
        Annotated[float, Gt(0), Le(300), Exact()], "A request to Salad is given up after this long without an answer."
    ] = 15.0
    keys: Annotated[
        Annotated[str, MinLen(1), MaxLen(1000), Exact()],
        "The address of the keys (JWKS) with which Salad signs the identity of a machine.",
    ] = KEYS

    def __post_init__(self) -> None:
        assert re.fullmatch(PREFIX, self.prefix), "prefix is a word of at most 20 lower-case letters and digits"
        assert all(re.fullmatch(COUNTRY, each) for each in self.countries), "countries have two lower-case letters each"
        assert self.shared_memory_gb <= self.memory_gb, "shared_memory_gb is at most memory_gb"
        assert self.keys.startswith(("https://", "http://")), "keys is an address that begins with https:// or http://"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaladPoolSettings(SaladSettings):
    """The settings of a pool's row: those of its nodes, and whose they are."""

    organization: Annotated[ClassName, "The organization's name, as in the portal's address."]
    project: Annotated[ClassName, "The project's name, as in the portal's address."]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaladProvider:
    """How this server reaches Salad."""

    __pydantic_config__: ClassVar[Any] = STRICT
    endpoint: Annotated[Annotated[str, MinLen(1), MaxLen(1000), Exact()], "The address of Salad's API."] = ENDPOINT
