"""What specs of several kinds are made of: the model to start from, what is asked of a node, words."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Interval, Le, MaxLen, MinLen, MultipleOf, Predicate

from gangline.core.display import Label, has_words
from gangline.core.files import Files, digest_of_files
from gangline.core.parsing import Checked, adapter, parse_as
from gangline.core.server.isolation import IsolationLevel
from gangline.core.specs.settings import PLACE, WORKLOAD, Setting, SettingGroup, section

Prompt = Annotated[str, MinLen(1), MaxLen(2000), Predicate(has_words)]
STEPS_MAX = 100_000_000
StepCount = Annotated[int, Ge(1), Le(STEPS_MAX)]
LearningRate = Annotated[float, Gt(0), Le(10)]
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]
SampleSeeds = Annotated[tuple[Seed, ...], MinLen(1), MaxLen(16)]
SamplerSteps = Annotated[int, Ge(1), Le(1000)]
GuidanceScale = Annotated[float, Ge(0), Le(100)]
RESOLUTION_MAX = 4096
Side = Annotated[int, Interval(ge=16, le=RESOLUTION_MAX), MultipleOf(8)]
"""Of a picture, in pixels."""
HUB_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
HUB_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")


def _why_no_repo(repo: str) -> str:
    """The hub's own rule, so that a name is never a path that leads elsewhere."""
    parts = repo.split("/")
    good = len(parts) <= 2 and all(HUB_NAME.fullmatch(part) for part in parts) and not re.search(r"\.\.|--", repo)
    said = (
        "is not the name of a model on the hub: write ORGANISATION/NAME or NAME, each of at most 96 letters, digits, "
        "`-`, `_` and `.`"
    )
    return "" if good else f"{said}, without `--` or `..`"


def _why_no_revision(revision: str) -> str:
    good = HUB_REVISION.fullmatch(revision) and ".." not in revision
    return (
        "" if good else "is not a revision: write a branch, tag or commit, of letters, digits and `-_./+`, without `..`"
    )


HubId = Annotated[str, MinLen(3), MaxLen(200), Checked(_why_no_repo)]
Revision = Annotated[str, MinLen(1), MaxLen(200), Checked(_why_no_revision)]
Sampler = Literal["ddim", "euler", "euler_a", "dpm++"]
Prediction = Literal["epsilon", "v_prediction"]
"""What a U-Net predicts: the noise, or the velocity (Salimans & Ho 2022)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesBase:
    """A model whose files were uploaded, by content: a folder in diffusers' layout, or one file that holds all of it."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    source: Literal["files"] = "files"
    files: Annotated[Files, MinLen(1), MaxLen(1000)]

    @property
    def id(self) -> str:
        return f"files:{digest_of_files(self.files)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubBase:
    """A model on the Hugging Face hub; nodes fetch it. The server pins `revision` to a commit when the job is submitted."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    source: Literal["hub"] = "hub"
    repo: HubId
    revision: Revision = "main"

    @property
    def id(self) -> str:
        return f"hub:{self.repo}@{self.revision}"


Base = FilesBase | HubBase


@section(SettingGroup.NODE)
class Needs:
    """What a job asks of a node. Empty or 0: any. `gpu_memory_gb` of each of its `slots` GPUs; `trust` is the pool's tier."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    gpu: Annotated[
        Label, Setting("Run only on this class of GPU, named as `gangline nodes ls` shows it (default: any).", PLACE)
    ] = ""
    gpu_memory_gb: Annotated[
        float,
        Ge(0),
        Le(10_000),
        Setting("Run only on GPUs with at least this much memory; 0 accepts any.", PLACE, unit="GB"),
    ] = 0
    slots: Annotated[
        int, Ge(1), Le(64), Setting("Train on this many GPUs of one node. A LoRA trains on one.", PLACE | WORKLOAD)
    ] = 1
    pool: Annotated[Label, Setting("Run only in this pool (default: any).", PLACE)] = ""
    trust: Annotated[
        int, Ge(0), Le(9), Setting("Run only on nodes with at least this trust tier, from 0 to 9.", PLACE)
    ] = 0
    isolation: Annotated[
        IsolationLevel,
        Setting(
            "Run only where a run is kept apart from its node at least so far: none, uid (it has a user of its own) or sandbox.",
            PLACE,
        ),
    ] = "none"


def parse_base(value: object) -> Base:
    """A base from JSON values. Raises `InvalidSpec`."""
    return parse_as(Base, value)


def base_to_json(base: Base) -> dict[str, Any]:
    return adapter(Base).dump_python(base)
