"""What a user asks for who teaches a model a subject or a style: a LoRA of photos."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from gangline.core.canonical import digest
from gangline.core.display import Label
from gangline.core.files import File
from gangline.core.parsing import InvalidSpec, Problem, parse_as, to_json
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.sections.continuing import ContinueSettings
from gangline.core.specs.sections.low_rank import LATER, LowRankSettings, why_not_together
from gangline.core.specs.sections.objective import ObjectiveSettings, contradictions_of_objective
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.sections.shared import (
    ComputeSettings,
    MeasureSettings,
    OptimiserSettings,
    PlacementSettings,
    SampleSettings,
    SaveSettings,
    contradictions_of_schedule,
)
from gangline.core.specs.sections.subject import (
    CropSettings,
    LayerSettings,
    PriorPreservationSettings,
    SubjectCaptionSettings,
    SubjectSettings,
)
from gangline.core.specs.settings import (
    BITS,
    CLASS_IMAGES,
    RESULT,
    WATCH,
    WORKLOAD,
    Setting,
    SettingGroup,
    deciding,
    hashed,
    section,
)


@section(SettingGroup.TRAINING)
class LengthSettings:
    """One step is `batch_size` images, computed `microbatch` at a time: as many as fit where that is None. Which images a step sees,
    and how, never depends on it."""

    steps: Annotated[
        int,
        Ge(1),
        Le(10_000_000),
        Setting("Train for this many optimiser steps.", RESULT, always=("lora",), kohya=("max_train_steps", "steps")),
    ] = 500
    batch_size: Annotated[
        int,
        Ge(1),
        Le(4096),
        Setting(
            "Train on this many images per optimiser step.",
            RESULT | WORKLOAD,
            always=("lora",),
            kohya=("total_batch_size",),
        ),
    ] = 1
    microbatch: Annotated[
        Annotated[int, Ge(1), Le(4096)] | None,
        Setting(
            "Compute this many images of a batch at a time and accumulate their gradients (default: as many as fit into "
            "memory).",
            BITS | WORKLOAD,
        ),
    ] = None


@section(SettingGroup.FILES)
class LoraSpec(
    # settings stand in the opposite order: those of the last section first
    PlacementSettings,
    MeasureSettings,
    SampleSettings,
    ContinueSettings,
    SaveSettings,
    ComputeSettings,
    ObjectiveSettings,
    OptimiserSettings,
    LengthSettings,
    LowRankSettings,
    CropSettings,
    PriorPreservationSettings,
    LayerSettings,
    SubjectCaptionSettings,
    SubjectSettings,
):
    """A subject-driven (DreamBooth, Ruiz et al. 2022) LoRA (Hu et al. 2021) of an SDXL, SD 1.5 or SD 2 model.

    When checkpoints are taken and samples are rendered does not change the result.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Annotated[Literal["lora"], Setting("This names the kind of job.", RESULT | WORKLOAD, always=("lora",))] = (
        "lora"
    )
    base_precision: Annotated[
        Literal["full", "8bit", "4bit"],
        Setting(
            "Load the base's weights in full, or in 8 or 4 bits (QLoRA) for small GPUs.",
            CLASS_IMAGES | RESULT | WORKLOAD,
            group=SettingGroup.CARD,
        ),
    ] = "full"
    keep_loras: Annotated[
        bool,
        Setting(
            "Keep the LoRA of each step whose pictures are shown, beside them, to download while the job runs.",
            WATCH,
            group=SettingGroup.SAMPLES,
        ),
    ] = False
    output_name: Annotated[
        Label,
        Setting(
            "Use this as the LoRA's file name and title (default: the job's name, else the words of the prompt).",
            WATCH,
            group=SettingGroup.SAID,
        ),
    ] = ""

    @property
    def title(self) -> str:
        """For people, where they gave the job no name."""
        return self.prompt

    @property
    def prompts_to_sample(self) -> tuple[str | SamplePrompt, ...]:
        return self.sample_prompts or (self.prompt,)

    @property
    def samples_per_step(self) -> int:
        """The subject's images, and as many of its class where that is preserved."""
        return self.batch_size * (2 if self.class_prompt else 1)

    @property
    def phases(self) -> tuple[TrainingPhase, ...]:
        """It has only one."""
        phase = TrainingPhase(
            steps=self.steps,
            resolution=self.resolution,
            batch_size=self.samples_per_step,
            microbatch=self.microbatch,
        )
        return (phase,)

    @property
    def computed_under_autocast(self) -> bool:
        """Whether its layers compute with the float32 weights themselves: PEFT's (of a DoRA, and with dropout) and those of a LoKr."""
        return self.dora or self.dropout > 0 or self.algorithm == "lokr"

    @property
    def ema_from_step(self) -> int:
        """The average begins with the weights before the first step: those of a LoRA begin as the base."""
        return 0

    @property
    def parallel(self) -> Literal["ddp"]:
        return "ddp"

    @property
    def class_images_drawn(self) -> int:
        """How many pictures of its class the base draws, besides photos of it."""
        return max(0, self.class_images - len(self.class_photos)) if self.class_prompt else 0

    def input_files(self) -> dict[str, File]:
        """Every file of a run's `inputs/` that is stored by content, by its path below it."""
        folders = {
            "photos": self.photos,
            "held_out": self.held_out,
            "captions": self.captions,
            "class_photos": self.class_photos,
            "class_captions": self.class_captions,
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


def parse_lora(value: object, *, options: bool = False) -> LoraSpec:
    """A spec from JSON values, or from `options` of a command line. Raises `InvalidSpec` with every problem that it has."""
    spec: LoraSpec = parse_as(LoraSpec, value, options=options)
    of_shared = contradictions_of_objective(spec) | contradictions_of_schedule(spec, spec.steps)
    contradictions = of_shared | _contradictions(spec) | why_not_together(spec, spec.optimizer)
    problems = (*_doubles(spec), *(problem for problem, wrong in contradictions.items() if wrong))
    if problems:
        raise InvalidSpec(problems)
    return spec


def refuse_idle_gpus(spec: LoraSpec) -> None:
    """Raise `InvalidSpec` where a new job asks for GPUs that would stand idle and be billed. Stored specs may: older versions took them."""
    if spec.needs.slots > 1:
        raise InvalidSpec(
            (
                Problem(
                    "needs.slots",
                    f"is {spec.needs.slots}, but a LoRA trains on one GPU: the others would idle and be billed",
                ),
            ),
            hint="leave slots out; to get a GPU with more memory, use --gpu-memory-gb or --gpu",
        )


def _doubles(spec: LoraSpec) -> Iterator[Problem]:
    for name in ("photos", "held_out", "captions", "class_photos", "class_captions", "masks"):
        paths = [file.path for file in getattr(spec, name)]
        if len(set(paths)) < len(paths):
            yield Problem(name, "two files have the same name: rename one of them")
    trained_on = {file.sha256 for file in spec.photos}
    if spec.held_out_every_steps and not spec.held_out:
        yield Problem("held_out_every_steps", "needs held-out photos (--hold-out)")
    if spec.stop_when_worse and not spec.held_out_every_steps:
        yield Problem("stop_when_worse", "needs held_out_every_steps")
    for file in spec.held_out:
        if file.sha256 in trained_on:
            yield Problem("held_out", f"{file.path} is also a training photo: remove it from one of the two")


def _contradictions(spec: LoraSpec) -> dict[Problem, bool]:
    too_many = f"is more than the {spec.samples_per_step} samples of a step"
    return {
        Problem("mask", "must be `files` if there are masks, and only then"): (spec.mask == "files")
        != bool(spec.masks),
        Problem("class_photos", "need a class_prompt: set it to what the photos show"): bool(spec.class_photos)
        and not spec.class_prompt,
        Problem("microbatch", too_many): (spec.microbatch or 0) > spec.samples_per_step,
        Problem("adam_beta1", "is 0, but schedule_free averages the weights by it: set it above 0"): spec.adam_beta1
        == 0
        and spec.optimizer == "schedule_free",
        Problem("schedule", "must be constant with schedule_free, which supports warmup_steps alone"): spec.schedule
        != "constant"
        and spec.optimizer == "schedule_free",
    }


def lora_hash(spec: LoraSpec) -> str:
    """Equal for jobs that ask for the same result, in the same pieces: settings of saving, retrying and placing are left out."""
    return digest(hashed(spec, RESULT | BITS))


def lora_workload(spec: LoraSpec) -> str:
    """Equal for jobs that ask the same of a machine: memory, time per step. Not what the pictures show, nor how long."""
    value, changed = to_json(spec), {field.name for field in fields(spec) if getattr(spec, field.name) != field.default}
    felt = {name: value[name] for name in deciding(type(spec), WORKLOAD) if name not in LATER or name in changed}
    # No machine feels guidance_scale, but released keys have it.
    return digest(felt | {"base": spec.base.id, "guidance_scale": spec.guidance_scale})[:16]
