"""The order in which a data set's samples are seen, as a pure function of (seed, epoch). Its whole state is one number: how many samples
were taken.

Rows are in blocks, which are read whole. An epoch is a permutation of all blocks, cut into windows of `lanes` blocks; the rows of each
block in a window are permuted, and the window takes one row of each block in turn. So neighbours come from distant places, a reader holds
no more than a window, and a reader of every n-th sample reads only every n-th block of each window (if n divides `lanes`): ranks and loader
processes share the reading without communicating.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gangline.data.chance import stream

LANES = 64

SampleNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Places:
    """The positions of samples: each one's epoch, window in the epoch, block, and row in the block."""

    epoch: SampleNumbers
    window: SampleNumbers
    block: SampleNumbers
    row: SampleNumbers


class Shuffle:
    """The order of a data set whose blocks have `blocks` rows each. Samples are numbered from 0, continuously through the epochs.

    Results that are needed repeatedly are cached: the current window, the next, and the previous one.
    """

    def __init__(self, seed: int, blocks: Sequence[int], lanes: int = LANES) -> None:
        assert blocks, "an empty data set has no order"
        assert min(blocks) > 0, "a block has rows"
        self.seed = seed
        self.lanes = lanes
        self.rows = sum(blocks)
        self.windows = -(-len(blocks) // lanes)
        self._sizes = np.asarray(blocks)
        self._permutation = lru_cache(maxsize=2)(self._permuted)
        self._starts = lru_cache(maxsize=2)(self._counted)
        self.window = lru_cache(maxsize=3)(self._interleaved)

    def places(self, numbers: SampleNumbers) -> Places:
        """Return the positions of the samples with these numbers."""
        epochs, within = np.divmod(numbers, self.rows)
        windows, blocks, rows = (np.empty_like(numbers) for _ in range(3))
        for epoch in dict.fromkeys(epochs.tolist()):
            of_epoch = np.flatnonzero(epochs == epoch)
            starts = self._starts(epoch)
            windows[of_epoch] = np.searchsorted(starts, within[of_epoch], side="right") - 1
            for window in dict.fromkeys(windows[of_epoch].tolist()):
                chosen = of_epoch[windows[of_epoch] == window]
                order = self.window(epoch, window)
                at = within[chosen] - starts[window]
                blocks[chosen], rows[chosen] = order[0][at], order[1][at]
        return Places(epochs, windows, blocks, rows)

    def window_of(self, number: int) -> tuple[int, int]:
        """Return the epoch of a sample, and its window in the epoch."""
        epoch, within = divmod(number, self.rows)
        return epoch, int(np.searchsorted(self._starts(epoch), within, side="right")) - 1

    def first_of(self, epoch: int, window: int) -> int:
        """Return the number of a window's first sample."""
        return epoch * self.rows + int(self._starts(epoch)[window])

    def _permuted(self, epoch: int) -> SampleNumbers:
        return stream(self.seed, "blocks", epoch).permutation(len(self._sizes))

    def _counted(self, epoch: int) -> SampleNumbers:
        """Return how many samples of the epoch come before each of its windows."""
        sizes = self._sizes[self._permutation(epoch)]
        counts = np.add.reduceat(sizes, np.arange(0, len(sizes), self.lanes))
        return np.concatenate(([0], np.cumsum(counts)))[:-1]

    def _interleaved(self, epoch: int, window: int) -> tuple[SampleNumbers, SampleNumbers]:
        """Return block and row of each sample of a window, in order."""
        chosen = self._permutation(epoch)[window * self.lanes : (window + 1) * self.lanes]
        sizes = self._sizes[chosen].tolist()
        lane = np.repeat(np.arange(len(chosen)), sizes)
        turn = np.concatenate([np.arange(size) for size in sizes])
        by_block = zip(chosen.tolist(), sizes, strict=True)
        row = np.concatenate([stream(self.seed, "rows", epoch, block).permutation(size) for block, size in by_block])
        order = np.lexsort((lane, turn))
        return chosen[lane[order]], row[order]


def cut_into_blocks(rows: int, size: int) -> list[range]:
    """Return blocks of `size` rows; the last one may be smaller."""
    return [range(first, min(first + size, rows)) for first in range(0, rows, size)]
