"""What kind of weights a LoRA's training adds to a model, to which of its layers, and how they learn."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

from gangline.core.display import Name
from gangline.core.parsing import Checked, Problem
from gangline.core.specs.sections.patterns import ALPHA_MAX, RANK_MAX, why_no_rank_rule, why_no_rate_rule
from gangline.core.specs.sections.shared import TextEncoderRate
from gangline.core.specs.settings import RESULT, WORKLOAD, Setting, SettingGroup, section

ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")
LATER = frozenset({"algorithm", "lokr_factor", "lokr_second_factor", "block_ranks", "conv_rank"})
"""Settings that came after the first workloads were recorded: a workload has them only where they are not as they are by default."""


@section(SettingGroup.LORA)
class LowRankSettings:
    algorithm: Annotated[
        Literal["lora", "lokr"],
        Setting(
            "Train a LoRA (Hu et al. 2021), or a LoKr (LyCORIS, Yeh et al. 2024), whose change of each weight is a Kronecker "
            "product: its rank is higher for as many weights.",
            RESULT | WORKLOAD,
        ),
    ] = "lora"
    lokr_factor: Annotated[
        Annotated[int, Ge(2), Le(RANK_MAX)] | None,
        Setting(
            "Give the first factor of a LoKr this many rows and columns, where that divides the layer's widths. Lower values "
            "train more weights (default: about the square root of the widths).",
            RESULT | WORKLOAD,
        ),
    ] = None
    lokr_second_factor: Annotated[
        Literal["low_rank", "tucker", "full"],
        Setting(
            "Train the second factor of a LoKr as a product of rank `rank` (with tucker, of 3 x 3 convolutions with a core of "
            "their own), or in full. A rank of half its size or more trains it in full, too.",
            RESULT | WORKLOAD,
        ),
    ] = "low_rank"
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
    lokr, needs_lokr = settings.algorithm == "lokr", "needs algorithm = lokr"
    own_rate = settings.text_encoder_learning_rate is not None
    rates = {"text_encoder_learning_rate": own_rate, "block_rates": bool(settings.block_rates)}
    rates |= {"lora_plus_ratio": settings.lora_plus_ratio != 1}
    one_rate = "cannot be set with prodigy, which finds one rate for everything: leave it out"
    return {
        Problem("text_encoder_learning_rate", "needs train_text_encoder"): own_rate and not settings.train_text_encoder,
        **{Problem(name, one_rate): given and optimizer == "prodigy" for name, given in rates.items()},
        Problem("conv_alpha", "needs conv_rank"): settings.conv_alpha is not None and settings.conv_rank is None,
        Problem("dora", "cannot be combined with algorithm = lokr: leave one of the two out"): settings.dora and lokr,
        Problem("dropout", "cannot be combined with algorithm = lokr: set it to 0"): settings.dropout > 0 and lokr,
        Problem(
            "lora_plus_ratio", "cannot be combined with algorithm = lokr, which has no matrices A and B: leave it out"
        ): lokr and settings.lora_plus_ratio != 1,
        Problem("lokr_factor", needs_lokr): settings.lokr_factor is not None and not lokr,
        Problem("lokr_second_factor", needs_lokr): settings.lokr_second_factor != "low_rank" and not lokr,
    }
