"""The order of samples in which a data set is seen, as a pure function of (seed, epoch). Its whole state is a number: how many
samples were taken.

Rows lie in blocks, which are read whole. An epoch is a permutation of all blocks, cut into windows of `lanes` blocks; the rows of
each block of a window are permuted, and the window takes one of each block in turn. So neighbours come from places far apart, a
reader holds no more than a window, and whoever takes every n-th sample reads only every n-th block of each window (where n
divides `lanes`): ranks and loader processes share the reading without knowing of each other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from gangline.data.chance import stream

LANES = 64
SHUFFLES = 64
WINDOWS = 3
"""As many are kept: of data sets; and of each the window that is read, the next one, and the one before."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Places:
    """Where samples lie: of each its epoch, the window of that, its block, and its row in that block."""

    epoch: Numbers
    window: Numbers
    block: Numbers
    row: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Shuffle:
    """`blocks` has the number of rows of each. Samples are numbered from 0, on and on through the epochs.

    Two are never equal: what is kept of one is found by it, and to hash all of its blocks each time would take longer than the rest.
    """

    seed: int
    blocks: tuple[int, ...]
    lanes: int = LANES

    def __post_init__(self) -> None:
        assert self.blocks, "an empty data set has no order"
        assert min(self.blocks) > 0, "a block has rows"

    @property
    def rows(self) -> int:
        return _rows(self)

    @property
    def windows(self) -> int:
        return -(-len(self.blocks) // self.lanes)

    def places(self, numbers: Numbers) -> Places:
        """Of samples in rising order."""
        epochs, within = np.divmod(numbers, self.rows)
        windows, blocks, rows = (np.empty_like(numbers) for _ in range(3))
        for epoch in dict.fromkeys(epochs.tolist()):
            of_epoch = np.flatnonzero(epochs == epoch)
            starts = _starts(self, epoch)
            windows[of_epoch] = np.searchsorted(starts, within[of_epoch], side="right") - 1
            for window in dict.fromkeys(windows[of_epoch].tolist()):
                chosen = of_epoch[windows[of_epoch] == window]
                order = self.window(epoch, window)
                at = within[chosen] - starts[window]
                blocks[chosen], rows[chosen] = order[0][at], order[1][at]
        return Places(epochs, windows, blocks, rows)

    def window(self, epoch: int, window: int) -> tuple[Numbers, Numbers]:
        """Block and row of each of its samples, in their order."""
        return _windows(self)(epoch, window)

    def first_of(self, epoch: int, window: int) -> int:
        """The number of its first sample."""
        return epoch * self.rows + int(_starts(self, epoch)[window])


def cut_into_blocks(rows: int, size: int) -> list[range]:
    """Of `size` rows each, but for the last."""
    return [range(first, min(first + size, rows)) for first in range(0, rows, size)]


@lru_cache(maxsize=SHUFFLES)
def _rows(shuffle: Shuffle) -> int:
    return sum(shuffle.blocks)


@lru_cache(maxsize=16)
def _permutation(shuffle: Shuffle, epoch: int) -> Numbers:
    return stream(shuffle.seed, "blocks", epoch).permutation(len(shuffle.blocks))


@lru_cache(maxsize=16)
def _starts(shuffle: Shuffle, epoch: int) -> Numbers:
    """How many samples of the epoch come before each of its windows."""
    sizes = np.asarray(shuffle.blocks)[_permutation(shuffle, epoch)]
    return np.concatenate(([0], np.cumsum(np.add.reduceat(sizes, np.arange(0, len(sizes), shuffle.lanes)))))[:-1]


@lru_cache(maxsize=SHUFFLES)
def _windows(shuffle: Shuffle) -> Callable[[int, int], tuple[Numbers, Numbers]]:
    """Each data set keeps its own, so that any number of them can be mixed."""
    return lru_cache(maxsize=WINDOWS)(partial(_window, shuffle))


def _window(shuffle: Shuffle, epoch: int, window: int) -> tuple[Numbers, Numbers]:
    first = window * shuffle.lanes
    chosen = _permutation(shuffle, epoch)[first : first + shuffle.lanes]
    sizes = [shuffle.blocks[block] for block in chosen]
    lane = np.repeat(np.arange(len(chosen)), sizes)
    turn = np.concatenate([np.arange(size) for size in sizes])
    row = np.concatenate(
        [
            stream(shuffle.seed, "rows", epoch, int(block)).permutation(size)
            for block, size in zip(chosen, sizes, strict=True)
        ]
    )
    order = np.lexsort((lane, turn))
    return chosen[lane[order]], row[order]
