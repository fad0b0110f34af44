"""Choose the entries to evict from a node's cache when it is full: the least recently used ones, but none in use."""

from collections.abc import Sequence
from dataclasses import dataclass

PARTIAL_KEPT_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """An entry of the cache. `partial` marks an incomplete download; `in_use` says that a run or a download uses it now."""

    name: str
    bytes: int
    used_s: float
    partial: bool = False
    in_use: bool = False


def to_evict(cached: Sequence[Cached], *, room_bytes: int, limit_bytes: int, now_s: float) -> list[Cached]:
    """Return the entries to evict so that `room_bytes` more fit below the limit, as far as possible; and stale partial downloads.

    A partial download that was not resumed for a day is deleted even if there is room.
    """
    size = sum(each.bytes for each in cached)
    gone: list[Cached] = []
    for each in sorted((each for each in cached if not each.in_use), key=lambda each: (each.used_s, each.name)):
        if size + room_bytes > limit_bytes or (each.partial and now_s - each.used_s > PARTIAL_KEPT_S):
            gone.append(each)
            size -= each.bytes
    return gone
