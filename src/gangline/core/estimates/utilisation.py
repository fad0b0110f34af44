"""How much of its peak a card reaches when it trains a diffusion model, and how long a step takes by that. Pure.

A microbatch takes passes over layers × `OP_S` + FLOP ÷ what the card reaches. What it reaches is `REACHED` × √(peak FLOP/s × peak bytes/s):
products are bound by the one, norms, activations and copies by the other, and a step has both (gangline.core.gpus.speed takes the same
mean). Both constants come from an H100, an A100 and an RTX 4090; `SPREAD` is how far those figures lie from it. benchmarks/estimate_work.py
prints them all, and each beside what the other cards say.
"""

import math
from dataclasses import dataclass

from gangline.core.estimates.scaling import student_t
from gangline.core.estimates.work import ComputeWork
from gangline.core.gpus import GpuKind

OP_S = 12.25e-6
"""A pass over a layer takes so long at least, however small: two or three kernels of 5 µs."""
REACHED = 3.88
"""√(FLOP ÷ byte): of an H100's 989 TFLOP/s and 3350 GB/s it makes 223 TFLOP/s, 23 % of the peak. Both are the least squares of the
relative error over `SERIES` series of figures, each of the same weight."""
SERIES = 6
SPREAD = 0.175
"""How far the series lie from it, as the standard deviation of a step's logarithm, with two degrees of freedom less."""
BALANCES = (163.9, 295.2)
"""FLOP for a byte, of the peaks of an RTX 4090 and of an H100; the A100 is between them."""
BAND_SHARE = 0.80
"""A computed band is meant to hold so many of the true values, on cards and programs like those."""

LAUNCH_S = (15e-6, 40e-6, 220e-6)
"""The host needs so long for a pass over a layer where kernels are launched one by one: a fast one, by an estimate of 5 µs a kernel; half
of what published throughput leaves it at most; and the slow host of the H100 in docs/performance.md, which needed 223 to 345."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Low, middle and high of a quantity whose unit its field says."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> "Band":
        return Band(low=self.low * factor, middle=self.middle * factor, high=self.high * factor)

    def __add__(self, other: "Band") -> "Band":
        return Band(low=self.low + other.low, middle=self.middle + other.middle, high=self.high + other.high)


NONE = Band(low=0.0, middle=0.0, high=0.0)


def reached_flops(kind: GpuKind, *, reached: float = REACHED) -> float:
    """FLOP/s while enough samples are computed at once."""
    return reached * math.sqrt(kind.tflops * 1e12 * kind.memory_gb_per_s * 1e9)


def margin(kind: GpuKind) -> float:
    """The factor by which a step may take longer, or less long: that of a prediction interval of one more series. It is wider for a card
    whose two peaks are in another relation than those of all that were measured, by as much as the roofline leaves open there."""
    width = student_t((1 + BAND_SHARE) / 2, SERIES - 2) * SPREAD * math.sqrt(1 + 1 / SERIES)
    return math.exp(math.hypot(width, math.log(beyond(kind))))


def beyond(kind: GpuKind) -> float:
    """How far a card is from those that were measured: 1 between them, else the factor by which products alone, or memory alone, would make
    it faster or slower than both together."""
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
    """Seconds of the passes of one step of `samples` on one card, `microbatch` at a time. `replayed`: as a CUDA graph; else the host may be
    what bounds it."""
    pieces = -(-samples // microbatch)
    on_card = pieces * sample.ops * op_s + samples * sample.flops / reached_flops(kind, reached=reached)
    by_host = [0.0 if replayed else pieces * sample.ops * each for each in LAUNCH_S]
    return Band(
        low=max(on_card / margin(kind), by_host[0]),
        middle=max(on_card, by_host[1]),
        high=max(on_card * margin(kind), by_host[2]),
    )


def optimiser_s(weights: int, kind: GpuKind, *, bytes_each: int) -> float:
    """Moving weights reads and writes them, their gradients and moments once: bound by memory."""
    return 2 * weights * bytes_each / (kind.memory_gb_per_s * 1e9)
