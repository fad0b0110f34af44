"""Kinds of GPUs: what their vendor says they can do at most."""

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches

from gangline.core.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Peak of dense bf16 with sums in float32, in 10^12 FLOP/s, without sparsity; peak memory bandwidth in GB/s."""

    name: str
    bf16_tflops: float
    memory_gb_per_s: float


KINDS = (
    Kind(name="A100 40GB", bf16_tflops=312, memory_gb_per_s=1555),  # NVIDIA A100 data sheet, 2021
    Kind(name="A100 80GB", bf16_tflops=312, memory_gb_per_s=2039),  # the same, SXM
    Kind(name="H100 SXM", bf16_tflops=989, memory_gb_per_s=3350),  # NVIDIA H100 data sheet
    Kind(name="H200", bf16_tflops=989, memory_gb_per_s=4800),  # NVIDIA H200 data sheet
    Kind(name="L40S", bf16_tflops=362, memory_gb_per_s=864),  # NVIDIA L40S data sheet
    Kind(name="A10", bf16_tflops=125, memory_gb_per_s=600),  # NVIDIA A10 data sheet
    Kind(name="RTX 4090", bf16_tflops=165.2, memory_gb_per_s=1008),  # NVIDIA Ada GPU architecture, appendix A
    Kind(name="RTX 3090", bf16_tflops=71, memory_gb_per_s=936),  # NVIDIA Ampere GA102 GPU architecture, appendix A
)
SLOWER = {"pcie", "laptop", "d", "nvl"}
NAMES = tuple(kind.name for kind in KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How many times as fast a GPU of one kind computes as one of another."""

    low: float
    middle: float
    high: float


def find_kind(name: str) -> Kind:
    """Raises `BadInput`."""
    by_name = {kind.name.lower(): kind for kind in KINDS}
    if name.lower() in by_name:
        return by_name[name.lower()]
    near = [by_name[found].name for found in get_close_matches(name.lower(), by_name, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(NAMES)}"
    raise BadInput(f"there is no GPU {name}", hint=hint)


def kind_of_device(name: str) -> Kind | None:
    """By what its driver calls it, such as `NVIDIA A100-SXM4-80GB`; None where it is none of these, or a slower version of one."""
    said = set(re.split(r"[^a-z0-9]+", name.lower()))
    if said & SLOWER:
        return None
    said |= {"sxm"} if "hbm3" in said else set()
    return next((kind for kind in KINDS if set(kind.name.lower().split()) <= said), None)


def speed(kind: Kind, beside: Kind) -> Speed:
    """Between the ratio of their peak FLOP/s and that of their memory bandwidths: what bounds a kernel is one of the two (the roofline:
    Williams, Waterman and Patterson 2009). Which kernels these are was not measured, so the middle is the geometric mean."""
    ratios = (kind.bf16_tflops / beside.bf16_tflops, kind.memory_gb_per_s / beside.memory_gb_per_s)
    return Speed(low=min(ratios), middle=math.sqrt(ratios[0] * ratios[1]), high=max(ratios))
