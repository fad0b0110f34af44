"""Chance as a pure function of (seed, purpose, step, sample): no generator has a state to save.

Philox is counter-based (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): streams with
different keys are independent, and starting one costs microseconds.
"""

from hashlib import blake2b

import numpy as np


def stream(seed: int, purpose: str, step: int = 0, sample: int = 0) -> np.random.Generator:
    name = f"{seed}/{purpose}/{step}/{sample}".encode()
    key = int.from_bytes(blake2b(name, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))
