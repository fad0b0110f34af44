"""Decide which of several data sets each sample comes from, by weight, as a pure function of the sample's number.

Why not draw a data set at random for each sample? Then the number of a sample inside its data set would be the count of all draws before
it: a resume at step n would have to replay n draws, and a rank could not find its own samples without everybody else's. Here both
directions (`split`, `joined`) are arithmetic on one precomputed cycle.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gangline.data.chance import stream
from gangline.data.reading.shuffle import LANES, SampleNumbers

CYCLE = 1024


@dataclass(frozen=True, slots=True)
class Mix:
    """Every `LANES`-th sample belongs to one lane. In each cycle of `CYCLE` samples of a lane, every data set has its share of `weights`,
    evenly spread, starting at a position that is drawn for each lane and cycle, so that the lanes do not move in step.

    A sample keeps its lane inside its data set, so a rank that takes every n-th sample overall takes every n-th sample of each data set,
    and reads no more blocks of it than if it were alone (for every n that divides `LANES`).
    """

    seed: int
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        assert self.weights
        assert min(self.weights) > 0

    @property
    def counts(self) -> tuple[int, ...]:
        """Samples of each data set in a cycle: its share, rounded, and at least one, so that no data set disappears."""
        return _counts(self.weights)

    @property
    def spread(self) -> int:
        """Upper bound of the distance between the numbers, in one data set, of samples that are neighbours in the mix."""
        return 2 * (len(self.weights) + 1) * LANES if len(self.weights) > 1 else 0

    def split(self, numbers: SampleNumbers) -> tuple[SampleNumbers, SampleNumbers]:
        """Return the data set of each sample, and its number in that data set."""
        if len(self.weights) == 1:
            return np.zeros_like(numbers), numbers
        turns, lanes = np.divmod(numbers, LANES)
        cycles, within = np.divmod(turns, CYCLE)
        labels, before, _ = _cycle(self.weights)
        starts = self._starts(cycles, lanes)
        sets = labels[(starts + within) % CYCLE]
        own = before[starts + within, sets] - before[starts, sets]
        return sets, (cycles * np.asarray(self.counts)[sets] + own) * LANES + lanes

    def joined(self, of: int, numbers: SampleNumbers) -> SampleNumbers:
        """Return the overall numbers of these samples of data set `of`: the inverse of `split`."""
        if len(self.weights) == 1:
            return numbers
        turns, lanes = np.divmod(numbers, LANES)
        cycles, own = np.divmod(turns, self.counts[of])
        _, before, places = _cycle(self.weights)
        starts = self._starts(cycles, lanes)
        within = places[of][before[starts, of] + own] - starts
        return (cycles * CYCLE + within) * LANES + lanes

    def _starts(self, cycles: SampleNumbers, lanes: SampleNumbers) -> SampleNumbers:
        found, at = np.unique(cycles, return_inverse=True)
        return np.stack([_drawn(self.seed, int(cycle)) for cycle in found])[at, lanes]


@lru_cache(maxsize=64)
def _counts(weights: tuple[float, ...]) -> tuple[int, ...]:
    """Return the counts by largest remainder, each at least 1."""
    exact = [weight / sum(weights) * CYCLE for weight in weights]
    counts = [max(1, int(share)) for share in exact]
    by_rest = sorted(range(len(weights)), key=lambda one: counts[one] - exact[one])
    for turn in range(abs(CYCLE - sum(counts))):
        short = sum(counts) < CYCLE
        one = by_rest[turn % len(by_rest)] if short else max(range(len(counts)), key=lambda one: counts[one])
        counts[one] += 1 if short else -1
    return tuple(counts)


@lru_cache(maxsize=64)
def _cycle(weights: tuple[float, ...]) -> tuple[SampleNumbers, SampleNumbers, tuple[SampleNumbers, ...]]:
    """Return two cycles in a row: each position's data set, how many of each data set stand before it, and each data set's positions.

    Two, because a lane may start anywhere in the first one. The n-th of a data set's `count` samples stands at (n + 1/2) / count of the
    cycle, or as near to that as the other data sets allow.
    """
    counts = _counts(weights)
    due = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    labels = np.tile(np.repeat(np.arange(len(counts)), counts)[np.argsort(due, kind="stable")], 2)
    before = np.zeros((len(labels) + 1, len(counts)), dtype=np.int64)
    before[1:] = np.cumsum(labels[:, None] == np.arange(len(counts)), axis=0)
    return labels, before, tuple(np.flatnonzero(labels == one) for one in range(len(counts)))


@lru_cache(maxsize=256)
def _drawn(seed: int, cycle: int) -> SampleNumbers:
    """Draw where each lane starts in its cycle."""
    return stream(seed, "mix", cycle).integers(CYCLE, size=LANES)
