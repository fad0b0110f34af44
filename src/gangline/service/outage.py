"""Our own outages: what nodes could not tell us is not held against them."""

from gangline.ports.store import write
from gangline.service.deployment import Deployment


def note_tick(at: Deployment, now_ms: int) -> None:
    at.store.apply(write("tick", now=now_ms, gap_ms=at.policy.outage_ms))


def back_since_ms(at: Deployment, now_ms: int) -> int:
    """Since when this process, the service as a whole and its database have been there without a gap."""
    found = at.store.load("ticks")[0]
    if now_ms - found["ticked_ms"] > at.policy.outage_ms:
        return now_ms
    return max(found["back_ms"], at.up_since_ms)
