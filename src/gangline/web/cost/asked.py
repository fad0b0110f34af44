"""What the screen of costs is asked for: a span of days of the reader's time zone, and what to sum by."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Literal, cast, get_args
from zoneinfo import ZoneInfo

from annotated_types import MaxLen
from fastapi import Cookie, Depends, Query

from gangline.core.errors import BadInput
from gangline.core.reports.costs import CostKey
from gangline.core.reports.days import parse_zone

Days = Literal["1", "7", "30", "90", "month", "all", "own"]
SPANS: Mapping[Days, str] = {
    "1": "today",
    "7": "7 days",
    "30": "30 days",
    "90": "90 days",
    "month": "this month",
    "all": "all time",
    "own": "from … to …",
}
assert set(SPANS) == set(get_args(Days)), "every span says what it is"
KEYS: tuple[CostKey, ...] = get_args(CostKey)
CostText = Annotated[str, Query(), MaxLen(60)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCosts:
    """`first` and `last` are the days that a reader chose for `days` of `own`, both counted; empty texts for none."""

    by: CostKey
    days: Days
    zone: str
    first: str = ""
    last: str = ""

    def span(self, now_ms: int) -> tuple[int | None, int | None]:
        """Return from when until when, in milliseconds UTC; None for no limit. Raise `BadInput` for what is no date."""
        zone = parse_zone(self.zone)
        if self.days == "all":
            return None, None
        if self.days == "own":
            first = _day(self.first, "from") if self.first else None
            last = _day(self.last, "to") if self.last else None
            if first and last and last < first:
                raise BadInput(f"to: {last} is before {first}", hint="the first day comes first")
            return _midnight_ms(first, zone), _midnight_ms(last, zone, after=1)
        today = datetime.fromtimestamp(now_ms / 1000, zone).date()
        if self.days == "month":
            return _midnight_ms(today.replace(day=1), zone), None
        return _midnight_ms(today - timedelta(days=int(self.days) - 1), zone), None

    def as_pairs(self) -> list[tuple[str, str]]:
        """Return what is asked as the fields of an address of this screen."""
        own = [("from", self.first), ("to", self.last)] if self.days == "own" else []
        return [("by", self.by), ("days", self.days), ("zone", self.zone), *own]


def as_moment(at_ms: int) -> str:
    """Return a moment as the API reads it."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _day(text: str, field: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{field}: {text!r} is not a date", hint="write it as 2026-01-31") from None


def _midnight_ms(day: date | None, zone: ZoneInfo, after: int = 0) -> int | None:
    """Return when a day begins, or the one that comes `after` this many days; None without a day."""
    if day is None:
        return None
    try:
        midnight = datetime.combine(day + timedelta(days=after), time(), zone)
        return round(midnight.astimezone(UTC).timestamp() * 1000)  # which fails where UTC has no such day
    except (OverflowError, ValueError, OSError):
        raise BadInput(f"{day} is not a day that costs are known of", hint="give a day of this century") from None


async def _asked(
    by: CostText = "day",
    days: CostText = "30",
    zone: CostText = "",
    first: Annotated[str, Query(alias="from"), MaxLen(60)] = "",
    last: Annotated[str, Query(alias="to"), MaxLen(60)] = "",
    gangline_zone: Annotated[str, Cookie(max_length=60)] = "",
) -> AskedCosts:
    return AskedCosts(
        by=cast(CostKey, by) if by in KEYS else "day",
        days=cast(Days, days) if days in SPANS else "30",
        zone=zone.strip() or _known_zone(gangline_zone),
        first=first.strip(),
        last=last.strip(),
    )


def _known_zone(name: str) -> str:
    """Return the zone that a script of the page noted of this browser; UTC if it is none that this server knows."""
    try:
        return parse_zone(name).key if name else "UTC"
    except BadInput:
        return "UTC"


CostsAsked = Annotated[AskedCosts, Depends(_asked)]
