"""Our own outages: what nodes could not tell us is not held against them; and whose turn it is to notice."""

from gangline.ports.store import guard
from gangline.service.deployment import Deployment


def take_turn(at: Deployment, now_ms: int) -> bool:
    """Whether it is this server that ticks: it has its turn until it was away for `turn_ms`."""
    turn = guard(
        "tick", now=now_ms, gap_ms=at.policy.outage_ms, server=at.server, turn_ends_ms=now_ms + at.policy.turn_ms
    )
    return at.store.apply(turn)


def has_turn(at: Deployment, now_ms: int) -> bool:
    """Whether it is this server that ticked last, and not long ago."""
    found = at.store.load("ticks")[0]
    return found["ticker"] == at.server and now_ms <= found["turn_ends_ms"]


def back_since_ms(at: Deployment, now_ms: int) -> int:
    """Since when this process, the service as a whole and its database have been there without a gap."""
    found = at.store.load("ticks")[0]
    if now_ms - found["ticked_ms"] > at.policy.outage_ms:
        return now_ms
    return max(found["back_ms"], at.up_since_ms)
