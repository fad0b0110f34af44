"""What a user asks for. A spec is complete: with its inputs it gives the result, whoever runs it and however often it is interrupted."""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Interval, Le, MaxLen, MinLen, MultipleOf, Predicate

from gangline.core.canonical import digest
from gangline.core.errors import BadInput
from gangline.core.files import File, digest_of_files

ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")


def has_words(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()


Prompt = Annotated[str, MinLen(1), MaxLen(2000), Predicate(has_words)]
Hub = Annotated[str, MinLen(3), MaxLen(200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryBase:
    """A model in diffusers' layout whose files were handed in, by content."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a job asks of a node. Empty or 0: any. `gpu_memory_gb` of each of its `slots` GPUs; `trust` is the pool's tier."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    gpu: Annotated[str, MaxLen(200)] = ""
    gpu_memory_gb: Annotated[float, Ge(0), Le(10_000)] = 0
    slots: Annotated[int, Ge(1), Le(64)] = 1
    pool: Annotated[str, MaxLen(200)] = ""
    trust: Annotated[int, Ge(0), Le(9)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSpec:
    """A subject-driven (DreamBooth, Ruiz et al. 2022) LoRA (Hu et al. 2021) of the U-Net of an SDXL-architecture model.

    `held_out` photos are never trained on: their loss at fixed noise and timesteps is measured
    before and after. A checkpoint is due after `checkpoint_every_s` seconds at the latest, and where
    `checkpoint_every_steps` is given after so many steps too; when they are taken never changes the result.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["lora"] = "lora"
    base: DirectoryBase | HubBase
    photos: Annotated[tuple[File, ...], MinLen(1), MaxLen(10_000)]
    held_out: Annotated[tuple[File, ...], MaxLen(1000)] = ()
    prompt: Prompt
    steps: Annotated[int, Ge(1), Le(10_000_000)] = 500
    resolution: Annotated[int, Interval(ge=16, le=4096), MultipleOf(8)] = 1024
    batch_size: Annotated[int, Ge(1), Le(4096)] = 1
    learning_rate: Annotated[float, Gt(0), Le(1)] = 1e-4
    weight_decay: Annotated[float, Ge(0), Le(1)] = 1e-2
    gradient_norm_max: Annotated[float, Gt(0), Le(1e6)] = 1.0
    rank: Annotated[int, Ge(1), Le(1024)] = 16
    alpha: Annotated[float, Gt(0), Le(4096)] = 16.0
    target_modules: Annotated[tuple[Annotated[str, MinLen(1), MaxLen(100)], ...], MinLen(1), MaxLen(100)] = ATTENTION
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    seed: Annotated[int, Ge(0), Le(2**63 - 1)] = 0
    checkpoint_every_s: Annotated[float, Gt(0), Le(86_400)] = 60.0
    checkpoint_every_steps: Annotated[int, Ge(1), Le(10_000_000)] | None = None
    sample_prompts: Annotated[tuple[Prompt, ...], MaxLen(64)] = ()
    sample_seeds: Annotated[tuple[Annotated[int, Ge(0), Le(2**63 - 1)], ...], MinLen(1), MaxLen(16)] = (1, 2)
    sample_steps: Annotated[int, Ge(1), Le(1000)] = 30
    guidance_scale: Annotated[float, Ge(0), Le(100)] = 5.0
    attempts_max: Annotated[int, Ge(1), Le(100)] = 3
    priority: Annotated[int, Ge(-1000), Le(1000)] = 0
    needs: Needs = Needs()
    exact: Literal["required", "preferred", "off"] = "preferred"

    @property
    def prompts_to_sample(self) -> tuple[str, ...]:
        return self.sample_prompts or (self.prompt,)

    def input_files(self) -> dict[str, File]:
        """Every file of a run's `inputs/` that is stored by content, by its path below it."""
        folders = {"photos": self.photos, "held_out": self.held_out}
        if isinstance(self.base, DirectoryBase):
            folders["base"] = self.base.files
        return {f"{folder}/{file.path}": file for folder, files in folders.items() for file in files}


Spec = LoraSpec


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a spec: which field, and why."""

    field: str
    message: str


class InvalidSpec(BadInput):
    """Every problem of a spec, at once."""

    code = "invalid-spec"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in problems))
        self.problems = problems


def parse_spec(value: object) -> Spec:
    """A spec from JSON values. Raises `InvalidSpec` with every problem that it has."""
    from pydantic import ValidationError

    try:
        spec = _adapter().validate_python(value)
    except ValidationError as error:
        raise InvalidSpec(tuple(_problem(dict(found)) for found in error.errors())) from None
    return _checked(spec)


@cache
def _adapter() -> Any:
    from pydantic import TypeAdapter  # 0.2 s that `--help` need not pay

    return TypeAdapter(Spec)


def _problem(found: dict[str, Any]) -> Problem:
    field_name = ".".join(str(part) for part in found["loc"]) or "spec"
    message = str(found["msg"])
    if found["type"] == "predicate_failed":
        message = "is not acceptable here (control characters, empty, or a path that leaves its folder)"
    return Problem(field_name, message[0].lower() + message[1:])


def _checked(spec: Spec) -> Spec:
    """What no single field shows."""
    problems: list[Problem] = []
    for name in ("photos", "held_out"):
        paths = [file.path for file in getattr(spec, name)]
        if len(set(paths)) < len(paths):
            problems.append(Problem(name, "two files have the same name"))
    trained_on = {file.sha256 for file in spec.photos}
    for file in spec.held_out:
        if file.sha256 in trained_on:
            problems.append(Problem("held_out", f"{file.path} is also among the photos to train on"))
    if problems:
        raise InvalidSpec(tuple(problems))
    return spec


def spec_to_json(spec: Spec) -> dict[str, Any]:
    return _adapter().dump_python(spec)


NOT_OF_THE_RESULT = ("checkpoint_every_s", "checkpoint_every_steps", "attempts_max", "priority", "needs", "exact")
OF_THE_SUBJECT = (
    "photos",
    "held_out",
    "prompt",
    "seed",
    "steps",
    "learning_rate",
    "weight_decay",
    "gradient_norm_max",
    "alpha",
)


def spec_hash(spec: Spec) -> str:
    """Equal for jobs that ask for the same result: settings of saving, retrying and placing are left out."""
    value = spec_to_json(spec)
    for name in NOT_OF_THE_RESULT:
        del value[name]
    return digest(value)


def workload(spec: Spec) -> str:
    """Equal for jobs that ask the same of a machine: memory, time per step. Not what the pictures show, nor how long."""
    value = {name: part for name, part in spec_to_json(spec).items() if not name.startswith("sample_")}
    for name in (*NOT_OF_THE_RESULT, *OF_THE_SUBJECT):
        del value[name]
    return digest(value | {"base": spec.base.id})[:16]
