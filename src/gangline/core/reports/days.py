"""Cut a span of time into the days of a reader's time zone."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from gangline.core.errors import BadInput
from gangline.core.money.cost import DAY_MS
from gangline.core.money.forecast import CostSpan

EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpan:
    """A span of time in which a zone has one offset: local time is `offset_ms` ahead of UTC."""

    from_ms: int
    until_ms: int
    offset_ms: int


def parse_zone(name: str) -> ZoneInfo:
    """Return the time zone of this IANA name, such as Europe/Berlin. Raise `BadInput` if there is none.

    >>> parse_zone("Europe/Berlin").key
    'Europe/Berlin'
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # a name that is no file, leaves the folder, or is not there
        raise BadInput(
            f"zone: there is no time zone {name!r}", hint="give its IANA name, such as UTC, Europe/Berlin or Asia/Tokyo"
        ) from None


def offset_spans(from_ms: int, until_ms: int, zone: ZoneInfo) -> Iterator[OffsetSpan]:
    """Yield the spans of one offset from `from_ms` until `until_ms`, in order. Two changes within a day may be missed."""
    begins, at = from_ms, from_ms
    while at < until_ms:
        following = min(at + DAY_MS, until_ms)
        if _offset_ms(at, zone) != _offset_ms(following, zone):
            following = _change(at, following, zone)
            yield OffsetSpan(from_ms=begins, until_ms=following, offset_ms=_offset_ms(at, zone))
            begins = following
        at = following
    if begins < until_ms:
        yield OffsetSpan(from_ms=begins, until_ms=until_ms, offset_ms=_offset_ms(begins, zone))


def current_span(per: CostSpan, now_ms: int, zone: ZoneInfo) -> tuple[int, int]:
    """Return when the day or the month of a moment began in a zone, and when it ends.

    >>> current_span("month", 0, ZoneInfo("UTC"))
    (0, 2678400000)
    """
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    first = today if per == "day" else today.replace(day=1)
    following = first + timedelta(days=1) if per == "day" else (first + timedelta(days=31)).replace(day=1)
    begins, ends = (datetime.combine(day, time(), zone).timestamp() for day in (first, following))
    return round(begins * 1000), round(ends * 1000)


def name_of_day(number: int) -> str:
    """Return the date of a day by its number, which counts from 1970-01-01, as ISO 8601 writes it."""
    return (EPOCH + timedelta(days=number)).isoformat()


def _offset_ms(at_ms: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).utcoffset() or timedelta()
    return offset // timedelta(milliseconds=1)


def _change(before_ms: int, after_ms: int, zone: ZoneInfo) -> int:
    """Return the first millisecond of the new offset, between two moments of different ones."""
    old = _offset_ms(before_ms, zone)
    while after_ms - before_ms > 1:
        middle = (before_ms + after_ms) // 2
        before_ms, after_ms = (middle, after_ms) if _offset_ms(middle, zone) == old else (before_ms, middle)
    return after_ms
