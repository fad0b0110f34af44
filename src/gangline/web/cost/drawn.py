"""Lay out the bars of costs: by day as a chart, and each row of a table as one bar. Widths are percents, so that they fit any page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import floor, log10

from gangline.core.money.cost import Cause
from gangline.core.reports.costs import CAUSES, CostRow

HEIGHT = 180
"""Pixels of the chart's bars."""
LABELS_MAX = 5
LEAST_USD = 0.0001
"""Of a chart with sums on its axis: smaller ones are wider than the room for them."""
BAR_SHARE = 0.8
SAYS: Mapping[Cause, str] = {
    "training": "steps that are part of results",
    "samples": "rendering pictures on other nodes",
    "start-up": "rented nodes until they joined",
    "download": "from the claim to the first step",
    "redone steps": "steps that interruptions lost and others did again",
    "failed": "what failed attempts did after their last checkpoint",
    "idle": "nodes without work",
    "storage": "keeping checkpoints",
    "egress": "sending files to nodes",
    "correction": "what providers billed besides; below 0, credits for what they did not bill",
}
assert set(SAYS) == set(CAUSES), "every cause says what it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPiece:
    """A cause's part of a bar. `begin` and `length` are percents of the row, or pixels of the chart."""

    cause: Cause
    usd: float
    begin: float
    length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBar:
    """A day of the chart: where it begins and how wide it is, in percent, and its pieces from the top, in pixels."""

    day: str
    label: str
    usd: float
    left: float
    width: float
    pieces: tuple[BarPiece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`ticks` are sums with the pixels from the top at which their lines are; `zero` is that of no dollars."""

    bars: tuple[DayBar, ...]
    ticks: tuple[tuple[float, float], ...]
    zero: float


def chart_of_days(rows: Sequence[CostRow], first: str | None = None, last: str | None = None) -> Chart | None:
    """Return the chart of some days, with those between them that cost nothing; None if none of them has a cost."""
    highest = max((_sum(row, above=True) for row in rows), default=0.0)
    lowest = min((_sum(row, above=False) for row in rows), default=0.0)
    if highest == lowest:
        return None
    known = {row.key: row for row in rows}
    begin = date.fromisoformat(min(first or rows[0].key, rows[0].key))
    end = date.fromisoformat(max(last or rows[-1].key, rows[-1].key))
    days = [begin + timedelta(days=number) for number in range((end - begin).days + 1)]
    scale = HEIGHT / (highest - lowest)
    width, every = 100 / len(days), -(-len(days) // LABELS_MAX)
    return Chart(
        bars=tuple(
            DayBar(
                day=day.isoformat(),
                label=f"{day:%b} {day.day}" if place % every == 0 else "",
                usd=known[day.isoformat()].usd if day.isoformat() in known else 0.0,
                left=place * width + width * (1 - BAR_SHARE) / 2,
                width=width * BAR_SHARE,
                pieces=_stacked(known.get(day.isoformat()), highest, scale),
            )
            for place, day in enumerate(days)
        ),
        ticks=tuple((value, (highest - value) * scale) for value in _ticks(highest)),
        zero=highest * scale,
    )


def row_bar(row: CostRow, most: float) -> tuple[BarPiece, ...]:
    """Return the bar of a row, in percent of the row that cost most. Credits are not drawn."""
    pieces, begin = list[BarPiece](), 0.0
    for cause, usd in _drawn(row):
        if usd > 0 and most > 0:
            pieces.append(BarPiece(cause=cause, usd=usd, begin=100 * begin / most, length=100 * usd / most))
            begin += usd
    return tuple(pieces)


def most_of(rows: Iterable[CostRow]) -> float:
    """Return the dollars of the longest bar of some rows."""
    return max((_sum(row, above=True) for row in rows), default=0.0)


def _stacked(row: CostRow | None, highest: float, scale: float) -> tuple[BarPiece, ...]:
    pieces, above, below = list[BarPiece](), 0.0, 0.0
    for cause, usd in _drawn(row) if row else ():
        top = above + usd if usd > 0 else below
        pieces.append(BarPiece(cause=cause, usd=usd, begin=(highest - top) * scale, length=abs(usd) * scale))
        above, below = (above + usd, below) if usd > 0 else (above, below + usd)
    return tuple(pieces)


def _drawn(row: CostRow) -> list[tuple[Cause, float]]:
    return [(cause, row.parts[cause]) for cause in CAUSES if row.parts.get(cause)]


def _sum(row: CostRow, *, above: bool) -> float:
    return sum(usd for usd in row.parts.values() if (usd > 0) == above)


def _ticks(highest: float) -> list[float]:
    """Return two to five sums that are easy to read, up to the highest; none if they have no room beside the chart.

    >>> _ticks(0.37), _ticks(9.0), _ticks(0.000012)
    ([0.1, 0.2, 0.3], [2.0, 4.0, 6.0, 8.0], [])
    """
    if highest < LEAST_USD:
        return []
    unit = 10.0 ** floor(log10(highest))
    step = next((unit * each for each in (0.1, 0.2, 0.5, 1, 2) if highest / (unit * each) < 5), unit)
    return [round(step * number, 9) for number in range(1, floor(highest / step) + 1)]
