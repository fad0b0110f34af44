"""Settings that every kind of training has, each declared once. A spec inherits the sections that it wants."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval, Le, Lt, MaxLen, MinLen

from gangline.core.display import Label
from gangline.core.parsing import Checked
from gangline.core.places.places import why_no_target
from gangline.core.specs.fields import (
    STEPS_MAX,
    Base,
    LearningRate,
    Needs,
    Prediction,
    Prompt,
    Sampler,
    Seed,
    StepCount,
)
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
    LearningRate | None, Setting("The text encoders' own learning rate; without it, that of the U-Net.", RESULT)
]
RESCALE_OF_ZERO_SNR = 0.7
"""Of Lin et al. 2023, §3.4: without it, guidance overexposes pictures of a base with zero terminal SNR."""
SaveInterval = Annotated[float, Gt(0), Le(86_400), Setting("Seconds between saves at the most.", WATCH, unit="s")]


@section(SettingGroup.FILES)
class StartSettings:
    base: Annotated[
        Base,
        Setting(
            "The model to begin with: files that were handed in, or a model on the hub.",
            LATENTS | EMBEDDINGS | CLASS_IMAGES | RESULT | WORKLOAD,
        ),
    ]
    base_licence: Annotated[
        Label,
        Setting(
            "The base's licence, for the model card; else what the base itself says, or the hub.",
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
            "The share of images that are shown without words: it makes guidance stronger later.",
            RESULT,
            kohya=("caption_dropout_rate",),
        ),
    ] = 0.0


@section(SettingGroup.TRAINING)
class OptimiserSettings:
    optimizer: Annotated[
        Literal["adamw", "adamw8bit", "prodigy", "schedule_free"],
        Setting(
            "AdamW, AdamW with 8-bit states, Prodigy (which finds the rate itself), or schedule-free AdamW.",
            RESULT | WORKLOAD,
        ),
    ] = "adamw"
    learning_rate: Annotated[
        LearningRate,
        Setting(
            "The optimiser's; for Prodigy a factor, best left at 1.",
            RESULT,
            always=("lora",),
            kohya=("learning_rate", "unet_lr"),
        ),
    ] = 1e-4
    weight_decay: Annotated[
        float, Ge(0), Le(1), Setting("How fast weights that nothing asks for go back to 0.", RESULT, always=("lora",))
    ] = 1e-2
    adam_beta1: Annotated[
        float, Ge(0), Lt(1), Setting("How slowly the mean of past gradients forgets: β₁ of Adam and its kin.", RESULT)
    ] = 0.9
    adam_beta2: Annotated[float, Ge(0), Lt(1), Setting("How slowly the mean of their squares forgets: β₂.", RESULT)] = (
        0.999
    )
    adam_epsilon: Annotated[
        float, Gt(0), Le(1), Setting("What is added to the root of that mean before it divides: ε.", RESULT)
    ] = 1e-8
    schedule: Annotated[
        Literal["constant", "linear", "cosine"],
        Setting("The rate over time: it stays, or falls to 0 in a line or along a cosine.", RESULT),
    ] = "constant"
    schedule_floor: Annotated[
        float, Ge(0), Lt(1), Setting("The share of the rate that a schedule falls to, in place of 0.", RESULT)
    ] = 0.0
    warmup_steps: Annotated[
        int,
        Ge(0),
        Le(STEPS_MAX),
        Setting("Over so many steps the rate rises from 0.", RESULT, kohya=("lr_warmup_steps",)),
    ] = 0
    gradient_norm_max: Annotated[
        float,
        Gt(0),
        Le(1e6),
        Setting("Longer gradients are cut to this norm.", RESULT, always=("lora",), kohya=("max_grad_norm",)),
    ] = 1.0
    ema_decay: Annotated[
        Annotated[float, Gt(0), Lt(1)] | None,
        Setting(
            "Keep a mean of the weights over time, which forgets by this factor a step (0.999, say), as the result.",
            RESULT,
        ),
    ] = None


@section(SettingGroup.OBJECTIVE)
class ObjectiveSettings:
    prediction_type: Annotated[
        Literal["auto", Prediction],
        Setting(
            "What the base predicts: noise (epsilon) or velocity (v_prediction); auto asks the base.",
            CLASS_IMAGES | RESULT,
        ),
    ] = "auto"
    min_snr_gamma: Annotated[
        Annotated[float, Gt(0), Le(1000)] | None,
        Setting(
            "Weigh timesteps by their signal-to-noise ratio up to this (Hang et al. 2023; 5 is usual): learns faster.",
            RESULT,
            kohya=("min_snr_gamma",),
        ),
    ] = None
    noise_offset: Annotated[
        float,
        Ge(0),
        Le(1),
        Setting(
            "Add a little of one brightness to the noise (0.05, say): darker and lighter pictures become possible.",
            RESULT,
        ),
    ] = 0.0
    zero_terminal_snr: Annotated[
        bool,
        Setting(
            "Let the last timestep be pure noise (Lin et al. 2023): for bases that predict velocity.",
            CLASS_IMAGES | RESULT,
            kohya=("zero_terminal_snr",),
        ),
    ] = False


@section(SettingGroup.CARD)
class ComputeSettings:
    """How a card manages. What changes the bits is in the checkpoint's fingerprint."""

    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"],
        Setting(
            "Of the computation: auto takes bf16 on cards that compute in it (Ampere and later), fp16 on Volta and Turing "
            "(V100, T4, RTX 20), else fp32. Weights that are trained are always fp32.",
            RESULT | WORKLOAD,
            always=("lora",),
        ),
    ] = "auto"
    gradient_checkpointing: Annotated[
        bool,
        Setting(
            "Compute parts twice in place of keeping them: slower, in much less memory.",
            BITS | WORKLOAD,
            kohya=("gradient_checkpointing",),
        ),
    ] = False
    compile: Annotated[
        bool,
        Setting(
            "Compile the U-Net's blocks (from nothing: all that is trained), for each size of pictures: minutes the first time, "
            "then faster steps. A LoRA's steps are then no CUDA graphs.",
            BITS | WORKLOAD,
        ),
    ] = False


