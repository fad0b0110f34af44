"""All randomness of a run, as a pure function of (seed, purpose, step, sample): interrupted or not, a run draws the same numbers."""

from collections.abc import Iterable
from concurrent.futures import Executor

import numpy as np
import torch

from gangline.data.chance import stream, streams

AT_A_TIME = 16
"""Samples that a thread draws for in one task: some milliseconds of work."""


def normal(
    seed: int,
    purpose: str,
    step: int,
    samples: Iterable[int],
    shape: tuple[int, ...],
    threads: Executor | None = None,
) -> torch.Tensor:
    """Draw standard normal numbers (samples, *shape) in float32 on the CPU. A sample's numbers do not depend on the other samples."""
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
    """Draw integers in [0, below) on the CPU, one for each sample: (samples,), int64."""
    return torch.tensor([int(own.integers(below)) for own in streams(seed, purpose, step, samples)])


def weighted(seed: int, purpose: str, step: int, samples: Iterable[int], weights: np.ndarray) -> torch.Tensor:
    """Draw places in `weights`, each as often as its weight says, on the CPU, one for each sample: (samples,), int64."""
    sums = np.cumsum(weights, dtype=np.float64)
    drawn = np.array([own.random() for own in streams(seed, purpose, step, samples)])
    places = np.searchsorted(sums, drawn * sums[-1], side="right")
    return torch.from_numpy(np.minimum(places, len(sums) - 1))  # a product may be rounded up to the whole sum


def seed_torch(seed: int, purpose: str, step: int = 0) -> None:
    """Seed the random numbers that libraries draw themselves from here on (initial weights, dropout)."""
    torch.manual_seed(int(stream(seed, purpose, step).integers(2**63)))


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return a generator for a library that draws by itself; it is on the CPU and separate from torch's global one."""
    return torch.Generator().manual_seed(int(stream(seed, purpose).integers(2**63)))
