"""The spec of a job that trains a U-Net, its text encoders or a VAE on a data set, from scratch or from a base's weights."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, MaxLen, MinLen

from gangline.core.canonical import digest
from gangline.core.files import File, is_safe_path
from gangline.core.parsing import InvalidSpec, Problem, parse_as, to_json
from gangline.core.specs.fields import STEPS_MAX, FilesBase, StepCount
from gangline.core.specs.phases import Condition, DataRef, TrainingPhase, VaeLosses
from gangline.core.specs.settings import (
    BITS,
    RESULT,
    WATCH,
    WORKLOAD,
    Decides,
    Setting,
    SettingGroup,
    deciding,
    hashed,
    section,
)
from gangline.core.specs.shared import (
    CaptionSettings,
    ComputeSettings,
    ObjectiveSettings,
    OptimiserSettings,
    PlacementSettings,
    SampleSettings,
    SaveInterval,
    SaveSettings,
    StartSettings,
    TextEncoderRate,
)

ModelPart = Literal["unet", "text_encoders", "vae"]


@section(SettingGroup.MODEL)
class ModelSettings:
    """`base` is a folder in diffusers' layout, with the weights of all that is not `new`; what is, begins random as its config.json
    says."""

    part: Annotated[
        Literal["unet", "vae"], Setting("What is trained: unet, or vae.", RESULT | WORKLOAD, always=("scratch",))
    ] = "unet"
    new: Annotated[
        tuple[ModelPart, ...],
        MaxLen(3),
        Setting("Which of unet, text_encoders and vae begin random, as their config.json says.", RESULT),
    ] = ()
    train_text_encoders: Annotated[bool, Setting("Learn in the text encoders too.", RESULT | WORKLOAD)] = False
    text_encoder_learning_rate: TextEncoderRate = None
    freeze_token_embeddings: Annotated[
        bool,
        Setting(
            "Leave token embeddings as they are: a small data set has too few words to learn them from. New ones begin wider then.",
            RESULT,
        ),
    ] = False


@section(SettingGroup.SUBJECT)
class DataSettings:
    """Rows for which `held_out` is true are never trained on; the loss of `held_out_rows` of them is measured."""

    data: Annotated[
        tuple[DataRef, ...], MinLen(1), MaxLen(64), Setting("Data sets, each with its share of the mixture.", RESULT)
    ]
    phases: Annotated[
        tuple[TrainingPhase, ...],
        MinLen(1),
        MaxLen(64),
        Setting("Steps of one resolution, one phase after the other.", RESULT | WORKLOAD),
    ]
    held_out: Annotated[
        Condition,
        Setting("Rows for which this holds are never trained on: sha256 < '01' is one in 256.", RESULT),
    ] = ""
    held_out_rows: Annotated[
        int,
        Ge(1),
        Le(100_000),
        Setting("So many of them are measured, at noise and timesteps that stay: before and after.", RESULT),
    ] = 256
    held_out_every_steps: Annotated[StepCount | None, Setting("Steps between measurements on the way.", WATCH)] = None
    text_embeddings: Annotated[
        Literal["off", "required"],
        Setting(
            "required takes the column that `data encode --texts` made of each row's first caption; then no text encoder works in a "
            "step. They must be the base's, and stay as they are.",
            RESULT | WORKLOAD,
        ),
    ] = "off"


@section(SettingGroup.TRAINING)
class ScratchSpec(
    # settings stand in the opposite order: those of the last section first
    PlacementSettings,
    SampleSettings,
    SaveSettings,
    ComputeSettings,
    ObjectiveSettings,
    OptimiserSettings,
    CaptionSettings,
    DataSettings,
    ModelSettings,
    StartSettings,
):
    """Training of `part` on data sets, in phases. It gives a whole model in diffusers' layout.

    What a step sees depends on its number alone: not on how many GPUs share it, nor on how many samples fit into one at a time.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Annotated[
        Literal["scratch"],
        Setting("The kind of job.", RESULT | WORKLOAD, group=SettingGroup.FILES, always=("scratch",)),
    ] = "scratch"
    optimizer: Annotated[
        Literal["adamw", "adamw8bit"],
        Setting("AdamW, or AdamW with 8-bit states.", RESULT | WORKLOAD, always=("scratch",)),
    ] = "adamw"
    ema_from_step: Annotated[StepCount, Setting("The first step that is averaged.", RESULT)] = 1
    vae_losses: Annotated[
        VaeLosses,
        Setting(
            "What each error of a VAE counts, per number of the picture. There is no perceptual loss and no discriminator.",
            RESULT,
            group=SettingGroup.OBJECTIVE,
        ),
    ] = VaeLosses()
    parallel: Annotated[
        Literal["ddp", "fsdp"],
        Setting(
            "ddp, or fsdp, which leaves each GPU a part of weights, moments and average.",
            BITS | WORKLOAD,
            group=SettingGroup.CARD,
        ),
    ] = "ddp"
    checkpoint_every_s: SaveInterval = 600.0

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    @property
    def resolution(self) -> int:
        """Of the result."""
        return self.phases[-1].resolution

    @property
    def vae(self) -> None:
        """It is the base's own."""
        return

    @property
    def title(self) -> str:
        """For people, where they gave the job no name."""
        names = ", ".join(data.place.rstrip("/").rpartition("/")[2] for data in self.data)
        return f"{'VAE' if self.part == 'vae' else 'U-Net'} on {names}"

    @property
    def prompts_to_sample(self) -> tuple[str, ...]:
        return self.sample_prompts

    def input_files(self) -> dict[str, File]:
        """Every file of a run's `inputs/` that is stored by content, by its path below it."""
        return {f"{data.place}/{file.path}": file for data in self.data for file in data.files} | self.model_files()

    def model_files(self) -> dict[str, File]:
        """Those of them that are the model to start from."""
        files = self.base.files if isinstance(self.base, FilesBase) else ()
        return {f"base/{file.path}": file for file in files}


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


