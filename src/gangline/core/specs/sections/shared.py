"""Settings that every kind of training has, each declared once. A spec inherits the sections that it wants."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval, Le, Lt, MaxLen

from gangline.core.display import Label
from gangline.core.parsing import Checked, Problem
from gangline.core.places.places import why_no_target
from gangline.core.specs.fields import (
    STEPS_MAX,
    Base,
    GuidanceScale,
    LearningRate,
    Needs,
    Sampler,
    SamplerSteps,
    SampleSeeds,
    Seed,
    StepCount,
)
from gangline.core.specs.sections.previews import PromptOrTable
from gangline.core.specs.settings import (
    BITS,
    CLASS_IMAGES,
    EMBEDDINGS,
    LATENTS,
    PLACE,
    RESULT,
    WATCH,
    WORKLOAD,
    Setting,
    SettingGroup,
    section,
)

TextEncoderRate = Annotated[
    LearningRate | None, Setting("Train the text encoders at this learning rate (default: the U-Net's).", RESULT)
]
IN_FLOAT32 = ("fp32", "tf32")
"""The precisions in which all numbers are float32."""
RESCALE_OF_ZERO_SNR = 0.7
"""Of Lin et al. 2023, §3.4: without it, guidance overexposes pictures of a base with zero terminal SNR."""
SaveInterval = Annotated[float, Gt(0), Le(86_400), Setting("Save a checkpoint at least this often.", WATCH, unit="s")]


@section(SettingGroup.FILES)
class StartSettings:
    base: Annotated[
        Base,
        Setting(
            "Start from this model: uploaded files, or a model on the hub.",
            LATENTS | EMBEDDINGS | CLASS_IMAGES | RESULT | WORKLOAD,
        ),
    ]
    base_licence: Annotated[
        Label,
        Setting(
            "Name this licence of the base in the model card (default: the one that the base's README or the hub names).",
            WATCH,
            group=SettingGroup.SAID,
        ),
    ] = ""


@section(SettingGroup.SUBJECT)
class CaptionSettings:
    caption_drop: Annotated[
        float,
        Interval(ge=0, le=1),
        Setting(
            "Train on this share of images without their captions, so that guidance works better later.",
            RESULT,
            kohya=("caption_dropout_rate",),
        ),
    ] = 0.0


@section(SettingGroup.TRAINING)
class OptimiserSettings:
    optimizer: Annotated[
        Literal["adamw", "adamw8bit", "prodigy", "schedule_free"],
        Setting(
            "Optimise with AdamW, AdamW with 8-bit states, Prodigy (which finds the learning rate itself) or schedule-free "
            "AdamW.",
            RESULT | WORKLOAD,
        ),
    ] = "adamw"
    learning_rate: Annotated[
        LearningRate,
        Setting(
            "Train at this learning rate. Prodigy multiplies the rate that it finds by this; use 1 there.",
            RESULT,
            always=("lora",),
            kohya=("learning_rate", "unet_lr"),
        ),
    ] = 1e-4
    weight_decay: Annotated[
        float, Ge(0), Le(1), Setting("Decay trained weights towards 0 at this rate.", RESULT, always=("lora",))
    ] = 1e-2
    adam_beta1: Annotated[
        float,
        Ge(0),
        Lt(1),
        Setting("Average Adam's gradients with this decay factor (β₁). Higher values average over more steps.", RESULT),
    ] = 0.9
    adam_beta2: Annotated[
        float,
        Ge(0),
        Lt(1),
        Setting(
            "Average Adam's squared gradients with this decay factor (β₂). Higher values average over more steps.",
            RESULT,
        ),
    ] = 0.999
    adam_epsilon: Annotated[
        float,
        Gt(0),
        Le(1),
        Setting("Add this to the root of the mean of squared gradients before dividing by it (ε).", RESULT),
    ] = 1e-8
    schedule: Annotated[
        Literal["constant", "linear", "cosine", "cosine_with_restarts"],
        Setting(
            "Keep the learning rate constant, or lower it to 0 linearly or along a cosine, once or several times (with restarts).",
            RESULT,
        ),
    ] = "constant"
    schedule_cycles: Annotated[
        int,
        Ge(1),
        Le(STEPS_MAX),
        Setting(
            "Lower the learning rate this many times with cosine_with_restarts, each time from its full value "
            "(Loshchilov & Hutter 2017).",
            RESULT,
        ),
    ] = 1
    schedule_floor: Annotated[
        float, Ge(0), Lt(1), Setting("Lower the learning rate to this share of it instead of to 0.", RESULT)
    ] = 0.0
    schedule_steps: Annotated[
        StepCount | None,
        Setting(
            "Compute the schedule for this many steps; after them the learning rate stays what it was at the last of them "
            "(default: the job's steps).",
            RESULT,
        ),
    ] = None
    warmup_steps: Annotated[
        int,
        Ge(0),
        Le(STEPS_MAX),
        Setting("Raise the learning rate from 0 over this many first steps.", RESULT, kohya=("lr_warmup_steps",)),
    ] = 0
    gradient_norm_max: Annotated[
        float,
        Gt(0),
        Le(1e6),
        Setting("Clip gradients to this norm.", RESULT, always=("lora",), kohya=("max_grad_norm",)),
    ] = 1.0
    ema_decay: Annotated[
        Annotated[float, Gt(0), Lt(1)] | None,
        Setting(
            "Average the weights over the steps with this decay factor, e.g. 0.999, and save the average as the result "
            "(default: no averaging).",
            RESULT,
        ),
    ] = None


def contradictions_of_schedule(spec: OptimiserSettings, steps: int) -> dict[Problem, bool]:
    """Return what a parser refuses in a job of this many steps, with whether it is so."""
    decays = (spec.schedule_steps or steps) - spec.warmup_steps
    return {
        Problem("schedule_floor", "needs a linear or cosine schedule"): spec.schedule_floor > 0
        and spec.schedule == "constant",
        Problem("schedule_cycles", "needs schedule cosine_with_restarts"): spec.schedule_cycles > 1
        and spec.schedule != "cosine_with_restarts",
        Problem("schedule_cycles", f"is more than the {decays} steps after the warm-up"): spec.schedule_cycles
        > max(1, decays),
        Problem("schedule_steps", "needs a linear or cosine schedule"): spec.schedule_steps is not None
        and spec.schedule == "constant",
        Problem("schedule_steps", f"must be more than the {spec.warmup_steps} steps of the warm-up"): bool(
            spec.schedule_steps
        )
        and decays <= 0,
    }


@section(SettingGroup.CARD)
class ComputeSettings:
    """How a card manages. What changes the bits is in the checkpoint's fingerprint."""

    precision: Annotated[
        Literal["auto", "fp32", "tf32", "bf16", "fp16"],
        Setting(
            "Compute in this precision. auto takes bf16 on GPUs that support it (Ampere and later), fp16 on Volta and "
            "Turing (V100, T4, RTX 20), else fp32. tf32 is fp32 whose products have the mantissa of fp16, on NVIDIA "
            "GPUs since Ampere. Trained weights are always fp32.",
            RESULT | WORKLOAD,
            always=("lora",),
        ),
    ] = "auto"
    gradient_checkpointing: Annotated[
        bool,
        Setting(
            "Recompute activations instead of storing them. Steps are slower and need much less memory.",
            BITS | WORKLOAD,
            kohya=("gradient_checkpointing",),
        ),
    ] = False
    compile: Annotated[
        bool,
        Setting(
            "Compile the U-Net's blocks (in training from scratch: everything that is trained) for each image size. This "
            "takes minutes the first time and makes steps faster. A LoRA's steps then use no CUDA graphs.",
            BITS | WORKLOAD,
        ),
    ] = False


