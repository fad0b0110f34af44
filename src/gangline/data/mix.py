"""From which of several data sets each sample comes, by weight: a pure function of its number."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gangline.data.chance import stream
from gangline.data.shuffle import Numbers

CYCLE = 1024


@dataclass(frozen=True, slots=True)
class Mix:
    """Of each `CYCLE` samples every data set has its share of `weights`, in an order that is drawn for each cycle.

    So the i-th sample of a data set has one number, and after any number of samples it is known how many came from each.
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

    def split(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Of each sample its data set, and its number there."""
        if len(self.weights) == 1:
            return np.zeros_like(numbers), numbers
        cycles, slots = np.divmod(numbers, CYCLE)
        sets, within = np.empty_like(numbers), np.empty_like(numbers)
        for cycle in np.unique(cycles):
            chosen = cycles == cycle
            labels, ranks, _ = _cycle(self, int(cycle))
            sets[chosen], within[chosen] = labels[slots[chosen]], ranks[slots[chosen]]
        return sets, cycles * np.asarray(self.counts)[sets] + within

    def joined(self, of: int, numbers: Numbers) -> Numbers:
        """The inverse: the numbers among all samples of these of one data set."""
        if len(self.weights) == 1:
            return numbers
        cycles, within = np.divmod(numbers, self.counts[of])
        found = np.empty_like(numbers)
        for cycle in np.unique(cycles):
            chosen = cycles == cycle
            found[chosen] = cycle * CYCLE + _cycle(self, int(cycle))[2][of][within[chosen]]
        return found


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
def _cycle(mix: Mix, cycle: int) -> tuple[Numbers, Numbers, tuple[Numbers, ...]]:
    """Of each slot its data set and how many of that came before in the cycle; of each data set its slots."""
    labels = stream(mix.seed, "mix", cycle).permutation(np.repeat(np.arange(len(mix.counts)), mix.counts))
    slots = tuple(np.flatnonzero(labels == one) for one in range(len(mix.counts)))
    ranks = np.empty_like(labels)
    for own in slots:
        ranks[own] = np.arange(len(own))
    return labels, ranks, slots
