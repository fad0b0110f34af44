"""What kind of weights a LoRA's training adds to a model, to which of its layers, and how they learn."""

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

from gangline.core.display import Name
from gangline.core.parsing import Checked, Problem
from gangline.core.specs.patterns import ALPHA_MAX, RANK_MAX, why_no_rank_rule, why_no_rate_rule
from gangline.core.specs.settings import RESULT, WORKLOAD, Setting, SettingGroup, section
from gangline.core.specs.shared import TextEncoderRate

ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")
LATER = frozenset({"block_ranks", "conv_rank"})
"""Settings that came after the first workloads were recorded: a workload has them only where they are not as they are by default."""


@section(SettingGroup.LORA)
class LowRankSettings:
    rank: Annotated[
        int,
        Ge(1),
        Le(RANK_MAX),
        Setting(
            "Rank of the LoRA matrices. Higher ranks capture more detail and need more memory.",
            RESULT | WORKLOAD,
            always=("lora",),
            kohya=("network_dim",),
        ),
    ] = 16
    alpha: Annotated[
        float,
        Gt(0),
        Le(ALPHA_MAX),
        Setting("Scale the output of the LoRA by alpha ÷ rank.", RESULT, always=("lora",), kohya=("network_alpha",)),
    ] = 16.0
    dropout: Annotated[
        float,
        Ge(0),
        Lt(1),
        Setting("Drop this share of the LoRA's inputs at random in each step.", RESULT | WORKLOAD),
    ] = 0.0
    dora: Annotated[
        bool,
        Setting(
            "Train a DoRA (Liu et al. 2024), which learns magnitude and direction of the weights separately. It is slower "
            "and often closer to full fine-tuning.",
            RESULT | WORKLOAD,
        ),
    ] = False
    target_modules: Annotated[
        tuple[Annotated[Name, MaxLen(100)], ...],
        MinLen(1),
        MaxLen(100),
        Setting(
            "Add LoRA matrices to the layers whose names end with these. * stands for any characters: attn2.* is all of "
            "cross-attention.",
            RESULT | WORKLOAD,
            always=("lora",),
        ),
    ] = ATTENTION
    conv_rank: Annotated[
        Annotated[int, Ge(1), Le(RANK_MAX)] | None,
        Setting(
            "Train the 3 x 3 convolutions of ResNets and samplers too, at this rank (LoCon; default: only those that "
            "target_modules name, at rank).",
            RESULT | WORKLOAD,
        ),
    ] = None
    conv_alpha: Annotated[
        Annotated[float, Gt(0), Le(ALPHA_MAX)] | None,
        Setting(
            "Scale the output of convolutions with conv_rank by conv_alpha ÷ conv_rank (default: as the other layers are "
            "scaled).",
            RESULT,
        ),
    ] = None
    block_ranks: Annotated[
        tuple[Annotated[Name, Checked(why_no_rank_rule)], ...],
        MaxLen(100),
        Setting(
            "Give the layers whose names match a pattern another rank, as PATTERN=RANK or PATTERN=RANK:ALPHA, e.g. "
            "up_blocks.1.*=32; 0 leaves them out. Without an alpha they are scaled as the others. The last pattern that "
            "matches counts.",
            RESULT | WORKLOAD,
        ),
    ] = ()
    block_rates: Annotated[
        tuple[Annotated[Name, Checked(why_no_rate_rule)], ...],
        MaxLen(100),
        Setting(
            "Multiply the learning rate of the layers whose names match a pattern, as PATTERN=FACTOR, e.g. "
            "down_blocks.*=0.5. The last pattern that matches counts.",
            RESULT,
        ),
    ] = ()
    train_text_encoder: Annotated[
        bool,
        Setting(
            "Train the text encoders too. The model then learns a subject with a word of its own much better.",
            RESULT | WORKLOAD,
        ),
    ] = False
    text_encoder_learning_rate: TextEncoderRate = None
    lora_plus_ratio: Annotated[
        float,
        Ge(1),
        Le(1000),
        Setting(
            "Train the matrices B (up) of the LoRA at this many times the learning rate of its matrices A (down; LoRA+, Hayou "
            "et al. 2024, who use 16).",
            RESULT,
        ),
    ] = 1.0


def why_not_together(settings: LowRankSettings, optimizer: str) -> dict[Problem, bool]:
    """Return what contradicts what, and whether it is so here."""
    own_rate, one_rate = settings.text_encoder_learning_rate is not None, optimizer == "prodigy"
    return {
        Problem("text_encoder_learning_rate", "needs train_text_encoder"): own_rate and not settings.train_text_encoder,
        Problem(
            "text_encoder_learning_rate",
            "cannot be set with prodigy, which finds one rate for everything: leave it out",
        ): own_rate and one_rate,
        Problem("block_rates", "cannot be set with prodigy, which finds one rate for everything: leave them out"): bool(
            settings.block_rates
        )
        and one_rate,
        Problem(
            "lora_plus_ratio", "cannot be set with prodigy, which finds one rate for everything: leave it out"
        ): settings.lora_plus_ratio != 1
        and one_rate,
    }
