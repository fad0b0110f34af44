"""Whether a run of `gangline exec` is at work, by what it left in the store. All of this is pure."""

SIGN_S = 300.0
"""A run sends its log once a minute: this one has missed four."""
STARTING_S = 1800.0
"""How long a run may take from its number to its command: it may have gigabytes to download."""


def is_alive(*, claimed_ms: int, began_ms: int | None, lasted_ms: int, ended: bool, now_ms: int) -> bool:
    """`lasted_ms`: from its beginning to its last sign of life. All moments are Unix times."""
    if ended:
        return False
    if began_ms is None:
        return now_ms - claimed_ms < STARTING_S * 1000
    return now_ms - (began_ms + lasted_ms) < SIGN_S * 1000
