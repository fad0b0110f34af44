"""How fast a class of GPU is at some work: the median of its machines, and the band in which most of them lie.

The spread is taken of logarithms: paces are ratios, and on the log a machine that is twice as slow is as far from the centre as one that is
twice as fast. Median and MAD, not mean and deviation, because a few slow machines would pull the mean and widen the deviation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

MAD_TO_SIGMA = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation (Hampel 1974)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceBand:
    """Seconds per step of the `machines` of one class of GPU at the workload of a job: the median, and one robust standard deviation of the
    logarithms (1.4826 × MAD) below and above it."""

    gpu: str
    machines: int
    median: float
    low: float
    high: float


def centre_and_spread(paces: Sequence[float]) -> tuple[float, float]:
    """Return the median of the logarithms of some paces, and their robust standard deviation. `paces` are over 0, and at least one."""
    logs = [math.log(pace) for pace in paces]
    centre = median(logs)
    return centre, MAD_TO_SIGMA * median(abs(value - centre) for value in logs)


def pace_band(gpu: str, paces: Sequence[float]) -> PaceBand | None:
    """Return the band of some machines' seconds per step; None if no pace is known."""
    known = [pace for pace in paces if pace > 0]
    if not known:
        return None
    centre, spread = centre_and_spread(known)
    return PaceBand(
        gpu=gpu,
        machines=len(known),
        median=math.exp(centre),
        low=math.exp(centre - spread),
        high=math.exp(centre + spread),
    )
