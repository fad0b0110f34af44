"""How long to wait before something that failed is tried again."""

from random import Random

RETRY_S_FIRST = 0.5
RETRY_S_MAX = 15.0
DOUBLINGS_MAX = 60


def retry_s(tries: int, rng: Random, *, first_s: float = RETRY_S_FIRST) -> float:
    """Exponential back-off with jitter, after so many tries besides the first."""
    return min(RETRY_S_MAX, first_s * 2 ** min(tries, DOUBLINGS_MAX)) * rng.uniform(0.5, 1)
