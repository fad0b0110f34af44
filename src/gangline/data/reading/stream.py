"""Read data sets in shuffled order, ahead of their use.

    reader = DataReader(data, ReadOrder(columns=("image", "captions"), seed=7))
    with Stream([reader], rank=0, ranks=8) as stream:
        for batch in stream.batches(first=cursor, size=16): …

`first` is how many samples all ranks together have taken: with the version of each data set that is all the state needed to resume. A
loader process of a rank is a finer rank: with `workers` for each of `ranks`, the w-th of rank r reads as rank r + w · ranks of ranks ·
workers.
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
    """Samples with their `numbers`; `sets` is each one's data set, `epochs` how many times that data set was seen before.

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
    """The samples of one rank: every `ranks`-th from `first` on."""

    first: int
    ranks: int

    def batch(self, number: int, size: int) -> SampleNumbers:
        """Return the sample numbers of this rank's batch `number`, counted from 0."""
        start = self.first + number * size * self.ranks
        return np.arange(start, start + size * self.ranks, self.ranks, dtype=np.int64)

    def has(self, numbers: SampleNumbers) -> Any:
        """Return for each number whether it belongs to this rank."""
        return (numbers >= self.first) & ((numbers - self.first) % self.ranks == 0)


class Stream:
    """The batches of one rank, from one data set or several mixed by `weights`. Call `close`, or use it as a context manager."""

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
        """Rows of all data sets together."""
        return sum(reader.shuffle.rows for reader in self.readers)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def batches(self, first: int, size: int) -> Iterator[Batch]:
        """Yield batches of this rank's `size` samples among `size` · `ranks`, from sample number `first` on, without end.

        Raise `BadInput` or `Unreachable`. The first batch reads only its rows, so that nobody waits for whole blocks, which load while it
        is used.
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
        """Build a batch. `found[set](numbers there)` yields rows in memory, and the position of each sample in them."""
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
    """The blocks of one data set's current window, and those of the next one, which load meanwhile. If data sets are mixed, the previous
    window stays for as long as any lane may need it."""

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
        """Start to load the windows of these samples and the window after them, unless already started."""
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
        """Start to load the window's blocks that have samples of this rank, in the order in which they are needed."""
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
    """Only those rows of one data set that are requested."""

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
