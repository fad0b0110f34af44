"""Format points in time for readers in any time zone: in UTC, and labelled so."""

from datetime import UTC, datetime

FAR_MS = 15 * 60_000


def until(at_ms: int, now_ms: int) -> str:
    """Return the time of an end, rounded up to the minute if it is over 15 minutes away, else to the second; with its date unless today.

    >>> until(1_700_000_000_000, 1_699_999_000_000)
    '22:14 UTC'
    >>> until(1_700_000_000_000, 1_699_999_990_000)
    '22:13:20 UTC'
    """
    unit_ms = 60_000 if at_ms - now_ms > FAR_MS else 1000
    at = datetime.fromtimestamp(-(-at_ms // unit_ms) * unit_ms / 1000, UTC)
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    time = f"{at:%H:%M} UTC" if unit_ms > 1000 else f"{at:%H:%M:%S} UTC"
    return time if at.date() == today else f"{at:%Y-%m-%d} {time}"
