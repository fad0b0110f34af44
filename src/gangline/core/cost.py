"""What time on a node costs, and what interruptions cost."""

from dataclasses import dataclass
from itertools import pairwise

from gangline.core.job import Attempt

HOUR_MS = 3_600_000


def time_cost_micro_usd(*, price_micro_usd_per_hour: int, from_ms: int, to_ms: int) -> int:
    """Rounded half up, so that a ledger's lines never fall short of the provider's together by more than half a micro-dollar each."""
    return (price_micro_usd_per_hour * max(0, to_ms - from_ms) * 2 + HOUR_MS) // (2 * HOUR_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a job's interruptions cost: how many, steps trained twice, and the time until it stood where it had stood before."""

    interruptions: int
    steps_redone: int
    ms: int


def lost(attempts: list[Attempt]) -> Lost:
    """Over a job's attempts in order. Time lost: from the last heartbeat of the one that was cut off until the next
    one trains, and then the steps that it does again, at its own pace."""
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