@section(SettingGroup.SAVING)
class SaveSettings:
    seed: Annotated[
        Seed,
        Setting(
            "All chance follows from it: the same spec gives the same weights.",
            LATENTS | EMBEDDINGS | RESULT,
            always=("lora",),
            kohya=("seed",),
        ),
    ] = 0
    checkpoint_every_s: SaveInterval = 60.0
    checkpoint_every_steps: Annotated[StepCount | None, Setting("Steps between saves, besides.", WATCH)] = None


@section(SettingGroup.SAMPLES)
class SampleSettings:
    """Pictures to look at: of the result, and of steps on the way."""

    sample_result: Annotated[
        bool,
        Setting("Show the result; a LoRA's beside what the base alone makes of the same prompts and seeds.", WATCH),
    ] = True
    sample_every_steps: Annotated[
        StepCount | None,
        Setting(
            "Steps between pictures of what is learned so far; without an interval there are none on the way.",
            WATCH,
        ),
    ] = None
    sample_every_s: Annotated[
        Annotated[float, Ge(10), Le(86_400)] | None, Setting("Seconds between pictures.", WATCH, unit="s")
    ] = None
    sample_prompts: Annotated[
        tuple[Prompt, ...],
        MaxLen(64),
        Setting("What to render; without it, a LoRA's prompt.", EMBEDDINGS | RESULT, always=("lora",)),
    ] = ()
    sample_seeds: Annotated[
        tuple[Seed, ...],
        MinLen(1),
        MaxLen(16),
        Setting("A picture of each prompt for each seed.", RESULT, always=("lora",)),
    ] = (1, 2)
    sample_steps: Annotated[
        int,
        Ge(1),
        Le(1000),
        Setting("Steps of the sampler.", RESULT, always=("lora",)),
    ] = 30
    sample_sampler: Annotated[Sampler, Setting("The sampler.", RESULT)] = "ddim"
    guidance_scale: Annotated[
        float,
        Ge(0),
        Le(100),
        Setting("How strongly pictures follow their prompts.", RESULT, always=("lora",)),
    ] = 5.0
    guidance_rescale: Annotated[
        Annotated[float, Interval(ge=0, le=1)] | None,
        Setting(
            "How far the contrast that guidance adds is taken back (CFG rescale, Lin et al. 2023, §3.4); without it, 0.7 for bases with "
            "zero terminal SNR, else 0.",
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
        Setting("After so many failures the job has failed; interruptions are none.", PLACE),
    ] = 3
    priority: Annotated[int, Ge(-1000), Le(1000), Setting("Higher goes first among your jobs.", PLACE)] = 0
    needs: Annotated[Needs, Setting("What it asks of a node.", PLACE)] = Needs()
    exact: Annotated[
        Literal["required", "preferred", "off"],
        Setting("Whether it goes on only where the bits stay the same: required, preferred, off.", PLACE),
    ] = "preferred"
    deliver: Annotated[
        Label,
        Checked(_why_no_delivery),
        Setting(
            "Where the server copies the results after success: s3://BUCKET/FOLDER/ or hf://ORGANISATION/NAME, places that its "
            "operator named for the project.",
            WATCH,
            group=SettingGroup.SAID,
        ),
    ] = ""
