"""Recognise outages of the service, so that nodes are not blamed for silence, and choose which server runs the periodic work."""

from collections.abc import Callable
from functools import cache

from gangline.core.jobs.lease import silent_ms
from gangline.ports.store import guard
from gangline.service.deployment import Deployment


def take_turn(deployment: Deployment, now_ms: int) -> bool:
    """Return whether this server is the one that ticks. It keeps its turn until it has been away for `turn_ms`."""
    turn = guard(
        "tick",
        now=now_ms,
        gap_ms=deployment.policy.outage_ms,
        server=deployment.server,
        turn_ends_ms=now_ms + deployment.policy.turn_ms,
    )
    return deployment.store.apply(turn)


def has_turn(deployment: Deployment, now_ms: int) -> bool:
    """Return whether this server ticked last, and its turn has not expired."""
    found = deployment.store.load("ticks")[0]
    return found["ticker"] == deployment.server and now_ms <= found["turn_ends_ms"]


def back_since_ms(deployment: Deployment, now_ms: int) -> int:
    """Return since when this process, the service as a whole and its database have been up without a gap."""
    found = deployment.store.load("ticks")[0]
    if now_ms - found["ticked_ms"] > deployment.policy.outage_ms:
        return now_ms
    return max(found["back_ms"], deployment.up_since_ms)


def silences(deployment: Deployment, now_ms: int) -> Callable[[int], int]:
    """Return a function that says how long a node with a job is silent, in ms, given when it was heard last. While the service was
    unreachable nobody was."""
    policy = deployment.policy
    back_ms = cache(lambda: back_since_ms(deployment, now_ms))

    def silence_ms(heard_ms: int) -> int:
        found = silent_ms(heard_ms=heard_ms, now_ms=now_ms, policy=policy)
        return found and silent_ms(heard_ms=max(heard_ms, back_ms()), now_ms=now_ms, policy=policy)

    return silence_ms