def moment_of_step(spec: ScratchSpec, step: int) -> Moment:
    """Return where `step` (from 1) stands. Each phase counts its samples from 0."""
    before = 0
    for number, phase in enumerate(spec.phases):
        if step <= before + phase.steps:
            seen = (step - before - 1) * phase.batch_size
            return Moment(step=step, number=number, phase=phase, first_sample=seen)
        before += phase.steps
    raise AssertionError(f"a run of {before} steps has no step {step}")


def burst_of_phase(spec: ScratchSpec, number: int) -> ScratchSpec:
    """Nothing but steps of that phase, without end, for how fast they are to be seen. They are averaged where most of the phase's
    are."""
    phase = spec.phases[number]
    last = sum(each.steps for each in spec.phases[: number + 1])
    averaged = 2 * (last - spec.ema_from_step) >= phase.steps
    return replace(
        spec,
        phases=(replace(phase, steps=STEPS_MAX),),
        warmup_steps=0 if phase.warmup_steps else spec.warmup_steps,
        held_out="",
        held_out_every_steps=None,
        ema_from_step=1 if averaged or not spec.ema_decay else STEPS_MAX,
        checkpoint_every_s=86_400.0,
        checkpoint_every_steps=None,
        sample_result=False,
        sample_every_steps=None,
        sample_every_s=None,
        sample_prompts=(),
    )


def wanted_rows(spec: ScratchSpec, data: DataRef, phase: TrainingPhase, *, held_out: bool) -> str:
    """The rows of a data set that a phase trains on, or those of them that are held out, as one condition. Rows of which it cannot
    be said whether they are held out are trained on."""
    conditions = [data.where, phase.where]
    if held_out:
        conditions.append(spec.held_out)
    elif spec.held_out:
        conditions.append(f"({spec.held_out}) is not true")
    return " and ".join(f"({condition})" for condition in conditions if condition)


def parse_scratch(value: object, *, options: bool = False) -> ScratchSpec:
    """A spec from JSON values, or from `options` of a command line. Raises `InvalidSpec` with every problem that it has."""
    spec: ScratchSpec = parse_as(ScratchSpec, value, options=options)
    problems = (*_of_phases(spec), *(problem for problem, wrong in _contradictions(spec).items() if wrong))
    if problems:
        raise InvalidSpec(problems)
    return spec


