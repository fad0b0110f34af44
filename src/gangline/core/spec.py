"""What a user asks for. A spec is complete: with its inputs it gives the result, whoever runs it and however often it is interrupted."""

import json
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Interval, Le, Lt, MaxLen, MinLen, MultipleOf, Predicate

from gangline.core.canonical import digest
from gangline.core.errors import BadInput
from gangline.core.files import File, digest_of_files

ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")


def has_words(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()


Prompt = Annotated[str, MinLen(1), MaxLen(2000), Predicate(has_words)]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSpec:
    """A subject-driven (DreamBooth, Ruiz et al. 2022) LoRA (Hu et al. 2021) of an SDXL, SD 1.5 or SD 2 model.

    One step is `batch_size` images, computed `microbatch` at a time: as many as fit where that is None. Which images a
    step sees, and how, never depends on it. When checkpoints are taken and samples are rendered does not change the result.
    docs/training.md has a sentence for each setting.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["lora"] = "lora"

    # What it starts from. `vae` goes in the place of the base's own; `init_lora` is a LoRA to go on from.
    base: Base
    vae: Base | None = None
    init_lora: File | None = None
    base_licence: Annotated[str, MaxLen(200)] = ""

    # What it learns. `held_out` photos are never trained on: their loss at fixed noise is measured before and after.
    # `captions` are .txt files named as their photos, and metadata.jsonl; photos without a caption have the prompt.
    photos: Annotated[tuple[File, ...], MinLen(1), MaxLen(10_000)]
    held_out: Annotated[tuple[File, ...], MaxLen(1000)] = ()
    captions: Annotated[tuple[File, ...], MaxLen(10_000)] = ()
    masks: Annotated[tuple[File, ...], MaxLen(10_000)] = ()
    mask: Literal["none", "alpha", "files"] = "none"
    prompt: Prompt
    caption_drop: Annotated[float, Interval(ge=0, le=1)] = 0.0
    caption_shuffles: Annotated[int, Interval(ge=0, le=64)] = 0
    caption_keep: Annotated[int, Interval(ge=0, le=1000)] = 1

    # Prior preservation (Ruiz et al. 2022, §4.2): `class_images` pictures that the base makes of `class_prompt`.
    class_prompt: Prompt | None = None
    class_images: Annotated[int, Interval(ge=1, le=10_000)] = 100
    prior_weight: Annotated[float, Ge(0), Le(100)] = 1.0

    # How pictures are cut: `crops` places for each where `crop` is random, and each of them mirrored too with `flip`.
    resolution: Annotated[int, Interval(ge=16, le=4096), MultipleOf(8)] = 1024
    aspect_buckets: bool = False
    crop: Literal["center", "random"] = "center"
    crops: Annotated[int, Interval(ge=1, le=64)] = 4
    flip: bool = False

    # The low-rank weights.
    rank: Annotated[int, Ge(1), Le(1024)] = 16
    alpha: Annotated[float, Gt(0), Le(4096)] = 16.0
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    dora: bool = False
    target_modules: Annotated[tuple[Annotated[str, MinLen(1), MaxLen(100)], ...], MinLen(1), MaxLen(100)] = ATTENTION
    train_text_encoder: bool = False
    text_encoder_learning_rate: Annotated[float, Gt(0), Le(1)] | None = None

    # How they are trained.
    steps: Annotated[int, Ge(1), Le(10_000_000)] = 500
    batch_size: Annotated[int, Ge(1), Le(4096)] = 1
    microbatch: Annotated[int, Ge(1), Le(4096)] | None = None
    optimizer: Literal["adamw", "adamw8bit", "prodigy", "schedule_free"] = "adamw"
    learning_rate: Annotated[float, Gt(0), Le(10)] = 1e-4
    weight_decay: Annotated[float, Ge(0), Le(1)] = 1e-2
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Ge(0), Le(10_000_000)] = 0
    gradient_norm_max: Annotated[float, Gt(0), Le(1e6)] = 1.0
    ema_decay: Annotated[float, Gt(0), Lt(1)] | None = None

    # What is minimised.
    prediction_type: Literal["auto", "epsilon", "v_prediction"] = "auto"
    min_snr_gamma: Annotated[float, Gt(0), Le(1000)] | None = None
    noise_offset: Annotated[float, Ge(0), Le(1)] = 0.0
    zero_terminal_snr: bool = False

    # How a card manages. What changes the bits is in the checkpoint's fingerprint.
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    base_precision: Literal["full", "8bit", "4bit"] = "full"
    gradient_checkpointing: bool = False
    compile: bool = False

    seed: Annotated[int, Ge(0), Le(2**63 - 1)] = 0
    checkpoint_every_s: Annotated[float, Gt(0), Le(86_400)] = 60.0
    checkpoint_every_steps: Annotated[int, Ge(1), Le(10_000_000)] | None = None

    # Pictures to look at: of the result beside the base, and of steps on the way.
    sample_result: bool = True
    sample_every_steps: Annotated[int, Ge(1), Le(10_000_000)] | None = None
    sample_every_s: Annotated[float, Ge(10), Le(86_400)] | None = None
    sample_prompts: Annotated[tuple[Prompt, ...], MaxLen(64)] = ()
    sample_seeds: Annotated[tuple[Annotated[int, Ge(0), Le(2**63 - 1)], ...], MinLen(1), MaxLen(16)] = (1, 2)
    sample_steps: Annotated[int, Ge(1), Le(1000)] = 30
    sample_sampler: Literal["ddim", "euler", "euler_a", "dpm++"] = "ddim"
    guidance_scale: Annotated[float, Ge(0), Le(100)] = 5.0

    attempts_max: Annotated[int, Ge(1), Le(100)] = 3
    priority: Annotated[int, Ge(-1000), Le(1000)] = 0
    needs: Needs = Needs()
    exact: Literal["required", "preferred", "off"] = "preferred"

    @property
    def prompts_to_sample(self) -> tuple[str, ...]:
        return self.sample_prompts or (self.prompt,)

    @property
    def samples_per_step(self) -> int:
        """The subject's images, and as many of its class where that is preserved."""
        return self.batch_size * (2 if self.class_prompt else 1)

    def input_files(self) -> dict[str, File]:
        """Every file of a run's `inputs/` that is stored by content, by its path below it."""
        folders = {
            "photos": self.photos,
            "held_out": self.held_out,
            "captions": self.captions,
            "masks": self.masks,
            "init_lora": (self.init_lora,) if self.init_lora else (),
        }
        learned_from = {f"{folder}/{file.path}": file for folder, files in folders.items() for file in files}
        return learned_from | self.model_files()

    def model_files(self) -> dict[str, File]:
        """Those of them that are the model to start from."""
        models = {"base": self.base, "vae": self.vae}
        folders = {name: model.files for name, model in models.items() if isinstance(model, FilesBase)}
        return {f"{folder}/{file.path}": file for folder, files in folders.items() for file in files}


Spec = LoraSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """Pictures of what a training job has learned: `of` its spec, after `step` steps. Nobody submits it: the server makes it when
    `checkpoint` of `job` is committed, whose weights its run has in `inputs/checkpoint`. Without one it shows the job's result, in
    `inputs/result`, beside what the base alone makes of the same prompts and seeds."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["sample"] = "sample"
    of: LoraSpec
    job: str
    checkpoint: str | None
    step: int

    @property
    def pictures(self) -> int:
        return len(self.of.prompts_to_sample) * len(self.of.sample_seeds) * (1 if self.checkpoint else 2)

    def input_files(self) -> dict[str, File]:
        """As those of a `LoraSpec`."""
        return self.of.model_files()


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
    return _checked(parse_as(Spec, value))


def parse_task(value: dict[str, Any]) -> Spec | SampleSpec:
    """What a node is given to do: a spec that was submitted, or one that the server made. Raises `InvalidSpec`."""
    return parse_as(SampleSpec, value) if value["kind"] == "sample" else parse_spec(value)


def parse_base(value: object) -> Base:
    """A base from JSON values. Raises `InvalidSpec`."""
    return parse_as(Base, value)


def parse_as(kind: Any, value: object) -> Any:
    """JSON values as a value of this type. Raises `InvalidSpec` with every field that is none."""
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise InvalidSpec(tuple(_problem(dict(found)) for found in error.errors())) from None


def told_briefly(task: dict[str, Any]) -> dict[str, Any]:
    """A spec's JSON without the settings that are as they are by default: so a node that is older than a setting understands every
    job that does not use it. A default, once released, stays."""
    if task["kind"] == "sample":
        return task | {"of": told_briefly(task["of"])}
    return {name: value for name, value in task.items() if name == "kind" or value != _defaults().get(name, MISSING)}


def told_whole(task: dict[str, Any]) -> dict[str, Any]:
    """What `told_briefly` left out, as this version has it; what this version does not know stays."""
    return task | {"of": told_whole(task["of"])} if task["kind"] == "sample" else _defaults() | task


@cache
def _defaults() -> dict[str, Any]:
    """As JSON has them."""
    found = {field.name: field.default for field in fields(LoraSpec) if field.default is not MISSING}
    return json.loads(json.dumps(found, default=asdict))


def base_to_json(base: Base) -> dict[str, Any]:
    return _adapter(Base).dump_python(base)


@cache
def _adapter(of: Any) -> Any:
    from pydantic import TypeAdapter  # 0.2 s that `--help` need not pay

    return TypeAdapter(of)


def _problem(found: dict[str, Any]) -> Problem:
    field_name = ".".join(str(part) for part in found["loc"]) or "spec"
    message = str(found["msg"])
    if found["type"] == "predicate_failed":
        message = "is not acceptable here (control characters, empty, or a path that leaves its folder)"
    return Problem(field_name, message[0].lower() + message[1:])


def _checked(spec: Spec) -> Spec:
    """What no single field shows."""
    problems = (*_doubles(spec), *(problem for problem, wrong in _contradictions(spec).items() if wrong))
    if problems:
        raise InvalidSpec(problems)
    return spec


def _doubles(spec: Spec) -> Iterator[Problem]:
    for name in ("photos", "held_out", "captions", "masks"):
        paths = [file.path for file in getattr(spec, name)]
        if len(set(paths)) < len(paths):
            yield Problem(name, "two files have the same name")
    trained_on = {file.sha256 for file in spec.photos}
    for file in spec.held_out:
        if file.sha256 in trained_on:
            yield Problem("held_out", f"{file.path} is also among the photos to train on")


def _contradictions(spec: Spec) -> dict[Problem, bool]:
    own_rate = spec.text_encoder_learning_rate is not None
    too_many = f"is more than the {spec.samples_per_step} samples of a step"
    return {
        Problem("mask", "is `files` where there are masks, and only there"): (spec.mask == "files") != bool(spec.masks),
        Problem("microbatch", too_many): (spec.microbatch or 0) > spec.samples_per_step,
        Problem("text_encoder_learning_rate", "is given, but train_text_encoder is not"): own_rate
        and not spec.train_text_encoder,
        Problem("text_encoder_learning_rate", "prodigy finds one rate for all"): own_rate
        and spec.optimizer == "prodigy",
        Problem("schedule", "schedule_free has none but warmup_steps"): spec.schedule != "constant"
        and spec.optimizer == "schedule_free",
    }


def spec_to_json(spec: Any) -> dict[str, Any]:
    """Of a spec of any kind."""
    return _adapter(type(spec)).dump_python(spec)


PLACING = ("attempts_max", "priority", "needs", "exact")
WATCHING = (
    "base_licence",
    "checkpoint_every_s",
    "checkpoint_every_steps",
    "sample_result",
    "sample_every_steps",
    "sample_every_s",
)
OF_THE_SUBJECT = (
    "photos",
    "held_out",
    "captions",
    "masks",
    "init_lora",
    "prompt",
    "class_prompt",
    "class_images",
    "prior_weight",
    "caption_drop",
    "caption_shuffles",
    "caption_keep",
    "crop",
    "crops",
    "flip",
    "seed",
    "steps",
    "learning_rate",
    "text_encoder_learning_rate",
    "weight_decay",
    "schedule",
    "warmup_steps",
    "gradient_norm_max",
    "ema_decay",
    "alpha",
    "min_snr_gamma",
    "noise_offset",
    "zero_terminal_snr",
    "prediction_type",
)


ALWAYS_HASHED = (
    "kind",
    "base",
    "photos",
    "held_out",
    "prompt",
    "steps",
    "resolution",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "gradient_norm_max",
    "rank",
    "alpha",
    "target_modules",
    "precision",
    "seed",
    "sample_prompts",
    "sample_seeds",
    "sample_steps",
    "guidance_scale",
)


def spec_hash(spec: Spec) -> str:
    """Equal for jobs that ask for the same result: settings of saving, retrying and placing are left out.

    A setting that came after the first release counts only where it is not as it is by default: jobs that run while
    Gangline is upgraded keep their hash, and so their checkpoints.
    """
    value = spec_to_json(spec)
    changed = [field.name for field in fields(spec) if getattr(spec, field.name) != field.default]
    return digest({name: value[name] for name in {*ALWAYS_HASHED, *changed} - {*PLACING, *WATCHING}})


def workload(spec: Spec) -> str:
    """Equal for jobs that ask the same of a machine: memory, time per step. Not what the pictures show, nor how long."""
    left_out = {*PLACING, *WATCHING, *OF_THE_SUBJECT, "base", "vae"}
    value = {name: part for name, part in spec_to_json(spec).items() if name not in left_out}
    value = {name: part for name, part in value.items() if not name.startswith("sample_")}
    return digest(value | {"base": spec.base.id})[:16]
