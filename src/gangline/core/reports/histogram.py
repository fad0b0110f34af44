"""Count values in bins of equal and round width."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

BINS_MAX = 20
SHOWN_SHARE = 0.99
"""The bins reach at least this share of the values. The greatest ones are counted together: one of them would flatten all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of values from `start` on, in bins of `width`, each with its lower edge and without its upper one. `above` counts the values
    that are greater than all bins."""

    start: float
    width: float
    counts: tuple[int, ...]
    above: int


def count_in_bins(values: Sequence[float]) -> Histogram | None:
    """Return the histogram of values; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    low, high = ordered[0], ordered[min(len(ordered) - 1, math.ceil(SHOWN_SHARE * len(ordered)) - 1)]
    width = _round_width((high - low) / (BINS_MAX - 1) or abs(high) / BINS_MAX or 1.0)
    first, last = math.floor(low / width), math.floor(high / width)
    counts, above = [0] * (last - first + 1), 0
    for value in ordered:
        at = math.floor(value / width) - first
        if at < len(counts):
            counts[at] += 1
        else:
            above += 1
    return Histogram(start=first * width, width=width, counts=tuple(counts), above=above)


def _round_width(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= least * (1 - 1e-9))
