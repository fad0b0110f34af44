"""What a user asks for who trains a U-Net, its text encoders or a VAE on a data set, from nothing or from a base's weights."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Interval, Le, Lt, MaxLen, MinLen, MultipleOf

from gangline.core.canonical import digest
from gangline.core.files import File, is_safe_path
from gangline.core.parsing import InvalidSpec, Problem, parse_as, to_json
from gangline.core.spec_fields import PLACING, RESOLUTION_MAX, WATCHING, Base, FilesBase, Needs, Prompt

Part = Literal["unet", "text_encoders", "vae"]
Condition = Annotated[str, MaxLen(2000)]
Rate = Annotated[float, Gt(0), Le(10)]
STEPS_MAX = 100_000_000
Step = Annotated[int, Ge(1), Le(STEPS_MAX)]
WATCHED = (*WATCHING, "held_out_every_steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRef:
    """A data set as it was at submission: `place` is an s3:// address that nodes read, or a path below the run's inputs, where its
    `files` are put; a trainer that is started by hand takes any path. `id` and `version` are those of gangline.data.dataset. Of all
    samples it has its share by `weight`, of its rows those for which `where` holds."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    place: Annotated[str, MinLen(1), MaxLen(2000)]
    id: Annotated[str, MinLen(1), MaxLen(200)]
    version: Annotated[int, Ge(1)]
    files: Annotated[tuple[File, ...], MaxLen(100_000)] = ()
    weight: Annotated[float, Gt(0), Le(1e9)] = 1.0
    where: Condition = ""

    @property
    def is_remote(self) -> bool:
        return self.place.startswith("s3://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Steps of one resolution. `batch_size` is that of all ranks together, whatever their number.

    `latents`: `auto` takes the data sets' column of that resolution where all of them have it; else pictures are decoded, cut and
    encoded as they are needed. `where` leaves out more rows, such as pictures that are smaller than the phase.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    steps: Step
    resolution: Annotated[int, Interval(ge=16, le=RESOLUTION_MAX), MultipleOf(8)]
    batch_size: Annotated[int, Ge(1), Le(1_000_000)]
    microbatch: Annotated[int, Ge(1), Le(1_000_000)] | None = None
    learning_rate: Rate | None = None
    where: Condition = ""
    crop: Literal["center", "random"] = "center"
    latents: Literal["auto", "required", "off"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class VaeLosses:
    """What each error of a VAE counts; all are per number of the picture. `kl` as that of latent diffusion (Rombach et al. 2021,
    appendix G). A perceptual loss (LPIPS) and a discriminator are not here: both need the weights of another network."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    l1: Annotated[float, Ge(0), Le(1e6)] = 1.0
    mse: Annotated[float, Ge(0), Le(1e6)] = 1.0
    kl: Annotated[float, Ge(0), Le(1e6)] = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchSpec:
    """Training of `part` on data sets, in phases. It gives a whole model in diffusers' layout.

    What a step sees depends on its number alone: not on how many GPUs share it, nor on how many samples fit into one at a time.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["scratch"] = "scratch"
    part: Literal["unet", "vae"] = "unet"

    # `base`: a folder in diffusers' layout, with the weights of all that is not `new`; what is, begins random as its config.json says.
    base: Base
    base_licence: Annotated[str, MaxLen(200)] = ""
    new: Annotated[tuple[Part, ...], MaxLen(3)] = ()
    train_text_encoders: bool = False
    text_encoder_learning_rate: Rate | None = None
    freeze_token_embeddings: bool = False

    # What it learns. Rows for which `held_out` is true are never trained on; the loss of `held_out_rows` of them is measured.
    # `text_embeddings`: of each row the data sets' column, which is of its first caption, and no text encoder at work in a step.
    data: Annotated[tuple[DataRef, ...], MinLen(1), MaxLen(64)]
    phases: Annotated[tuple[Phase, ...], MinLen(1), MaxLen(64)]
    held_out: Condition = ""
    held_out_rows: Annotated[int, Ge(1), Le(100_000)] = 256
    held_out_every_steps: Step | None = None
    caption_drop: Annotated[float, Interval(ge=0, le=1)] = 0.0
    text_embeddings: Literal["off", "required"] = "off"

    # How it is trained. `ema_from_step`: the first step that is averaged.
    optimizer: Literal["adamw", "adamw8bit"] = "adamw"
    learning_rate: Rate = 1e-4
    weight_decay: Annotated[float, Ge(0), Le(1)] = 1e-2
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Ge(0), Le(100_000_000)] = 0
    gradient_norm_max: Annotated[float, Gt(0), Le(1e6)] = 1.0
    ema_decay: Annotated[float, Gt(0), Lt(1)] | None = None
    ema_from_step: Step = 1

    # What is minimised.
    prediction_type: Literal["auto", "epsilon", "v_prediction"] = "auto"
    min_snr_gamma: Annotated[float, Gt(0), Le(1000)] | None = None
    noise_offset: Annotated[float, Ge(0), Le(1)] = 0.0
    zero_terminal_snr: bool = False
    vae_losses: VaeLosses = VaeLosses()

    # How cards manage. Weights and averages are float32, whatever is computed in.
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    gradient_checkpointing: bool = False
    compile: bool = False
    parallel: Literal["ddp", "fsdp"] = "ddp"

    seed: Annotated[int, Ge(0), Le(2**63 - 1)] = 0
    checkpoint_every_s: Annotated[float, Gt(0), Le(86_400)] = 600.0
    checkpoint_every_steps: Step | None = None

    # Pictures to look at: of the result, and of steps on the way; none without prompts.
    sample_result: bool = True
    sample_every_steps: Step | None = None
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
    phase: Phase
    first_sample: int

    @property
    def is_last_of_phase(self) -> bool:
        return self.first_sample == (self.phase.steps - 1) * self.phase.batch_size


def moment(spec: ScratchSpec, step: int) -> Moment:
    """Of `step`, from 1. Samples are counted anew in each phase."""
    before = 0
    for number, phase in enumerate(spec.phases):
        if step <= before + phase.steps:
            seen = (step - before - 1) * phase.batch_size
            return Moment(step=step, number=number, phase=phase, first_sample=seen)
        before += phase.steps
    raise AssertionError(f"a run of {before} steps has no step {step}")


def burst(spec: ScratchSpec, number: int) -> ScratchSpec:
    """Nothing but steps of that phase, without end, for how fast they are to be seen. They are averaged where most of the phase's
    are."""
    phase = spec.phases[number]
    last = sum(each.steps for each in spec.phases[: number + 1])
    averaged = 2 * (last - spec.ema_from_step) >= phase.steps
    return replace(
        spec,
        phases=(replace(phase, steps=STEPS_MAX),),
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


def wanted_rows(spec: ScratchSpec, data: DataRef, phase: Phase, *, held_out: bool) -> str:
    """The rows of a data set that a phase trains on, or those of them that are held out, as one condition. Rows of which it cannot
    be said whether they are held out are trained on."""
    conditions = [data.where, phase.where]
    if held_out:
        conditions.append(spec.held_out)
    elif spec.held_out:
        conditions.append(f"({spec.held_out}) is not true")
    return " and ".join(f"({condition})" for condition in conditions if condition)


def parse_scratch(value: object) -> ScratchSpec:
    """A spec from JSON values. Raises `InvalidSpec` with every problem that it has."""
    spec: ScratchSpec = parse_as(ScratchSpec, value)
    problems = (*_of_phases(spec), *(problem for problem, wrong in _contradictions(spec).items() if wrong))
    if problems:
        raise InvalidSpec(problems)
    return spec


def _of_phases(spec: ScratchSpec) -> Iterator[Problem]:
    for number, phase in enumerate(spec.phases):
        if (phase.microbatch or 0) > phase.batch_size:
            yield Problem(f"phases.{number}.microbatch", f"is more than the {phase.batch_size} samples of a step")
        if phase.batch_size % spec.needs.slots:
            gpus = f"is no multiple of the {spec.needs.slots} GPUs (needs.slots) that share it"
            yield Problem(f"phases.{number}.batch_size", gpus)
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
    """Equal for jobs that ask for the same result, as `gangline.core.spec.spec_hash`. How the work is shared out (`parallel`,
    microbatches) decides bits only, so it is in the fingerprint."""
    value = to_json(spec)
    left_out = {*PLACING, *WATCHED, "parallel", "compile", "gradient_checkpointing"}
    changed = [field.name for field in fields(spec) if getattr(spec, field.name) != field.default]
    kept = {name: value[name] for name in {*changed, "kind", "part", "optimizer"} - left_out}
    kept["phases"] = [{name: part for name, part in phase.items() if name != "microbatch"} for phase in value["phases"]]
    return digest(kept)


def scratch_workload(spec: ScratchSpec) -> str:
    """Equal for jobs that ask the same of a machine: memory, time per step."""
    value = to_json(spec)
    kept = {
        name: value[name]
        for name in ("kind", "part", "optimizer", "precision", "gradient_checkpointing", "compile", "parallel")
    }
    sizes = [
        {name: phase[name] for name in ("resolution", "batch_size", "microbatch", "latents")}
        for phase in value["phases"]
    ]
    if spec.text_embeddings != "off":
        kept["text_embeddings"] = spec.text_embeddings
    trained = {"train_text_encoders": spec.train_text_encoders, "slots": spec.needs.slots, "phases": sizes}
    return digest(kept | trained | {"base": spec.base.id})[:16]
