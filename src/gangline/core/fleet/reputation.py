"""Say what a machine did in all pools, in words."""

from collections.abc import Sequence

from gangline.core.words import counted

DAY_S = 86_400


def record_says(
    *, pools: Sequence[str], succeeded: int, lost: int, moved: int, quarantines: int, lasts_s: float
) -> str:
    """Return the sentence of a machine's record over the last `lasts_s` seconds.

    >>> record_says(pools=("a", "b"), succeeded=9, lost=3, moved=0, quarantines=1, lasts_s=30 * 86_400)
    'in 30 days: 3 of 12 attempts lost in 2 pools, 1 quarantine'
    >>> record_says(pools=(), succeeded=0, lost=0, moved=0, quarantines=0, lasts_s=30 * 86_400)
    'in 30 days: no attempt'
    """
    attempts = succeeded + lost + moved
    said = (
        f"{lost} of {counted(attempts, 'attempt')} lost in {counted(len(pools), 'pool')}" if attempts else "no attempt"
    )
    more = [f"{moved} moved away from it"] if moved else []
    more += [counted(quarantines, "quarantine")] if quarantines else []
    return f"in {counted(max(1, round(lasts_s / DAY_S)), 'day')}: {', '.join([said, *more])}"
