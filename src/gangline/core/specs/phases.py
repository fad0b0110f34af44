"""What a training on data sets is made of: the sets, phases of steps, and what a VAE's errors count."""

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
        Setting("An s3:// address that nodes read, or a folder to hand in.", RESULT),
    ]
    id: Annotated[Name, Setting("Which data set it is; pinned when the job is submitted.", RESULT)]
    version: Annotated[int, Ge(1), Setting("Its version; pinned when the job is submitted.", RESULT)]
    files: Annotated[Files, MaxLen(100_000), Setting("The files of a folder that was handed in.", RESULT)] = ()
    weight: Annotated[float, Gt(0), Le(1e9), Setting("Its share of all samples, by this weight.", RESULT)] = 1.0
    where: Annotated[Condition, Setting("Only rows for which this condition holds are used.", RESULT)] = ""

    @property
    def is_remote(self) -> bool:
        return self.place.startswith("s3://")


@section(SettingGroup.PHASES)
class TrainingPhase:
    """Steps of one resolution."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    steps: Annotated[StepCount, Setting("Optimiser steps.", RESULT)]
    resolution: Annotated[Side, Setting("Pixels of a square's side.", RESULT | WORKLOAD, unit="px")]
    batch_size: Annotated[
        int,
        Ge(1),
        Le(1_000_000),
        Setting("Images of one step, of all GPUs together, whatever their number.", RESULT | WORKLOAD),
    ]
    microbatch: Annotated[
        Annotated[int, Ge(1), Le(1_000_000)] | None,
        Setting(
            "How many of them a GPU computes at a time; without it, as many as fit into memory.",
            BITS | WORKLOAD,
        ),
    ] = None
    learning_rate: Annotated[LearningRate | None, Setting("Its own rate; without it, that of the job.", RESULT)] = None
    warmup_steps: Annotated[
        int,
        Ge(0),
        Le(STEPS_MAX),
        Setting(
            "Over so many of its first steps the rate rises from 0; the job's own are those of the whole run.", RESULT
        ),
    ] = 0
    where: Annotated[
        Condition,
        Setting("Leaves out more rows, such as pictures that are smaller than the phase.", RESULT),
    ] = ""
    crop: Annotated[
        Literal["center", "random"],
        Setting("Which part of a picture is taken: its center, or one random place.", RESULT),
    ] = "center"
    latents: Annotated[
        Literal["auto", "required", "off"],
        Setting(
            "auto takes the data sets' column of that resolution where all of them have it; required does not go on without; "
            "off decodes, cuts and encodes pictures in each step.",
            RESULT | WORKLOAD,
        ),
    ] = "auto"


@section(SettingGroup.LOSSES)
class VaeLosses:
    """What each error of a VAE counts; all are per number of the picture. `kl` as that of latent diffusion (Rombach et al. 2021,
    appendix G). A perceptual loss (LPIPS) and a discriminator are not here: both need the weights of another network."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    l1: Annotated[float, Ge(0), Le(1e6), Setting("The absolute error of pictures.", RESULT)] = 1.0
    mse: Annotated[float, Ge(0), Le(1e6), Setting("Their squared error.", RESULT)] = 1.0
    kl: Annotated[float, Ge(0), Le(1e6), Setting("How far latents are from a normal distribution.", RESULT)] = 1e-6
