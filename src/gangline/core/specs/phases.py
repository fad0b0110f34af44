"""What a training on data sets is made of: the sets, phases of steps, and what a VAE's errors count."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen, Predicate

from gangline.core.display import Name, has_words, is_printable
from gangline.core.files import Files
from gangline.core.specs.fields import STEPS_MAX, LearningRate, Side, StepCount
from gangline.core.specs.settings import BITS, RESULT, WORKLOAD, Setting, SettingGroup, section


def is_condition(text: str) -> bool:
    """Return whether it shows itself, on however many lines."""
    return is_printable(text.replace("\n", " ").replace("\t", " "))


Condition = Annotated[str, MaxLen(2000), Predicate(is_condition)]


@section(SettingGroup.DATA)
class DataRef:
    """A data set as it was at submission: `place` is an s3:// address that nodes read, or a path below the run's inputs, where its
    `files` are put; a trainer that is started by hand takes any path. `id` and `version` are those of gangline.data.dataset."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    place: Annotated[
        str,
        MinLen(1),
        MaxLen(2000),
        Predicate(has_words),
        Setting(
            "Read the data set from here: an s3:// address, which nodes read themselves, or a local folder, which is "
            "uploaded.",
            RESULT,
        ),
    ]
    id: Annotated[Name, Setting("This identifies the data set; it is pinned when the job is submitted.", RESULT)]
    version: Annotated[
        int, Ge(1), Setting("This is the version of the data set; it is pinned when the job is submitted.", RESULT)
    ]
    files: Annotated[Files, MaxLen(100_000), Setting("These are the files of an uploaded folder.", RESULT)] = ()
    weight: Annotated[
        float, Gt(0), Le(1e9), Setting("Draw samples from this data set in proportion to this weight.", RESULT)
    ] = 1.0
    where: Annotated[Condition, Setting("Use only the rows for which this SQL condition holds.", RESULT)] = ""

    @property
    def is_remote(self) -> bool:
        return self.place.startswith("s3://")


@section(SettingGroup.PHASES)
class TrainingPhase:
    """Steps of one resolution."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    steps: Annotated[StepCount, Setting("Train for this many optimiser steps.", RESULT)]
    resolution: Annotated[
        Side, Setting("Train on squares whose side has this many pixels.", RESULT | WORKLOAD, unit="px")
    ]
    batch_size: Annotated[
        int,
        Ge(1),
        Le(1_000_000),
        Setting("Train on this many images per optimiser step, over all GPUs together.", RESULT | WORKLOAD),
    ]
    microbatch: Annotated[
        Annotated[int, Ge(1), Le(1_000_000)] | None,
        Setting(
            "Compute this many images at a time on each GPU and accumulate their gradients (default: as many as fit into "
            "memory).",
            BITS | WORKLOAD,
        ),
    ] = None
    learning_rate: Annotated[
        LearningRate | None, Setting("Use this learning rate in the phase (default: the job's).", RESULT)
    ] = None
    warmup_steps: Annotated[
        int,
        Ge(0),
        Le(STEPS_MAX),
        Setting(
            "Raise the learning rate from 0 over this many first steps of the phase. The job's own warmup_steps are the "
            "first of the whole run.",
            RESULT,
        ),
    ] = 0
    where: Annotated[
        Condition,
        Setting(
            "Use only the rows for which this SQL condition holds too, e.g. to skip images that are smaller than the "
            "resolution.",
            RESULT,
        ),
    ] = ""
    crop: Annotated[
        Literal["center", "random"],
        Setting("Crop each image at its center, or at one random place.", RESULT),
    ] = "center"
    latents: Annotated[
        Literal["auto", "required", "off"],
        Setting(
            "`auto` reads precomputed latents of this resolution if all data sets have them; `required` fails without "
            "them; `off` decodes, crops and encodes images in each step.",
            RESULT | WORKLOAD,
        ),
    ] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A step of a run: the phase that it is in, by its number, and how many samples of that phase were seen before it."""

    step: int
    number: int
    phase: TrainingPhase
    first_sample: int

    @property
    def is_last_of_phase(self) -> bool:
        return self.first_sample == (self.phase.steps - 1) * self.phase.batch_size


def moment_of_step(phases: tuple[TrainingPhase, ...], step: int) -> Moment:
    """Return where `step` (from 1) stands. Each phase counts its samples from 0."""
    before = 0
    for number, phase in enumerate(phases):
        if step <= before + phase.steps:
            seen = (step - before - 1) * phase.batch_size
            return Moment(step=step, number=number, phase=phase, first_sample=seen)
        before += phase.steps
    raise AssertionError(f"a run of {before} steps has no step {step}")


@section(SettingGroup.LOSSES)
class VaeLosses:
    """What each error of a VAE counts; all are per number of the picture. `kl` as that of latent diffusion (Rombach et al. 2021,
    appendix G). A perceptual loss (LPIPS) and a discriminator are not here: both need the weights of another network."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    l1: Annotated[
        float, Ge(0), Le(1e6), Setting("Weigh the absolute error of images by this; 0 switches it off.", RESULT)
    ] = 1.0
    mse: Annotated[
        float, Ge(0), Le(1e6), Setting("Weigh the squared error of images by this; 0 switches it off.", RESULT)
    ] = 1.0
    kl: Annotated[
        float,
        Ge(0),
        Le(1e6),
        Setting("Weigh the divergence of latents from a normal distribution by this; 0 switches it off.", RESULT),
    ] = 1e-6
