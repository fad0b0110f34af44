"""What a user asks for who teaches a model a subject or a style: a LoRA of photos."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Interval, Le, Lt, MaxLen, MinLen, MultipleOf

from gangline.core.canonical import digest
from gangline.core.files import File
from gangline.core.parsing import InvalidSpec, Problem, parse_as, to_json
from gangline.core.spec_fields import PLACING, RESOLUTION_MAX, WATCHING, Base, FilesBase, Needs, Prompt

ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")


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
    resolution: Annotated[int, Interval(ge=16, le=RESOLUTION_MAX), MultipleOf(8)] = 1024
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
    needs: Needs = Needs()  # noqa: RUF009 - it is frozen
    exact: Literal["required", "preferred", "off"] = "preferred"

    @property
    def title(self) -> str:
        """For people, where they gave the job no name."""
        return self.prompt

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


def parse_lora(value: object) -> LoraSpec:
    """A spec from JSON values. Raises `InvalidSpec` with every problem that it has."""
    spec: LoraSpec = parse_as(LoraSpec, value)
    problems = (*_doubles(spec), *(problem for problem, wrong in _contradictions(spec).items() if wrong))
    if problems:
        raise InvalidSpec(problems)
    return spec


def _doubles(spec: LoraSpec) -> Iterator[Problem]:
    for name in ("photos", "held_out", "captions", "masks"):
        paths = [file.path for file in getattr(spec, name)]
        if len(set(paths)) < len(paths):
            yield Problem(name, "two files have the same name")
    trained_on = {file.sha256 for file in spec.photos}
    for file in spec.held_out:
        if file.sha256 in trained_on:
            yield Problem("held_out", f"{file.path} is also among the photos to train on")


def _contradictions(spec: LoraSpec) -> dict[Problem, bool]:
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


def lora_hash(spec: LoraSpec) -> str:
    """Equal for jobs that ask for the same result: settings of saving, retrying and placing are left out.

    A setting that came after the first release counts only where it is not as it is by default: jobs that run while
    Gangline is upgraded keep their hash, and so their checkpoints.
    """
    value = to_json(spec)
    changed = [field.name for field in fields(spec) if getattr(spec, field.name) != field.default]
    return digest({name: value[name] for name in {*ALWAYS_HASHED, *changed} - {*PLACING, *WATCHING}})


def lora_workload(spec: LoraSpec) -> str:
    """Equal for jobs that ask the same of a machine: memory, time per step. Not what the pictures show, nor how long."""
    left_out = {*PLACING, *WATCHING, *OF_THE_SUBJECT, "base", "vae"}
    value = {name: part for name, part in to_json(spec).items() if name not in left_out}
    value = {name: part for name, part in value.items() if not name.startswith("sample_")}
    return digest(value | {"base": spec.base.id})[:16]
