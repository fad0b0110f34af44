"""Decide whether a run of `gangline exec` is still active, from what it left in the store. All of this is pure."""

SIGN_S = 300.0
"""A run is considered dead this long after its last sign of life: it uploads its log once a minute, so it has missed four."""
STARTING_S = 1800.0
"""Time that a run may take from its claim to the start of its command: it may have gigabytes to download."""


def is_alive(*, claimed_ms: int, began_ms: int | None, lasted_ms: int, ended: bool, now_ms: int) -> bool:
    """Return whether the run is active. `lasted_ms` is the time from its beginning to its last sign of life; `claimed_ms`, `began_ms` and
    `now_ms` are Unix times."""
    if ended:
        return False
    if began_ms is None:
        return now_ms - claimed_ms < STARTING_S * 1000
    return now_ms - (began_ms + lasted_ms) < SIGN_S * 1000
