"""What goes from a node's cache when it is full: what was used longest ago, and never what is in use."""

from collections.abc import Sequence
from dataclasses import dataclass

PARTIAL_KEPT_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """`partial`: a download that was cut off; `in_use`: by a run, or by who is downloading it."""

    name: str
    bytes: int
    used_s: float
    partial: bool = False
    in_use: bool = False


def to_evict(cached: Sequence[Cached], *, room_bytes: int, limit_bytes: int, now_s: float) -> list[Cached]:
    """What has to go so that `room_bytes` more fit below the limit, as far as that can be; and downloads that nobody wanted again."""
    size = sum(each.bytes for each in cached)
    gone: list[Cached] = []
    for each in sorted((each for each in cached if not each.in_use), key=lambda each: (each.used_s, each.name)):
        if size + room_bytes > limit_bytes or (each.partial and now_s - each.used_s > PARTIAL_KEPT_S):
            gone.append(each)
            size -= each.bytes
    return gone
