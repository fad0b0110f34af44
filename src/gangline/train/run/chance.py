"""All chance of a run as a pure function of (seed, purpose, step, sample): interrupted or not, a run draws the same numbers."""

from collections.abc import Iterable
from concurrent.futures import Executor

import numpy as np
import torch

from gangline.data.chance import stream, streams

AT_A_TIME = 16
"""Samples that a thread draws for: some milliseconds' work."""


def normal(
    seed: int,
    purpose: str,
    step: int,
    samples: Iterable[int],
    shape: tuple[int, ...],
    threads: Executor | None = None,
) -> torch.Tensor:
    """Standard normal float32 numbers on the CPU, one of `shape` for each sample; the same whoever draws them."""
    numbers = list(samples)
    drawn = np.empty((len(numbers), *shape), np.float32)

    def draw(first: int) -> None:
        rows = slice(first, first + AT_A_TIME)
        for row, own in zip(drawn[rows], streams(seed, purpose, step, numbers[rows]), strict=True):
            own.standard_normal(out=row, dtype=np.float32)

    for _ in (threads.map if threads else map)(draw, range(0, len(numbers), AT_A_TIME)):
        pass
    return torch.from_numpy(drawn)


def integers(seed: int, purpose: str, step: int, samples: Iterable[int], below: int) -> torch.Tensor:
    """Whole numbers in [0, below) on the CPU, one for each sample."""
    return torch.tensor([int(own.integers(below)) for own in streams(seed, purpose, step, samples)])


def seed_torch(seed: int, purpose: str, step: int = 0) -> None:
    """Fix what the libraries themselves draw (initial weights, dropout) from here on."""
    torch.manual_seed(int(stream(seed, purpose, step).integers(2**63)))


def generator(seed: int, purpose: str) -> torch.Generator:
    """For a library that draws by itself; on the CPU, and apart from torch's own."""
    return torch.Generator().manual_seed(int(stream(seed, purpose).integers(2**63)))
