"""How long to wait before something that failed is tried again."""

from random import Random

RETRY_S_FIRST = 0.5
RETRY_S_MAX = 15.0
DOUBLINGS_MAX = 60
PAUSE_S_FIRST, PAUSE_S_MAX = 10.0, 900.0


def retry_s(tries: int, rng: Random, *, first_s: float = RETRY_S_FIRST) -> float:
    """Exponential back-off with jitter, after so many tries besides the first."""
    return min(RETRY_S_MAX, first_s * 2 ** min(tries, DOUBLINGS_MAX)) * rng.uniform(0.5, 1)


def pause_s(tries: int) -> float:
    """What a server does off anybody's path and others hold up: how long it leaves it alone after so many tries."""
    return min(PAUSE_S_MAX, PAUSE_S_FIRST * 2 ** min(tries - 1, DOUBLINGS_MAX))
