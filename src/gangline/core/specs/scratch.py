"""The spec of a job that trains a U-Net, its text encoders or a VAE on a data set, from scratch or from a base's weights."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, MaxLen, MinLen

from gangline.core.canonical import digest
from gangline.core.files import File, is_safe_path
from gangline.core.parsing import InvalidSpec, Problem, parse_as, to_json
from gangline.core.specs.fields import STEPS_MAX, FilesBase, StepCount
from gangline.core.specs.phases import Condition, DataRef, TrainingPhase, VaeLosses
from gangline.core.specs.sections.continuing import ContinueSettings
from gangline.core.specs.sections.measuring import MeasureSettings
from gangline.core.specs.sections.objective import ObjectiveSettings, contradictions_of_objective
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.sections.shared import (
    CaptionSettings,
    ComputeSettings,
    OptimiserSettings,
    PlacementSettings,
    SampleSettings,
    SaveInterval,
    SaveSettings,
    StartSettings,
    TextEncoderRate,
    contradictions_of_schedule,
)
from gangline.core.specs.settings import (
    BITS,
    RESULT,
    WORKLOAD,
    Decides,
    Setting,
    SettingGroup,
    deciding,
    hashed,
    section,
)

ModelPart = Literal["unet", "text_encoders", "vae"]


@section(SettingGroup.MODEL)
class ModelSettings:
    """`base` is a folder in diffusers' layout, with the weights of all that is not `new`; what is, begins random as its config.json
    says."""

    part: Annotated[
        Literal["unet", "vae"], Setting("Train this part: unet or vae.", RESULT | WORKLOAD, always=("scratch",))
    ] = "unet"
    new: Annotated[
        tuple[ModelPart, ...],
        MaxLen(3),
        Setting(
            "Initialise these parts at random, as their config.json describes them: unet, text_encoders, vae.", RESULT
        ),
    ] = ()
    train_text_encoders: Annotated[bool, Setting("Train the text encoders too.", RESULT | WORKLOAD)] = False
    text_encoder_learning_rate: TextEncoderRate = None
    freeze_token_embeddings: Annotated[
        bool,
        Setting(
            "Do not train token embeddings: a small data set has too few words to learn them from. New embeddings are then "
            "initialised with a wider spread.",
            RESULT,
        ),
    ] = False


@section(SettingGroup.SUBJECT)
class DataSettings:
    """Rows for which `held_out` is true are never trained on; the loss of `held_out_rows` of them is measured."""

    data: Annotated[
        tuple[DataRef, ...], MinLen(1), MaxLen(64), Setting("Train on these data sets, mixed by their weights.", RESULT)
    ]
    phases: Annotated[
        tuple[TrainingPhase, ...],
        MinLen(1),
        MaxLen(64),
        Setting("Train in these phases, one after the other, each at one resolution.", RESULT | WORKLOAD),
    ]
    held_out: Annotated[
        Condition,
        Setting(
            "Never train on the rows for which this SQL condition holds; sha256 < '01' holds for one row in 256.",
            RESULT,
        ),
    ] = ""
    held_out_rows: Annotated[
        int,
        Ge(1),
        Le(100_000),
        Setting(
            "Measure the loss on this many held-out rows before and after training, always at the same noise and timesteps.",
            RESULT,
        ),
    ] = 256
    text_embeddings: Annotated[
        Literal["off", "required"],
        Setting(
            "`required` reads the text embeddings of each row's first caption, which `gangline data encode --texts` "
            "computes, so that no text encoder runs in a step. They must come from the base's text encoders, which must "
            "not be trained.",
            RESULT | WORKLOAD,
        ),
    ] = "off"


@section(SettingGroup.TRAINING)
class ScratchSpec(
    # settings stand in the opposite order: those of the last section first
    PlacementSettings,
    MeasureSettings,
    SampleSettings,
    ContinueSettings,
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
        Setting("This names the kind of job.", RESULT | WORKLOAD, group=SettingGroup.FILES, always=("scratch",)),
    ] = "scratch"
    optimizer: Annotated[
        Literal["adamw", "adamw8bit"],
        Setting("Optimise with AdamW, or with AdamW with 8-bit states.", RESULT | WORKLOAD, always=("scratch",)),
    ] = "adamw"
    ema_from_step: Annotated[StepCount, Setting("Start averaging the weights (ema_decay) at this step.", RESULT)] = 1
    vae_losses: Annotated[
        VaeLosses,
        Setting(
            "Weigh the errors of a VAE by these, per value of the image. There is no perceptual loss and no discriminator.",
            RESULT,
            group=SettingGroup.OBJECTIVE,
        ),
    ] = VaeLosses()
    parallel: Annotated[
        Literal["ddp", "fsdp"],
        Setting(
            "Share the batch between GPUs by ddp, or by fsdp, which also splits weights, optimiser state and averaged "
            "weights between them.",
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
    def prompts_to_sample(self) -> tuple[str | SamplePrompt, ...]:
        return self.sample_prompts

    def input_files(self) -> dict[str, File]:
        """Every file of a run's `inputs/` that is stored by content, by its path below it."""
        return {f"{data.place}/{file.path}": file for data in self.data for file in data.files} | self.model_files()

    def model_files(self) -> dict[str, File]:
        """Those of them that are the model to start from."""
        files = self.base.files if isinstance(self.base, FilesBase) else ()
        return {f"base/{file.path}": file for file in files}


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
        stop_when_worse=None,
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
    of_shared = contradictions_of_objective(spec) | contradictions_of_schedule(spec, spec.steps)
    contradictions = of_shared | _contradictions(spec)
    wrong = (problem for problem, holds in contradictions.items() if holds)
    problems = (*_of_phases(spec), *(_of_a_vae(spec) if spec.part == "vae" else ()), *wrong)
    if problems:
        raise InvalidSpec(problems)
    return spec


