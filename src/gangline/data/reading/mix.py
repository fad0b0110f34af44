"""From which of several data sets each sample comes, by weight: a pure function of its number."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gangline.data.chance import stream
from gangline.data.reading.shuffle import LANES, SampleNumbers

CYCLE = 1024


@dataclass(frozen=True, slots=True)
class Mix:
    """Each `LANES`-th sample is of one lane. Of each `CYCLE` samples of a lane every data set has its share of `weights`, evenly spread,
    from a place on that is drawn for each lane and cycle.

    A sample's number in its data set is of the same lane: so who takes every n-th sample of all takes every n-th of each data set, and
    reads no more blocks of it than if there were no other (where n divides `LANES`).
    """

    seed: int
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        assert self.weights
        assert min(self.weights) > 0

    @property
    def counts(self) -> tuple[int, ...]:
        """How many samples of a cycle each data set has: at least one, and its share to the nearest."""
        return _counts(self.weights)

    @property
    def spread(self) -> int:
        """About so far apart are at most the numbers of one data set, of samples that are neighbours."""
        return 2 * (len(self.weights) + 1) * LANES if len(self.weights) > 1 else 0

    def split(self, numbers: SampleNumbers) -> tuple[SampleNumbers, SampleNumbers]:
        """Of each sample its data set, and its number there."""
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
        """The inverse: the numbers among all samples of these of one data set."""
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
    """By largest remainders, each at least 1."""
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
    """Two cycles in a row: the data set of each place; before each place how many of each; of each data set its places.

    The n-th of a data set's `count` stands where (n + 1/2) / count of the cycle is over, or as near as the others leave it.
    """
    counts = _counts(weights)
    due = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    labels = np.tile(np.repeat(np.arange(len(counts)), counts)[np.argsort(due, kind="stable")], 2)
    before = np.zeros((len(labels) + 1, len(counts)), dtype=np.int64)
    before[1:] = np.cumsum(labels[:, None] == np.arange(len(counts)), axis=0)
    return labels, before, tuple(np.flatnonzero(labels == one) for one in range(len(counts)))


@lru_cache(maxsize=256)
def _drawn(seed: int, cycle: int) -> SampleNumbers:
    """Where each lane begins in its cycle."""
    return stream(seed, "mix", cycle).integers(CYCLE, size=LANES)