def _of_phases(spec: ScratchSpec) -> Iterator[Problem]:
    before = 0
    for number, phase in enumerate(spec.phases):
        if phase.warmup_steps and spec.warmup_steps > before:
            yield Problem(f"phases.{number}.warmup_steps", "is given, but the job's warmup_steps reach into the phase")
        before += phase.steps
        if (phase.microbatch or 0) > phase.batch_size:
            yield Problem(f"phases.{number}.microbatch", f"is more than the {phase.batch_size} samples of a step")
        if phase.batch_size % spec.needs.slots:
            gpus = f"is no multiple of the {spec.needs.slots} GPUs (needs.slots) that share it"
            yield Problem(f"phases.{number}.batch_size", gpus)
        if phase.warmup_steps > phase.steps:
            yield Problem(f"phases.{number}.warmup_steps", f"is more than the {phase.steps} steps of the phase")
        if spec.part == "vae" and phase.latents == "required":
            yield Problem(f"phases.{number}.latents", "are what a VAE learns to make: it is trained on pictures")


def _contradictions(spec: ScratchSpec) -> dict[Problem, bool]:
    places = [data.place for data in spec.data]
    text = spec.train_text_encoders
    return {
        Problem("data", "two of them have the same place: give it once, with the sum of their weights"): len(
            set(places)
        )
        < len(places),
        Problem("new", "a VAE that is not trained would stay noise: train it first, with part = vae"): "vae" in spec.new
        and spec.part == "unet",
        Problem("new", "holds what a VAE's training does not train"): spec.part == "vae"
        and bool({"unet", "text_encoders"} & {*spec.new}),
        Problem("new", "text encoders that are not trained would stay noise: set train_text_encoders"): "text_encoders"
        in spec.new
        and not text,
        Problem("train_text_encoders", "a VAE has none"): text and spec.part == "vae",
        Problem("text_embeddings", "are what encoders made that stay as they are: not with train_text_encoders"): text
        and spec.text_embeddings != "off",
        Problem("text_embeddings", "are not what a VAE sees"): spec.part == "vae" and spec.text_embeddings != "off",
        Problem("text_encoder_learning_rate", "is given, but train_text_encoders is not"): not text
        and spec.text_encoder_learning_rate is not None,
        Problem("freeze_token_embeddings", "is given, but train_text_encoders is not"): not text
        and spec.freeze_token_embeddings,
        Problem(
            "zero_terminal_snr", "needs v_prediction: from noise alone there is no noise to predict"
        ): spec.zero_terminal_snr and spec.prediction_type == "epsilon",
        Problem("warmup_steps", f"is more than the {spec.steps} steps of all phases"): spec.warmup_steps > spec.steps,
        Problem("schedule_floor", "is given, but the schedule is constant"): spec.schedule_floor > 0
        and spec.schedule == "constant",
        Problem("ema_from_step", "is given, but ema_decay is not"): spec.ema_from_step > 1 and spec.ema_decay is None,
        Problem("ema_from_step", f"is more than the {spec.steps} steps of all phases"): spec.ema_from_step > spec.steps,
        Problem("held_out_every_steps", "is given, but held_out is not"): spec.held_out_every_steps is not None
        and not spec.held_out,
        Problem(
            "optimizer", "adamw8bit has its state in blocks that fsdp would cut: take adamw, or ddp"
        ): spec.optimizer == "adamw8bit" and spec.parallel == "fsdp",
        Problem("data", "files are put below data/, and none are beside an s3:// address"): any(
            data.files and not (data.place.startswith("data/") and is_safe_path(data.place)) for data in spec.data
        ),
        Problem("sample_prompts", "a VAE draws nothing"): spec.part == "vae" and bool(spec.sample_prompts),
    }


def scratch_hash(spec: ScratchSpec) -> str:
    """Equal for jobs that ask for the same result, as `gangline.core.specs.spec.spec_hash`. How the work is shared out decides bits
    only, so it is in the fingerprint."""
    return digest(hashed(spec, RESULT) | {"phases": _phases(spec, RESULT)})


def scratch_workload(spec: ScratchSpec) -> str:
    """Equal for jobs that ask the same of a machine: memory, time per step."""
    value = to_json(spec)
    felt = {name: value[name] for name in deciding(type(spec), WORKLOAD)}
    if spec.text_embeddings == "off":
        del felt["text_embeddings"]  # it came later
    return digest(felt | {"base": spec.base.id, "slots": spec.needs.slots, "phases": _phases(spec, WORKLOAD)})[:16]


def _phases(spec: ScratchSpec, what: Decides) -> list[dict[str, Any]]:
    """Of each phase, the settings that decide it; its `warmup_steps`, which came later, where it has some."""
    names = deciding(TrainingPhase, what)
    return [
        {name: phase[name] for name in names if name != "warmup_steps" or phase[name]}
        for phase in to_json(spec)["phases"]
    ]
