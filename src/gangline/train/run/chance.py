"""All chance of a run as a pure function of (seed, purpose, step, sample): interrupted or not, a run draws the same numbers."""

from collections.abc import Iterable

import numpy as np
import torch

from gangline.data.chance import stream


def normal(seed: int, purpose: str, step: int, samples: Iterable[int], shape: tuple[int, ...]) -> torch.Tensor:
    """Standard normal float32 numbers on the CPU, one of `shape` for each sample."""
    draws = [stream(seed, purpose, step, sample).standard_normal(shape, dtype=np.float32) for sample in samples]
    return torch.from_numpy(np.stack(draws))


def integers(seed: int, purpose: str, step: int, samples: Iterable[int], below: int) -> torch.Tensor:
    """Whole numbers in [0, below) on the CPU, one for each sample."""
    return torch.tensor([int(stream(seed, purpose, step, sample).integers(below)) for sample in samples])


def seed_torch(seed: int, purpose: str, step: int = 0) -> None:
    """Fix what the libraries themselves draw (initial weights, dropout) from here on."""
    torch.manual_seed(int(stream(seed, purpose, step).integers(2**63)))


def generator(seed: int, purpose: str) -> torch.Generator:
    """For a library that draws by itself; on the CPU, and apart from torch's own."""
    return torch.Generator().manual_seed(int(stream(seed, purpose).integers(2**63)))
