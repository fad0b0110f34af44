"""Limit the rate of each sender by a token bucket."""

from collections import OrderedDict
from dataclasses import dataclass

SENDERS_MAX = 10_000
"""The number of buckets kept. The least recently used one is dropped, and its sender starts again with a full one."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    seen_s: float


class RateLimiter:
    """A bucket per sender: `burst` requests at once, refilled by `per_s` per second."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, sender: str, now_s: float) -> float:
        """Count one request and return 0, or return the seconds until the sender may try again and count nothing."""
        wait_s = self.wait_s(sender, now_s)
        if wait_s == 0:
            self._buckets[sender].tokens -= 1
        return wait_s

    def wait_s(self, sender: str, now_s: float) -> float:
        """Return the seconds until the sender may send a request, without counting one; 0 if it may now."""
        bucket = self._refilled(sender, now_s)
        return 0.0 if bucket.tokens >= 1 else (1 - bucket.tokens) / self._per_s

    def _refilled(self, sender: str, now_s: float) -> _Bucket:
        bucket = self._buckets.setdefault(sender, _Bucket(self._burst, now_s))
        bucket.tokens = min(self._burst, bucket.tokens + (now_s - bucket.seen_s) * self._per_s)
        bucket.seen_s = now_s
        self._buckets.move_to_end(sender)
        if len(self._buckets) > SENDERS_MAX:
            self._buckets.popitem(last=False)
        return bucket
