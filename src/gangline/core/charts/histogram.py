"""A histogram: values counted in bins of equal and round width, and its drawing as SVG."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gangline.core.charts.colours import HUES, xml_text

CHART_WIDTH, CHART_HEIGHT = 560, 230
SIDE, HEAD, FOOT = 40, 44, 40
LABELS_MAX = 6
BINS_MAX = 20
SHOWN_SHARE = 0.99
"""The bins reach at least this share of the values. The greatest ones are counted together: one of them would flatten all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of values from `start` on, in bins of `width`, each with its lower edge and without its upper one. `above` counts the values
    that are greater than all bins."""

    start: float
    width: float
    counts: tuple[int, ...]
    above: int


def count_in_bins(values: Sequence[float]) -> Histogram | None:
    """Return the histogram of values; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    low, high = ordered[0], ordered[min(len(ordered) - 1, math.ceil(SHOWN_SHARE * len(ordered)) - 1)]
    width = _round_width((high - low) / (BINS_MAX - 1) or abs(high) / BINS_MAX or 1.0)
    first, last = math.floor(low / width), math.floor(high / width)
    counts, above = [0] * (last - first + 1), 0
    for value in ordered:
        at = math.floor(value / width) - first
        if at < len(counts):
            counts[at] += 1
        else:
            above += 1
    return Histogram(start=first * width, width=width, counts=tuple(counts), above=above)


def draw_histogram(title: str, found: Histogram, unit: str) -> str:
    """Return the SVG, which has the text colour of the page that it is put into. `unit` is written below the axis."""
    return "\n".join(_drawing(title, found, unit)) + "\n"


def _drawing(title: str, found: Histogram, unit: str) -> Iterator[str]:
    counts = [*found.counts, *([found.above] if found.above else [])]
    end = found.start + found.width * len(found.counts)
    step, floor = (CHART_WIDTH - 2 * SIDE) / len(counts), CHART_HEIGHT - FOOT
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="histogram" role="img" viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" '
        'font-family="system-ui, DejaVu Sans, sans-serif" font-size="12" fill="currentColor">'
    )
    yield f"<title>{xml_text(title)}</title>"
    yield f'<text x="{SIDE}" y="18" font-size="14" font-weight="bold">{xml_text(title)}</text>'
    for number, count in enumerate(counts):
        x, height = SIDE + number * step, (floor - HEAD) * count / max(1, *counts)
        is_above = number == len(found.counts)
        low = end if is_above else found.start + number * found.width
        words = f"{low:g} {unit} and more" if is_above else f"{low:g} to {low + found.width:g} {unit}"
        yield (
            f'<rect x="{x + 1:.1f}" y="{floor - height:.1f}" width="{max(1.0, step - 2):.1f}" height="{height:.1f}" '
            f'fill="{HUES[1] if is_above else HUES[0]}"><title>{xml_text(words)}: {count}</title></rect>'
        )
        if count:
            middle = x + step / 2
            yield f'<text x="{middle:.1f}" y="{floor - height - 4:.1f}" text-anchor="middle" font-size="10">{count}</text>'
    yield f'<path d="M{SIDE} {floor}H{CHART_WIDTH - SIDE}" stroke="currentColor" stroke-width="1"/>'
    for number in range(0, len(found.counts) + 1, -(-(len(found.counts) + 1) // LABELS_MAX)):
        at = SIDE + number * step
        yield f'<text x="{at:.1f}" y="{floor + 15}" text-anchor="middle">{found.start + number * found.width:g}</text>'
    more = f"; above {end:g} in the last bar" if found.above else ""
    yield f'<text x="{CHART_WIDTH / 2}" y="{floor + 33}" text-anchor="middle">{xml_text(unit + more)}</text>'
    yield "</svg>"


def _round_width(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= least * (1 - 1e-9))
