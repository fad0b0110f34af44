"""Decide what a try to deliver a notice leads to: when the next one comes, and when its endpoint is disabled.

The schedule is that of the Standard Webhooks specification (https://www.standardwebhooks.com): nine retries over three days.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal

NoticeState = Literal["waiting", "delivered", "failed", "dropped"]
NoticeOutcome = Literal["delivered", "again", "gone", "refused", "untried"]

RETRY_S = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds from each failed try to the next one."""
JITTER = 0.2
"""Each pause is longer or shorter by a random share of at most this much, so that messages that failed together come back apart."""
RETRY_AFTER_S_MAX = 86_400.0
DISABLED_AFTER_S = 3 * 86_400.0
"""An endpoint that had no success for this long is disabled when a message has failed at its last try."""
PEOPLE_HOLD_S, PEOPLE_HOLD_S_MAX = 600.0, 3_600.0
"""How long an endpoint for people waits after a failed try whose cause is at this server, and at most after any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedNotice:
    """The state of a notice after a try, and the number of its tries. `due_ms` is when it is tried again, if it is `waiting`."""

    state: NoticeState
    tries: int
    due_ms: int
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedEndpoint:
    """The state of an endpoint after a try. It has failed since `failing_since_ms` (None: its last try succeeded), and it is disabled if
    `disabled` says why."""

    failing_since_ms: int | None
    disabled: str = ""


def message_key(tries: int, due_ms: int) -> tuple[int, int]:
    """Return what the notices of one message for people have in common. New ones are one message. Those that failed as one message are
    sent again as the same, under the same id: they were tried equally often and are due at the same moment."""
    return tries, due_ms if tries else 0


def after_try(
    outcome: NoticeOutcome, because: str, *, tries: int, retry_after_s: float | None, now_ms: int, rng: Random
) -> TriedNotice:
    """Decide what becomes of a notice after its try number `tries`, which counts from 1. If nothing was sent, that was no try."""
    states: dict[NoticeOutcome, NoticeState] = {"delivered": "delivered", "gone": "dropped", "refused": "failed"}
    if outcome in states:
        return TriedNotice(state=states[outcome], tries=tries, due_ms=now_ms, because=because)
    if outcome == "untried":
        return TriedNotice(
            state="waiting", tries=tries - 1, due_ms=now_ms + _pause_ms(RETRY_S[0], rng), because=because
        )
    if tries > len(RETRY_S):
        because = f"{because}, at the last of {tries} tries"
        return TriedNotice(state="failed", tries=tries, due_ms=now_ms, because=because)
    wait_ms = max(_pause_ms(RETRY_S[tries - 1], rng), asked_ms(retry_after_s))
    return TriedNotice(state="waiting", tries=tries, due_ms=now_ms + wait_ms, because=because)


def endpoint_after_try(
    outcome: NoticeOutcome, because: str, *, was_last: bool, failing_since_ms: int | None, now_ms: int
) -> TriedEndpoint:
    """Decide what becomes of an endpoint after a try; `was_last`: its message has failed at the last of its tries, over about three
    days. A message that is refused says nothing of others."""
    if outcome == "delivered":
        return TriedEndpoint(failing_since_ms=None)
    if outcome in ("refused", "untried"):
        return TriedEndpoint(failing_since_ms=failing_since_ms)
    since_ms = now_ms if failing_since_ms is None else failing_since_ms
    if outcome == "gone":
        return TriedEndpoint(failing_since_ms=since_ms, disabled=f"the receiver wants no more messages: {because}")
    if was_last and now_ms - since_ms >= DISABLED_AFTER_S * 1000:
        disabled = f"nothing could be delivered for three days: {because}"
        return TriedEndpoint(failing_since_ms=since_ms, disabled=disabled)
    return TriedEndpoint(failing_since_ms=since_ms)


def asked_ms(retry_after_s: float | None) -> int:
    """Return how long a receiver that asks to wait is sent nothing."""
    return round(min(max(0.0, retry_after_s or 0.0), RETRY_AFTER_S_MAX) * 1000)


def people_hold_ms(*, failing_since_ms: int | None, now_ms: int) -> int:
    """Return how long an endpoint for people waits after a failed try: as long as it has failed, within bounds. What happens meanwhile is
    one message, not one for each fact, each with tries of its own."""
    failing_s = PEOPLE_HOLD_S if failing_since_ms is None else (now_ms - failing_since_ms) / 1000
    return round(min(max(failing_s, RETRY_S[0]), PEOPLE_HOLD_S_MAX) * 1000)


def _pause_ms(seconds: float, rng: Random) -> int:
    return round(1000 * seconds * rng.uniform(1 - JITTER, 1 + JITTER))
