"""Estimate the share of its peak that a GPU reaches when it trains a diffusion model, and from that the time of a step.

A microbatch takes passes over layers × `OP_S` + FLOP ÷ achieved FLOP/s. A GPU achieves `REACHED` × √(peak FLOP/s × peak bytes/s): matrix
products are bound by the one, norms, activations and copies by the other, and a step has both (gangline.core.gpus.speed uses the same
mean). Both constants are fitted to an H100, an A100 and an RTX 4090; `SPREAD` is the deviation of their figures from the fit.
benchmarks/estimate_work.py prints all of them, and each beside the prediction from the other GPUs.
"""

import math
from dataclasses import dataclass

from gangline.core.estimates.scaling import student_t
from gangline.core.estimates.work import ComputeWork
from gangline.core.gpus import GpuKind

OP_S = 12.25e-6
"""The least seconds of a pass over a layer, however small: two or three kernels of 5 µs."""
REACHED = 3.88
"""The achieved FLOP/s as a multiple of √(peak FLOP/s × peak bytes/s), in √(FLOP ÷ byte): an H100 with 989 TFLOP/s and 3350 GB/s achieves
223 TFLOP/s, 23 % of its peak. `OP_S` and `REACHED` minimise the squared relative error over `SERIES` series of figures of equal weight."""
SERIES = 6
SPREAD = 0.175
"""The deviation of the series from the fit: the standard deviation of the logarithm of a step's time, with two degrees of freedom less."""
BALANCES = (163.9, 295.2)
"""Peak FLOP/s ÷ peak bytes/s of an RTX 4090 and of an H100; the A100 lies between them."""
BAND_SHARE = 0.80
"""The share of true values that a computed band should contain, for GPUs and programs like those."""

LAUNCH_S = (15e-6, 40e-6, 220e-6)
"""Seconds that the host needs for a pass over a layer if it launches kernels one by one: a fast host, estimated at 5 µs per kernel; half
of the upper bound from published throughput; and the slow host of the H100 in docs/performance.md, which needed 223 to 345 µs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The low, middle and high value of a quantity, in the unit of the field that has it."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> "Band":
        return Band(low=self.low * factor, middle=self.middle * factor, high=self.high * factor)

    def __add__(self, other: "Band") -> "Band":
        return Band(low=self.low + other.low, middle=self.middle + other.middle, high=self.high + other.high)


NONE = Band(low=0.0, middle=0.0, high=0.0)


def reached_flops(kind: GpuKind, *, reached: float = REACHED) -> float:
    """Return the FLOP/s that a GPU achieves with a microbatch that is large enough."""
    return reached * math.sqrt(kind.tflops * 1e12 * kind.memory_gb_per_s * 1e9)


def margin(kind: GpuKind) -> float:
    """Return the factor between the middle and the ends of the band of a step's time: the prediction interval of one more series.

    It is wider for a GPU whose ratio of peaks lies outside those that were measured, by as much as the roofline leaves open there.
    """
    width = student_t((1 + BAND_SHARE) / 2, SERIES - 2) * SPREAD * math.sqrt(1 + 1 / SERIES)
    return math.exp(math.hypot(width, math.log(beyond(kind))))


def beyond(kind: GpuKind) -> float:
    """Return the distance of a GPU from those that were measured: 1 between them, else the factor by which its speed would differ if matrix
    products alone, or memory traffic alone, decided it."""
    balance = kind.tflops * 1e3 / kind.memory_gb_per_s
    return math.sqrt(max(BALANCES[0] / balance, balance / BALANCES[1], 1.0))


def step_s(
    sample: ComputeWork,
    kind: GpuKind,
    *,
    samples: int,
    microbatch: int,
    replayed: bool,
    op_s: float = OP_S,
    reached: float = REACHED,
) -> Band:
    """Return the seconds of all passes in a step of `samples` on one GPU, `microbatch` at a time.

    `replayed` says that the step is a CUDA graph; otherwise the host, which launches the kernels, may be the bottleneck.
    """
    pieces = -(-samples // microbatch)
    on_card = pieces * sample.ops * op_s + samples * sample.flops / reached_flops(kind, reached=reached)
    by_host = [0.0 if replayed else pieces * sample.ops * each for each in LAUNCH_S]
    return Band(
        low=max(on_card / margin(kind), by_host[0]),
        middle=max(on_card, by_host[1]),
        high=max(on_card * margin(kind), by_host[2]),
    )


def optimiser_s(weights: int, kind: GpuKind, *, bytes_each: int) -> float:
    """Return the seconds of an optimiser's update, which is bound by memory: it reads and writes weights, gradients and moments once."""
    return 2 * weights * bytes_each / (kind.memory_gb_per_s * 1e9)
