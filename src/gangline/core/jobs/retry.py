"""Compute how long to wait before a retry."""

from random import Random

RETRY_S_FIRST = 0.5
RETRY_S_MAX = 15.0
DOUBLINGS_MAX = 60
PAUSE_S_FIRST, PAUSE_S_MAX = 10.0, 900.0


def retry_s(tries: int, rng: Random, *, first_s: float = RETRY_S_FIRST, most_s: float = RETRY_S_MAX) -> float:
    """Return the seconds before the next try: exponential back-off with jitter. `tries` counts the retries so far."""
    return min(most_s, first_s * 2 ** min(tries, DOUBLINGS_MAX)) * rng.uniform(0.5, 1)


def pause_s(tries: int) -> float:
    """Return the seconds before the server retries background work that others hold up (copies from the hub, deliveries, imports)."""
    return min(PAUSE_S_MAX, PAUSE_S_FIRST * 2 ** min(tries - 1, DOUBLINGS_MAX))
