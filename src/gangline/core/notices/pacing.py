"""Decide when messages go to people: at once after a quiet time, as digests while more keep coming, and never in quiet hours.

Nothing goes past either rule, however urgent: what a message reports costs nothing and gets no worse while it waits, as a job that failed
or has no budget uses no node; and many urgent messages would be a flood, too.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from gangline.core.errors import BadInput

INTERVAL_S = 600.0
"""At most one message to one endpoint in this time, unless the endpoint says otherwise."""
INTERVAL_S_MAX = 86_400.0
PICTURES_S = 120.0
"""The message that a job is ready waits this long for the pictures of its result."""
_FORM = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s+(\S{1,64})", re.ASCII)
_HINT = "write them like 22:00-07:00 Europe/Berlin"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """A time of every day in which nobody is disturbed. Where `ends` is earlier than `begins`, it is on the day after. `zone` is a name of
    the time-zone database."""

    begins: time
    ends: time
    zone: str

    def __str__(self) -> str:
        return f"{self.begins:%H:%M}-{self.ends:%H:%M} {self.zone}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """How often one endpoint may be written to. An interval of 0 sends each message when it comes."""

    interval_s: float = INTERVAL_S
    quiet: QuietHours | None = None


def parse_quiet_hours(text: str) -> QuietHours | None:
    """Return the quiet hours that a text such as `22:00-07:00 Europe/Berlin` names; None if it is empty. Raises `BadInput`.

    >>> str(parse_quiet_hours("22:00 - 7:00 Europe/Berlin"))
    '22:00-07:00 Europe/Berlin'
    """
    if not text.strip():
        return None
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise BadInput("quiet hours are two times of day and a time zone", hint=_HINT)
    try:
        begins, ends = (time(int(found[n]), int(found[n + 1])) for n in (1, 3))
    except ValueError:
        raise BadInput("quiet hours need times from 00:00 to 23:59", hint=_HINT) from None
    if begins == ends:
        raise BadInput("quiet hours that end when they begin are no time at all", hint=_HINT)
    try:
        ZoneInfo(found[5])
    except (OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError
        raise BadInput("quiet hours name a time zone that does not exist", hint=_HINT) from None
    except KeyError:
        raise BadInput(f"there is no time zone {found[5]}", hint=_HINT) from None
    return QuietHours(begins=begins, ends=ends, zone=found[5])


def quiet_until_ms(quiet: QuietHours, at_ms: int) -> int | None:
    """Return when the quiet hours end that `at_ms` is in; None if it is in none.

    They are stretches between two moments, not sets of clock times: a clock that is put back within them does not end or begin them twice.
    """
    zone = ZoneInfo(quiet.zone)
    here = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).date()
    for day in (here - timedelta(days=1), here):
        end_day = day + timedelta(days=1) if quiet.ends < quiet.begins else day
        begins_ms, ends_ms = _moment_ms(day, quiet.begins, zone), _moment_ms(end_day, quiet.ends, zone)
        if begins_ms <= at_ms < ends_ms:
            return ends_ms
    return None


def go_ms(pacing: Pacing, *, last_ms: int | None, now_ms: int) -> int:
    """Return when what waits for an endpoint may go: `now_ms`, or the moment until which it is held. `last_ms` is when the last message
    went there, None if none has."""
    may_ms = now_ms if last_ms is None else max(now_ms, last_ms + round(pacing.interval_s * 1000))
    return (quiet_until_ms(pacing.quiet, may_ms) or may_ms) if pacing.quiet else may_ms


def pictures_until_ms(ended_ms: int, now_ms: int, *, rendering: bool) -> int:
    """Return when the message that a job succeeded may go: as soon as no picture of its result is being rendered, or after `PICTURES_S`."""
    return max(now_ms, ended_ms + round(PICTURES_S * 1000)) if rendering else now_ms


def _moment_ms(day: date, clock: time, zone: ZoneInfo) -> int:
    """Return the moment of a clock time on a day. One that occurs twice is the first of both; one that a clock skips is as much later."""
    return round(datetime.combine(day, clock, zone).timestamp() * 1000)