@section(SettingGroup.SAVING)
class SaveSettings:
    seed: Annotated[
        Seed,
        Setting(
            "Seed all random numbers with this. The same spec gives the same weights.",
            LATENTS | EMBEDDINGS | RESULT,
            always=("lora",),
            kohya=("seed",),
        ),
    ] = 0
    checkpoint_every_s: SaveInterval = 60.0
    checkpoint_every_steps: Annotated[
        StepCount | None, Setting("Save a checkpoint also at this interval in steps (default: none).", WATCH)
    ] = None


@section(SettingGroup.SAMPLES)
class SampleSettings:
    """Pictures to look at: of the result, and of steps on the way."""

    sample_result: Annotated[
        bool,
        Setting(
            "Render pictures of the result. A LoRA's are shown beside those of the base alone, from the same prompts and "
            "seeds.",
            WATCH,
        ),
    ] = True
    sample_every_steps: Annotated[
        StepCount | None,
        Setting(
            "Render pictures during training at this interval in steps (default: none).",
            WATCH,
        ),
    ] = None
    sample_every_s: Annotated[
        Annotated[float, Ge(10), Le(86_400)] | None,
        Setting("Render pictures during training at this interval (default: none).", WATCH, unit="s"),
    ] = None
    sample_prompts: Annotated[
        tuple[PromptOrTable, ...],
        MaxLen(64),
        Setting(
            "Render these prompts (default: a LoRA's own prompt). A prompt may have settings of its own.",
            EMBEDDINGS | RESULT,
            always=("lora",),
        ),
    ] = ()
    sample_seeds: Annotated[
        SampleSeeds,
        Setting("Render each prompt once with each of these seeds.", RESULT, always=("lora",)),
    ] = (1, 2)
    sample_steps: Annotated[
        SamplerSteps,
        Setting("Render with this many sampler steps.", RESULT, always=("lora",)),
    ] = 30
    sample_sampler: Annotated[Sampler, Setting("Render with this sampler.", RESULT)] = "ddim"
    guidance_scale: Annotated[
        GuidanceScale,
        Setting(
            "Render with this guidance scale. Higher values follow the prompt more closely.", RESULT, always=("lora",)
        ),
    ] = 5.0
    guidance_rescale: Annotated[
        Annotated[float, Interval(ge=0, le=1)] | None,
        Setting(
            "Remove this share of the contrast that guidance adds (CFG rescale, Lin et al. 2023, §3.4; default: 0.7 for "
            "bases with zero terminal SNR, else 0).",
            RESULT,
        ),
    ] = None


def _why_no_delivery(address: str) -> str:
    return why_no_target(address) if address else ""


@section(SettingGroup.TRIES)
class PlacementSettings:
    attempts_max: Annotated[
        int,
        Ge(1),
        Le(100),
        Setting("Fail the job after this many failed attempts. Interruptions do not count.", PLACE),
    ] = 3
    priority: Annotated[
        int, Ge(-1000), Le(1000), Setting("Run this job before your jobs with a lower priority.", PLACE)
    ] = 0
    needs: Annotated[Needs, Setting("Require these of a node.", PLACE)] = Needs()
    exact: Annotated[
        Literal["required", "preferred", "off"],
        Setting(
            "Resume only on nodes where the bits of the result stay the same (required), or on any node and report if they "
            "do not (preferred), or promise nothing and use faster kernels (off).",
            PLACE,
        ),
    ] = "preferred"
    deliver: Annotated[
        Label,
        Checked(_why_no_delivery),
        Setting(
            "Copy the results here after success: s3://BUCKET/FOLDER/ or hf://ORGANISATION/NAME. The server's operator "
            "must have allowed the place for the project.",
            WATCH,
            group=SettingGroup.SAID,
        ),
    ] = ""
