"""Compute what time on a node costs, what it was spent on, and what interruptions cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from gangline.core.job import Attempt, AttemptState
from gangline.core.policy import Policy

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
GB = 10**9
MONTH_MS = 30 * DAY_MS

Cause = Literal[
    "training",  # steps that are part of the result
    "samples",  # rendering samples on a node other than the training one, from the claim on
    "start-up",  # a rented node until it joins
    "download",  # from the claim to the first step: inputs, base, checkpoint, preparing
    "redone steps",  # steps lost with an interruption, which another attempt repeats
    "failed",  # the time of a failed attempt after its last checkpoint
    "idle",  # a node without work
    "storage",
    "egress",
    "correction",  # what the provider billed beyond the ledger, after a node was given up; negative: a credit for what it did not bill
]


CostPart = Literal["node time", "storage", "egress"]
"""A part that a cost lacks if its price is not known."""
COST_PARTS: tuple[CostPart, ...] = get_args(CostPart)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """A line of the ledger: the money that a period of time cost, and its cause."""

    cause: Cause
    from_ms: int
    to_ms: int
    micro_usd: int


def time_cost_micro_usd(*, price_micro_usd_per_hour: int, from_ms: int, to_ms: int) -> int:
    """Return the cost of a period as the difference of two running totals: so its parts cost exactly as much as the whole."""
    return price_micro_usd_per_hour * max(from_ms, to_ms) // HOUR_MS - price_micro_usd_per_hour * from_ms // HOUR_MS


def billed_micro_usd(
    price_micro_usd_per_hour: int, from_ms: int, to_ms: int, unbilled: Sequence[tuple[int, int]]
) -> int:
    """Return the cost of a period without the spans in it that are not billed, of which no two overlap."""

    def cost(begin_ms: int, end_ms: int) -> int:
        return time_cost_micro_usd(price_micro_usd_per_hour=price_micro_usd_per_hour, from_ms=begin_ms, to_ms=end_ms)

    return cost(from_ms, to_ms) - sum(
        cost(max(begin_ms, from_ms), min(end_ms, to_ms))
        for begin_ms, end_ms in unbilled
        if begin_ms < to_ms and end_ms > from_ms
    )


def time_line(cause: Cause, price_micro_usd_per_hour: int, from_ms: int, to_ms: int) -> LedgerLine:
    cost = time_cost_micro_usd(price_micro_usd_per_hour=price_micro_usd_per_hour, from_ms=from_ms, to_ms=to_ms)
    return LedgerLine(cause=cause, from_ms=from_ms, to_ms=to_ms, micro_usd=cost)


def lines_of_attempt(attempt: Attempt, state: AttemptState, now_ms: int) -> list[LedgerLine]:
    """Return ledger lines that cover the time of an attempt from its start to now, when it ends as `state`, without gaps."""
    started_ms = attempt.started_ms
    if attempt.training_ms is None and state == "failed":
        return _parts(attempt, ("failed",), [started_ms, now_ms])
    trained_ms = attempt.training_ms if attempt.training_ms is not None else now_ms
    lost: Cause = "failed" if state == "failed" else "redone steps"
    cuts = [started_ms, min(trained_ms, now_ms), _lost_from_ms(attempt, state, now_ms), now_ms]
    return _parts(attempt, ("download", "training", lost), cuts)


def _parts(attempt: Attempt, causes: tuple[Cause, ...], cuts: list[int]) -> list[LedgerLine]:
    parts = zip(causes, pairwise(cuts), strict=True)
    return [time_line(cause, attempt.price_micro_usd_per_hour, a, b) for cause, (a, b) in parts if b > a]


def _lost_from_ms(attempt: Attempt, state: AttemptState, now_ms: int) -> int:
    """Return when the lost time began: the steps after the last commit, and the silence before the end, are lost."""
    if attempt.training_ms is None or state in ("succeeded", "canceled"):
        return now_ms
    lost_steps = max(0, attempt.step - max(attempt.committed_step, attempt.from_step))
    if state == "released" and lost_steps == 0:
        return now_ms
    lost_ms = round(1000 * lost_steps * (attempt.seconds_per_step or 0))
    return min(now_ms, max(attempt.training_ms, attempt.beat_ms - lost_ms))


def storage_micro_usd(size: int, from_ms: int, to_ms: int, usd_per_gb_month: float | None) -> int:
    """Return the cost of storing `size` bytes, in micro-dollars; 0 if the price is not known (None)."""
    return round((usd_per_gb_month or 0) * 1e6 * size / GB * (to_ms - from_ms) / MONTH_MS)


def egress_micro_usd(size: int, usd_per_gb: float | None) -> int:
    """Return the cost of sending `size` bytes, in micro-dollars; 0 if the price is not known (None)."""
    return round((usd_per_gb or 0) * 1e6 * size / GB)


def unknown_parts(policy: Policy, *, node_time: bool) -> tuple[CostPart, ...]:
    """Return the parts that a cost lacks as their prices are not known; `node_time` says that a node had no price."""
    lacking = {
        "node time": node_time,
        "storage": policy.storage_usd_per_gb_month is None,
        "egress": policy.egress_usd_per_gb is None,
    }
    return tuple(part for part in COST_PARTS if lacking[part])


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The cost of a job's interruptions: their number, the steps repeated, and the time in ms until it was back at its old step."""

    interruptions: int
    steps_redone: int
    ms: int


def lost(attempts: Sequence[Attempt]) -> Lost:
    """Return the cost of a job's interruptions, given its attempts in order.

    The time lost lasts from the last heartbeat of an interrupted attempt until the next one trains, and for the steps that it repeats,
    at its pace.
    """
    interruptions = steps = ms = 0
    for before, after in pairwise(attempts):
        if before.state not in ("interrupted", "released"):
            continue
        interruptions += 1
        again = max(0, before.step - after.from_step)
        steps += again
        trains_again_ms = after.training_ms if after.training_ms is not None else after.beat_ms
        ms += max(0, trains_again_ms - before.beat_ms) + round(again * 1000 * (after.seconds_per_step or 0))
    return Lost(interruptions=interruptions, steps_redone=steps, ms=ms)
