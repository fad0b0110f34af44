"""Decide which examples make up a step, as a pure function: the number of the step is all the state there is."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from gangline.data.chance import stream


@dataclass(frozen=True, slots=True)
class Order:
    """The order of examples in buckets with `counts` examples each; a step takes `batch` examples of one bucket.

    A bucket's examples come as one permutation after the other without a gap: a batch may end one pass and start the next. A round has as
    many batches of each bucket as one pass needs, on average: over many rounds every example is seen equally often, however large its
    bucket is. The buckets of a round's steps are shuffled.
    """

    seed: int
    counts: tuple[int, ...]
    batch: int

    def __post_init__(self) -> None:
        assert self.batch > 0
        assert self.counts and min(self.counts) > 0, "an empty bucket has no batches"

    def step(self, step: int) -> tuple[int, list[int]]:
        """Return the bucket of `step` (from 1), and the indices of its examples in that bucket."""
        bucket, earlier = self._place(step - 1)
        first = earlier * self.batch
        return bucket, self._examples(bucket, range(first, first + self.batch))

    def taken(self, step: int) -> list[tuple[int, list[int]]]:
        """Return what the steps before `step` took of each bucket: how often all of it, and the examples that came once more."""
        turn = self._round_of(step - 1)
        labels = self._buckets_of(turn)[: step - 1 - self._until(turn)]
        found = list[tuple[int, list[int]]]()
        for bucket, count in enumerate(self.counts):
            taken = (turn * count // self.batch + labels.count(bucket)) * self.batch
            found.append((taken // count, self._examples(bucket, range(taken // count * count, taken))))
        return found

    def _place(self, index: int) -> tuple[int, int]:
        """Return the bucket of the batch at `index` (from 0), and how many batches that bucket had before."""
        turn = self._round_of(index)
        labels = self._buckets_of(turn)
        within = index - self._until(turn)
        bucket = labels[within]
        return bucket, turn * self.counts[bucket] // self.batch + labels[:within].count(bucket)

    def _buckets_of(self, turn: int) -> list[int]:
        return _labels(self.seed, turn, tuple(self._batches(bucket, turn) for bucket in range(len(self.counts))))

    def _round_of(self, index: int) -> int:
        """Return the round of the batch at `index`, found by bisection.

        t rounds have at most t · sum(counts) / batch batches; rounding down costs each bucket less than one. So the round is between
        `fewest` and `most`.
        """
        examples = sum(self.counts)
        fewest = index * self.batch // examples
        most = (index + len(self.counts)) * self.batch // examples + 1
        return fewest + bisect_right(range(fewest, most + 1), index, key=self._until) - 1

    def _until(self, turn: int) -> int:
        """Return how many batches the rounds before `turn` have."""
        return sum(turn * count // self.batch for count in self.counts)

    def _batches(self, bucket: int, turn: int) -> int:
        count = self.counts[bucket]
        return (turn + 1) * count // self.batch - turn * count // self.batch

    def _examples(self, bucket: int, places: range) -> list[int]:
        count = self.counts[bucket]
        chosen: list[int] = []
        for turn, part in groupby(places, key=lambda place: place // count):
            permutation = _permutation(self.seed, turn, bucket, count)
            chosen += [permutation[place % count] for place in part]
        return chosen


@lru_cache(maxsize=64)
def _permutation(seed: int, turn: int, bucket: int, among: int) -> list[int]:
    return stream(seed, "order", turn, bucket).permutation(among).tolist()


@lru_cache(maxsize=4)
def _labels(seed: int, turn: int, batches: tuple[int, ...]) -> list[int]:
    """Return the bucket of each batch of a round."""
    labels = [bucket for bucket, count in enumerate(batches) for _ in range(count)]
    return stream(seed, "rounds", turn).permutation(labels).tolist()
