"""List kinds of GPUs with the peak figures of their vendors."""

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from gangline.core.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """A model of GPU.

    `tflops` is its peak of dense matrix products in `computes_in` with sums in float32, in 10^12 FLOP/s, without sparsity.
    `memory_gb_per_s` is its peak memory bandwidth. `memory_gb` is the nominal size of its memory, in GiB except for HBM's round numbers;
    programs can use somewhat less. `computes_in` is the trainer's default there (gangline.train.run.numerics): NVIDIA's cards before
    Ampere have no bf16.
    """

    name: str
    tflops: float
    memory_gb_per_s: float
    memory_gb: int
    computes_in: Literal["bf16", "fp16"] = "bf16"


# NVIDIA's data sheets of server cards often give sparse figures: these are half of them. GeForce cards compute with sums in float32 at
# half the rate of sums in float16: 512 dense FLOP per multiprocessor and clock cycle. The appendices of the architectures' white papers
# give that figure for the first card of each generation; for the others it is multiplied by the clock of the product page.
KINDS = (
    GpuKind(name="A100 40GB", tflops=312, memory_gb_per_s=1555, memory_gb=40),  # NVIDIA A100 data sheet, 2021
    GpuKind(name="A100 80GB", tflops=312, memory_gb_per_s=2039, memory_gb=80),  # the same, SXM
    GpuKind(name="H100 SXM", tflops=989, memory_gb_per_s=3350, memory_gb=80),  # NVIDIA H100 data sheet
    GpuKind(name="H100 NVL", tflops=835, memory_gb_per_s=3900, memory_gb=94),  # the same
    GpuKind(name="H100 PCIe", tflops=756, memory_gb_per_s=2000, memory_gb=80),  # the same, 2023
    GpuKind(name="H200", tflops=989, memory_gb_per_s=4800, memory_gb=141),  # NVIDIA H200 data sheet, SXM
    GpuKind(
        name="B200", tflops=2250, memory_gb_per_s=8000, memory_gb=180
    ),  # NVIDIA DGX B200 data sheet: an eighth of it
    GpuKind(name="MI300X", tflops=1307.4, memory_gb_per_s=5300, memory_gb=192),  # AMD Instinct MI300X data sheet
    GpuKind(name="L40S", tflops=362, memory_gb_per_s=864, memory_gb=48),  # NVIDIA L40S data sheet
    GpuKind(name="L40", tflops=181, memory_gb_per_s=864, memory_gb=48),  # NVIDIA L40 data sheet
    GpuKind(name="L4", tflops=121, memory_gb_per_s=300, memory_gb=24),  # NVIDIA L4 data sheet
    GpuKind(name="A10", tflops=125, memory_gb_per_s=600, memory_gb=24),  # NVIDIA A10 data sheet
    GpuKind(name="A10G", tflops=70, memory_gb_per_s=600, memory_gb=24),  # NVIDIA A10G data sheet, for AWS
    GpuKind(name="A40", tflops=149.7, memory_gb_per_s=696, memory_gb=48),  # NVIDIA A40 data sheet
    GpuKind(name="T4", tflops=65, memory_gb_per_s=300, memory_gb=16, computes_in="fp16"),  # NVIDIA T4 data sheet
    GpuKind(
        name="V100 16GB", tflops=125, memory_gb_per_s=900, memory_gb=16, computes_in="fp16"
    ),  # NVIDIA V100 data sheet, SXM2
    GpuKind(name="V100 32GB", tflops=125, memory_gb_per_s=900, memory_gb=32, computes_in="fp16"),  # the same
    GpuKind(
        name="RTX 6000 Ada", tflops=364.2, memory_gb_per_s=960, memory_gb=48
    ),  # NVIDIA RTX 6000 Ada data sheet: a quarter of its FP8
    GpuKind(name="RTX A6000", tflops=154.8, memory_gb_per_s=768, memory_gb=48),  # NVIDIA RTX A6000 data sheet
    GpuKind(name="RTX A5000", tflops=111.1, memory_gb_per_s=768, memory_gb=24),  # NVIDIA RTX A5000 data sheet
    GpuKind(name="RTX A4000", tflops=76.7, memory_gb_per_s=448, memory_gb=16),  # NVIDIA RTX A4000 data sheet
    GpuKind(
        name="RTX 5090", tflops=209.5, memory_gb_per_s=1792, memory_gb=32
    ),  # NVIDIA RTX Blackwell GPU architecture, appendix A
    GpuKind(name="RTX 5080", tflops=112.6, memory_gb_per_s=960, memory_gb=16),  # the same, appendix B
    GpuKind(name="RTX 5070 Ti", tflops=87.9, memory_gb_per_s=896, memory_gb=16),  # the same, appendix C
    GpuKind(
        name="RTX 4090", tflops=165.2, memory_gb_per_s=1008, memory_gb=24
    ),  # NVIDIA Ada GPU architecture, appendix A
    GpuKind(name="RTX 4080", tflops=97.5, memory_gb_per_s=717, memory_gb=16),  # the same
    GpuKind(name="RTX 4080 SUPER", tflops=104.4, memory_gb_per_s=736, memory_gb=16),  # product page: 80 × 2.55 GHz
    GpuKind(name="RTX 4070 Ti SUPER", tflops=88.2, memory_gb_per_s=672, memory_gb=16),  # product page: 66 × 2.61 GHz
    GpuKind(name="RTX 4070 Ti", tflops=80.2, memory_gb_per_s=504, memory_gb=12),  # product page: 60 × 2.61 GHz
    GpuKind(name="RTX 4060 Ti 16GB", tflops=44.1, memory_gb_per_s=288, memory_gb=16),  # product page: 34 × 2.535 GHz
    GpuKind(name="RTX 4060 Ti 8GB", tflops=44.1, memory_gb_per_s=288, memory_gb=8),  # the same
    GpuKind(name="RTX 4060", tflops=30.2, memory_gb_per_s=272, memory_gb=8),  # product page: 24 × 2.46 GHz
    GpuKind(name="RTX 3090 Ti", tflops=80, memory_gb_per_s=1008, memory_gb=24),  # product page: 84 × 1.86 GHz
    GpuKind(
        name="RTX 3090", tflops=71, memory_gb_per_s=936, memory_gb=24
    ),  # NVIDIA Ampere GA102 GPU architecture, appendix A
    GpuKind(name="RTX 3080 10GB", tflops=59.5, memory_gb_per_s=760, memory_gb=10),  # the same
    GpuKind(name="RTX 3070", tflops=40.7, memory_gb_per_s=448, memory_gb=8),  # product page: 46 × 1.73 GHz
    GpuKind(name="RTX 3060 12GB", tflops=25.5, memory_gb_per_s=360, memory_gb=12),  # product page: 28 × 1.777 GHz
    GpuKind(
        name="RTX 2080 Ti", tflops=53.8, memory_gb_per_s=616, memory_gb=11, computes_in="fp16"
    ),  # NVIDIA Turing, appendix A
)
OTHERS = frozenset({"pcie", "nvl", "ti", "super", "ada", "d", "laptop", "mobile", "max", "mig"})
"""Words that make a card a different one from the card of that number, most often a slower one."""
MEMORY_LEFT_SHARE = 0.1
"""The memory that a driver reports may differ from the nominal size by this share: ECC takes a sixteenth, the driver takes some."""
SLICE = re.compile(r"\d+[abcq]")
"""The last word of the name of a virtual GPU, such as `NVIDIA A40-8Q`."""
NAMES = tuple(kind.name for kind in KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of one kind of GPU as a multiple of another's: lower bound, estimate and upper bound."""

    low: float
    middle: float
    high: float


def find_kind(name: str) -> GpuKind:
    """Return the kind of this name, in any case. Raises `BadInput` with similar names if there is none."""
    by_name = {kind.name.lower(): kind for kind in KINDS}
    if name.lower() in by_name:
        return by_name[name.lower()]
    words = set(name.lower().split())
    near = [kind.name for kind in KINDS if words and words <= set(kind.name.lower().split())]
    near = near or [by_name[found].name for found in get_close_matches(name.lower(), by_name, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(NAMES)}"
    raise BadInput(f"there is no GPU {name}", hint=hint)


def kind_of_device(name: str, memory_gb: float | None = None) -> GpuKind | None:
    """Return the kind of a GPU whose driver reports this name, such as `NVIDIA A100-SXM4-80GB`; None if it is not listed here.

    Some cards are sold under one name with different memory: `memory_gb` distinguishes them, and without it they are not recognised.
    """
    said = set(re.split(r"[^a-z0-9]+", name.lower()))
    # The driver calls an H100 SXM "NVIDIA H100 80GB HBM3"; the names of other H100s have their form factor.
    said |= {"sxm"} if "hbm3" in said and not said & {"nvl", "pcie"} else set()
    return next((kind for kind in KINDS if _is(kind, said, memory_gb)), None)


def _is(kind: GpuKind, said: set[str], memory_gb: float | None) -> bool:
    words = set(kind.name.lower().split())
    if said & OTHERS != words & OTHERS or any(SLICE.fullmatch(word) for word in said):
        return False
    same = memory_gb is not None and abs(memory_gb - kind.memory_gb) <= MEMORY_LEFT_SHARE * kind.memory_gb
    if memory_gb is not None and not same:
        return False
    return words - said <= ({f"{kind.memory_gb}gb"} if same else set())


def speed(kind: GpuKind, beside: GpuKind) -> Speed:
    """Return the speed of `kind` relative to `beside`.

    It lies between the ratio of their peak FLOP/s and that of their memory bandwidths, as each kernel is bound by one of the two (the
    roofline: Williams, Waterman and Patterson 2009). The mix of kernels was not measured, so the estimate is the geometric mean.
    """
    ratios = (kind.tflops / beside.tflops, kind.memory_gb_per_s / beside.memory_gb_per_s)
    return Speed(low=min(ratios), middle=math.sqrt(ratios[0] * ratios[1]), high=max(ratios))
