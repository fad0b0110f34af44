"""What a user asks for who teaches a model a subject or a style: a LoRA of photos."""

from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
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
from gangline.core.specs.sections.measuring import MeasureSettings
from gangline.core.specs.sections.objective import ObjectiveSettings, contradictions_of_objective
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.sections.shared import (
    ComputeSettings,
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
from gangline.core.specs.sections.subjects import FILE_FIELDS, Subject, by_folder
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
from gangline.core.words import counted


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
        others = len(self.all_subjects) - 1
        return self.prompt + (f" and {counted(others, 'other subject')}" if others else "")

    @cached_property
    def all_subjects(self) -> tuple[Subject, ...]:
        """The subjects in their order: those of `subjects`, or the one that the job's own settings describe."""
        defaults = {"class_images": self.class_images, "prior_weight": self.prior_weight}
        if not self.subjects:
            alone: dict[str, Any] = {"folder": "", "prompt": self.prompt, "class_prompt": self.class_prompt}
            alone |= defaults | {name: getattr(self, name) for name in FILE_FIELDS}
            return (Subject(**alone),)
        files = {name: by_folder(getattr(self, name)) for name in FILE_FIELDS}
        found = list[Subject]()
        for number, entry in enumerate(self.subjects):
            own: dict[str, Any] = {each.name: getattr(entry, each.name) for each in fields(entry)}
            own |= {name: value for name, value in defaults.items() if own[name] is None}
            own |= {name: tuple(known.get(entry.folder, ())) for name, known in files.items()}
            found.append(Subject(number=number, **own))
        return tuple(found)

    @property
    def preserves_classes(self) -> bool:
        """Whether images of a class are trained on, of one subject at least."""
        return any(subject.class_prompt for subject in self.all_subjects)

    @property
    def prompts_to_sample(self) -> tuple[str | SamplePrompt, ...]:
        return self.sample_prompts or tuple(subject.prompt for subject in self.all_subjects)

    @property
    def samples_per_step(self) -> int:
        """The subjects' images, and as many of their classes where those are preserved: fewer if a subject of the step has no class."""
        return self.batch_size * (2 if self.preserves_classes else 1)

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
        """How many pictures of all classes the base draws, besides photos of them."""
        return sum(subject.class_images_drawn for subject in self.all_subjects)

    def input_files(self) -> dict[str, File]:
        """Every file of a run's `inputs/` that is stored by content, by its path below it."""
        of_subjects: dict[str, tuple[File, ...]] = {name: getattr(self, name) for name in FILE_FIELDS}
        folders = of_subjects | {"init_lora": (self.init_lora,) if self.init_lora else ()}
        learned_from = {f"{folder}/{file.path}": file for folder, files in folders.items() for file in files}
        return learned_from | self.model_files()

    def model_files(self) -> dict[str, File]:
        """Those of them that are the model to start from."""
        models = {"base": self.base, "vae": self.vae}
        folders = {name: model.files for name, model in models.items() if isinstance(model, FilesBase)}
        return {f"{folder}/{file.path}": file for folder, files in folders.items() for file in files}


def parse_lora(value: object, *, options: bool = False) -> LoraSpec:
    """A spec from JSON values, or from `options` of a command line. With subjects `prompt` may be left out: it is the first one's. Raises
    `InvalidSpec` with every problem that it has."""
    spec: LoraSpec = parse_as(LoraSpec, _with_prompt(value), options=options)
    of_shared = contradictions_of_objective(spec) | contradictions_of_schedule(spec, spec.steps)
    contradictions = of_shared | _contradictions(spec) | why_not_together(spec, spec.optimizer)
    of_subjects = (*_doubles(spec), *_doubles_of_subjects(spec), *_outside(spec), *_of_classes(spec))
    problems = (*of_subjects, *(problem for problem, wrong in contradictions.items() if wrong))
    if problems:
        raise InvalidSpec(problems)
    return spec


def _with_prompt(value: object) -> object:
    if not isinstance(value, dict) or "prompt" in value:
        return value
    entries = value.get("subjects")
    first = entries[0] if isinstance(entries, list | tuple) and entries else None
    return value | {"prompt": first["prompt"]} if isinstance(first, dict) and "prompt" in first else value


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
    for name in FILE_FIELDS:
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


def _doubles_of_subjects(spec: LoraSpec) -> Iterator[Problem]:
    """Yield what two subjects have in common, or have beside those of the job: then nothing could say which counts."""
    before: dict[tuple[str, str], int] = {}
    for number, entry in enumerate(spec.subjects):
        for name, own in (("folder", entry.folder.casefold()), ("prompt", entry.prompt.casefold())):
            if (other := before.setdefault((name, own), number)) != number:
                what = f"is {getattr(entry, name)!r}, as that of subjects.{other}"
                yield Problem(f"subjects.{number}.{name}", f"{what}: give each subject its own")
    if spec.subjects and spec.prompt != spec.subjects[0].prompt:
        yield Problem("prompt", "must be left out with subjects: each has its own")
    if spec.subjects and spec.class_prompt:
        yield Problem("class_prompt", "must be left out with subjects: give it to each subject that has a class")


def _outside(spec: LoraSpec) -> Iterator[Problem]:
    """Yield subjects without photos, and the first file of each kind that belongs to none."""
    folders = [entry.folder for entry in spec.subjects]
    for subject in spec.all_subjects if folders else ():
        if not subject.photos:
            yield Problem(f"subjects.{subject.number}.folder", f"no photo to train on is in {subject.folder}/")
    for name in FILE_FIELDS if folders else ():
        outside = (file.path for file in getattr(spec, name) if file.path.partition("/")[0] not in folders)
        if path := next(outside, ""):
            yield Problem(name, f"{path} is in no subject's folder ({', '.join(folders)})")


def _of_classes(spec: LoraSpec) -> Iterator[Problem]:
    for subject in spec.all_subjects:
        if subject.class_photos and not subject.class_prompt:
            where = f"in {subject.folder}/ " if subject.folder else ""
            yield Problem("class_photos", f"{where}need a class_prompt: set it to what the photos show")


def _contradictions(spec: LoraSpec) -> dict[Problem, bool]:
    too_many = f"is more than the {spec.samples_per_step} samples of a step"
    return {
        Problem("mask", "must be `files` if there are masks, and only then"): (spec.mask == "files")
        != bool(spec.masks),
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
