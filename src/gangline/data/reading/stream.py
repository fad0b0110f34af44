"""Read data sets in a shuffled order, ahead of who uses it.

    with Stream([Shelf(data, Reading(columns=("image", "captions"), seed=7))], rank=0, ranks=8) as stream:
        for batch in stream.batches(first=cursor, size=16): …

`first` is how many samples all ranks together had taken: with the version of each data set it is all there is to resume from. A
process that loads for a rank is a finer rank: of `workers` for each of `ranks`, the w-th of rank r reads as rank r + w · ranks of
ranks · workers.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from gangline.data.reading.mix import Mix
from gangline.data.reading.reader import BlockRows, DataReader
from gangline.data.reading.shuffle import Places, SampleNumbers

THREADS = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples by their `numbers`; `sets` says from which data set each comes, `epochs` how often that was seen before.

    A column of fixed-size lists is an array (samples, numbers), any other a list.
    """

    numbers: SampleNumbers
    sets: SampleNumbers
    epochs: SampleNumbers
    columns: dict[str, Any]

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class RankShare:
    """The samples of one rank: each `ranks`-th from `first` on."""

    first: int
    ranks: int

    def batch(self, number: int, size: int) -> SampleNumbers:
        start = self.first + number * size * self.ranks
        return np.arange(start, start + size * self.ranks, self.ranks, dtype=np.int64)

    def has(self, numbers: SampleNumbers) -> Any:
        return (numbers >= self.first) & ((numbers - self.first) % self.ranks == 0)


class Stream:
    """`weights` mixes several data sets; `close` it, or use it in a `with`."""

    def __init__(
        self,
        readers: Sequence[DataReader],
        *,
        weights: Sequence[float] = (),
        rank: int = 0,
        ranks: int = 1,
        threads: int = THREADS,
    ) -> None:
        assert 0 <= rank < ranks
        self.readers = tuple(readers)
        self.mix = Mix(readers[0].reading.seed, tuple(weights) or (1.0,) * len(readers))
        self.rank = rank
        self.ranks = ranks
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="blocks")

    @property
    def rows(self) -> int:
        """Of all data sets together."""
        return sum(reader.shuffle.rows for reader in self.readers)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def batches(self, first: int, size: int) -> Iterator[Batch]:
        """Without an end: batches of the `size` samples of this rank among `size` · `ranks`, from number `first` on.

        Raises `BadInput` and `Unreachable`. The first one is read alone, so that nobody waits for whole blocks; these are read while
        it is used.
        """
        share = RankShare(first + self.rank, self.ranks)
        ahead = [_Ahead(reader, of, self.mix, share, self._threads) for of, reader in enumerate(self.readers)]
        alone = self._first(share.batch(0, size))
        sets, own = self.mix.split(share.batch(1, size))
        for of in dict.fromkeys(sets.tolist()):
            ahead[of].load(own[sets == of])
        yield alone
        for number in count(1):
            numbers = share.batch(number, size)
            yield self._gathered(numbers, [one.found for one in ahead])

    def _first(self, numbers: SampleNumbers) -> Batch:
        alone = [_Alone(reader, self._threads) for reader in self.readers]
        return self._gathered(numbers, [one.found for one in alone])

    def _gathered(self, numbers: SampleNumbers, found: Sequence[Any]) -> Batch:
        """`found[set](numbers there)` are rows in memory, and the place of each sample in them."""
        sets, own = self.mix.split(numbers)
        values: dict[str, list[Any]] = {name: [None] * len(numbers) for name in self.readers[0].reading.columns}
        epochs = np.empty_like(numbers)
        for of in dict.fromkeys(sets.tolist()):
            at = np.flatnonzero(sets == of)
            epochs[at] = own[at] // self.readers[of].shuffle.rows
            for place, (rows, row) in zip(at.tolist(), found[of](own[at]), strict=True):
                for name, column in values.items():
                    column[place] = rows.value(name, row)
        return Batch(numbers, sets, epochs, {name: _joined(column) for name, column in values.items()})


Window = tuple[int, int]


class _Ahead:
    """Of one data set the blocks of the window that is read, and of the next one, which are loaded meanwhile. Where data sets are mixed,
    the one before stays for as long as some lane may want it."""

    def __init__(self, reader: DataReader, of: int, mix: Mix, share: RankShare, threads: ThreadPoolExecutor) -> None:
        self._reader = reader
        self._of = of
        self._mix = mix
        self._share = share
        self._threads = threads
        self._windows: dict[Window, dict[int, Future[BlockRows] | BlockRows]] = {}

    def found(self, numbers: SampleNumbers) -> Iterator[tuple[BlockRows, int]]:
        keys, places = self.load(numbers)
        for key, block, row in zip(keys, places.block.tolist(), places.row.tolist(), strict=True):
            rows = self._windows[key][block]
            if isinstance(rows, Future):
                rows = self._windows[key][block] = rows.result()
            yield rows, row

    def load(self, numbers: SampleNumbers) -> tuple[list[Window], Places]:
        """Begin to, where it is not done: where these are, and the window after."""
        places = self._reader.shuffle.places(numbers)
        keys = list(zip(places.epoch.tolist(), places.window.tolist(), strict=True))
        earliest = min(*keys, self._reader.shuffle.window_of(max(int(numbers.max()) - self._mix.spread, 0)))
        wanted = [*dict.fromkeys(keys), self._next(max(keys))]
        kept = {key: blocks for key, blocks in self._windows.items() if key >= earliest}
        self._windows = kept | {key: self._loading(key) for key in wanted if key not in kept}
        return keys, places

    def _next(self, key: Window) -> Window:
        epoch, window = key
        return (epoch, window + 1) if window + 1 < self._reader.shuffle.windows else (epoch + 1, 0)

    def _loading(self, key: Window) -> dict[int, Future[BlockRows] | BlockRows]:
        """The blocks of this window that have samples of this rank, in the order in which they are needed."""
        blocks, rows = self._reader.shuffle.window(*key)
        first = self._reader.shuffle.first_of(*key)
        numbers = self._mix.joined(self._of, np.arange(first, first + len(blocks), dtype=np.int64))
        mine = np.flatnonzero(self._share.has(numbers))
        found, starts, counts = np.unique(blocks[mine], return_index=True, return_counts=True)
        by_block = np.split(rows[mine][np.argsort(blocks[mine], kind="stable")], np.cumsum(counts)[:-1])
        soon = np.argsort(starts)
        return {
            int(found[one]): self._threads.submit(self._reader.read, int(found[one]), by_block[one]) for one in soon
        }


class _Alone:
    """Of one data set just the rows that are asked for."""

    def __init__(self, reader: DataReader, threads: ThreadPoolExecutor) -> None:
        self._reader = reader
        self._threads = threads

    def found(self, numbers: SampleNumbers) -> Iterator[tuple[BlockRows, int]]:
        places = self._reader.shuffle.places(numbers)
        wanted: dict[int, list[int]] = {}
        for block, row in zip(places.block.tolist(), places.row.tolist(), strict=True):
            wanted.setdefault(block, []).append(row)
        loading = {
            block: self._threads.submit(self._reader.read, block, np.unique(rows)) for block, rows in wanted.items()
        }
        for block, row in zip(places.block.tolist(), places.row.tolist(), strict=True):
            yield loading[block].result(), row


def _joined(values: list[Any]) -> Any:
    return np.stack(values) if isinstance(values[0], np.ndarray) else values