def _of_phases(spec: ScratchSpec) -> Iterator[Problem]:
    before = 0
    for number, phase in enumerate(spec.phases):
        if phase.warmup_steps and spec.warmup_steps > before:
            yield Problem(
                f"phases.{number}.warmup_steps", "overlaps with the job's warmup_steps: leave one of the two out"
            )
        before += phase.steps
        if (phase.microbatch or 0) > phase.batch_size:
            yield Problem(f"phases.{number}.microbatch", f"is more than the {phase.batch_size} samples of a step")
        if phase.batch_size % spec.needs.slots:
            gpus = f"is not a multiple of the {spec.needs.slots} GPUs (needs.slots) that share it"
            yield Problem(f"phases.{number}.batch_size", gpus)
        if phase.warmup_steps > phase.steps:
            yield Problem(f"phases.{number}.warmup_steps", f"is more than the {phase.steps} steps of the phase")
        if spec.part == "vae" and phase.latents == "required":
            yield Problem(
                f"phases.{number}.latents",
                "cannot be required with part = vae: a VAE trains on images, and learns to compute latents",
            )


def _of_a_vae(spec: ScratchSpec) -> Iterator[Problem]:
    if spec.loss_type == "huber":
        yield Problem("loss_type", "cannot be huber with part = vae: vae_losses says what a VAE minimises")
    for name in ("min_timestep", "max_timestep", "timestep_bias_strategy"):
        if getattr(spec, name) != getattr(ScratchSpec, name):
            yield Problem(name, "cannot be set with part = vae: a VAE has no timesteps")


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
        Problem("new", "names parts that part = vae does not train"): spec.part == "vae"
        and bool({"unet", "text_encoders"} & {*spec.new}),
        Problem("new", "text encoders that are not trained would stay noise: set train_text_encoders"): "text_encoders"
        in spec.new
        and not text,
        Problem("train_text_encoders", "cannot be set with part = vae: a VAE has no text encoder"): text
        and spec.part == "vae",
        Problem("text_embeddings", "need text encoders that are not trained: leave train_text_encoders out"): text
        and spec.text_embeddings != "off",
        Problem("text_embeddings", "cannot be used with part = vae: a VAE reads no text"): spec.part == "vae"
        and spec.text_embeddings != "off",
        Problem("text_encoder_learning_rate", "needs train_text_encoders"): not text
        and spec.text_encoder_learning_rate is not None,
        Problem("freeze_token_embeddings", "needs train_text_encoders"): not text and spec.freeze_token_embeddings,
        Problem(
            "zero_terminal_snr", "needs v_prediction: predicting the noise in pure noise teaches nothing"
        ): spec.zero_terminal_snr and spec.prediction_type == "epsilon",
        Problem("warmup_steps", f"is more than the {spec.steps} steps of all phases"): spec.warmup_steps > spec.steps,
        Problem("ema_from_step", "needs ema_decay"): spec.ema_from_step > 1 and spec.ema_decay is None,
        Problem("ema_from_step", f"is more than the {spec.steps} steps of all phases"): spec.ema_from_step > spec.steps,
        Problem("stop_when_worse", "needs held_out_every_steps"): spec.stop_when_worse is not None
        and spec.held_out_every_steps is None,
        Problem("held_out_every_steps", "needs held_out"): spec.held_out_every_steps is not None and not spec.held_out,
        Problem(
            "optimizer", "adamw8bit keeps its state in blocks, which fsdp would split: use adamw, or ddp"
        ): spec.optimizer == "adamw8bit" and spec.parallel == "fsdp",
        Problem(
            "data", "a data set with files has a place below data/, and one with an s3:// address has no files"
        ): any(data.files and not (data.place.startswith("data/") and is_safe_path(data.place)) for data in spec.data),
        Problem("sample_prompts", "cannot be set with part = vae: a VAE draws nothing"): spec.part == "vae"
        and bool(spec.sample_prompts),
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
