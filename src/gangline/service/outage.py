"""Our own outages: what nodes could not tell us is not held against them; and whose turn it is to notice."""

from gangline.ports.store import guard
from gangline.service.deployment import Deployment


def take_turn(deployment: Deployment, now_ms: int) -> bool:
    """Whether it is this server that ticks: it has its turn until it was away for `turn_ms`."""
    turn = guard(
        "tick",
        now=now_ms,
        gap_ms=deployment.policy.outage_ms,
        server=deployment.server,
        turn_ends_ms=now_ms + deployment.policy.turn_ms,
    )
    return deployment.store.apply(turn)


def has_turn(deployment: Deployment, now_ms: int) -> bool:
    """Whether it is this server that ticked last, and not long ago."""
    found = deployment.store.load("ticks")[0]
    return found["ticker"] == deployment.server and now_ms <= found["turn_ends_ms"]


def back_since_ms(deployment: Deployment, now_ms: int) -> int:
    """Since when this process, the service as a whole and its database have been there without a gap."""
    found = deployment.store.load("ticks")[0]
    if now_ms - found["ticked_ms"] > deployment.policy.outage_ms:
        return now_ms
    return max(found["back_ms"], deployment.up_since_ms)
