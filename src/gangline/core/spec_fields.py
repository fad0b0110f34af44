"""What specs of several kinds are made of: the model to start from, what is asked of a node, words."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, MaxLen, MinLen, Predicate

from gangline.core.files import File, digest_of_files
from gangline.core.parsing import adapter, parse_as


def has_words(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()


Prompt = Annotated[str, MinLen(1), MaxLen(2000), Predicate(has_words)]
RESOLUTION_MAX = 4096
Hub = Annotated[str, MinLen(3), MaxLen(200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesBase:
    """A model whose files were handed in, by content: a folder in diffusers' layout, or one file that holds all of it."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    source: Literal["files"] = "files"
    files: Annotated[tuple[File, ...], MinLen(1), MaxLen(1000)]

    @property
    def id(self) -> str:
        return f"files:{digest_of_files(self.files)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubBase:
    """A model on the Hugging Face hub; nodes fetch it. The server pins `revision` to a commit when the job is submitted."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    source: Literal["hub"] = "hub"
    repo: Hub
    revision: Annotated[str, MinLen(1), MaxLen(200)] = "main"

    @property
    def id(self) -> str:
        return f"hub:{self.repo}@{self.revision}"


Base = FilesBase | HubBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a job asks of a node. Empty or 0: any. `gpu_memory_gb` of each of its `slots` GPUs; `trust` is the pool's tier."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    gpu: Annotated[str, MaxLen(200)] = ""
    gpu_memory_gb: Annotated[float, Ge(0), Le(10_000)] = 0
    slots: Annotated[int, Ge(1), Le(64)] = 1
    pool: Annotated[str, MaxLen(200)] = ""
    trust: Annotated[int, Ge(0), Le(9)] = 0


PLACING = ("attempts_max", "priority", "needs", "exact")
WATCHING = (
    "base_licence",
    "checkpoint_every_s",
    "checkpoint_every_steps",
    "sample_result",
    "sample_every_steps",
    "sample_every_s",
)


def parse_base(value: object) -> Base:
    """A base from JSON values. Raises `InvalidSpec`."""
    return parse_as(Base, value)


def base_to_json(base: Base) -> dict[str, Any]:
    return adapter(Base).dump_python(base)
