"""Draw a timeline as SVG: a lane for each job, in the order of first claims, and a bar for each attempt, coloured by its machine."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gangline.core.charts.colours import colour, xml_text

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1280, 110, 20, 94, 44
PLOT = WIDTH - LEFT - RIGHT
LANE_MAX, PLOT_MAX = 18.0, 1600.0
"""The maximum height of a lane, and of all lanes together, in pixels."""

LABEL_EVERY = 13.0
TICKS_MAX = 14
LABEL_MAX = 14
HOUR_S, DAY_S = 3600, 86_400
TICK_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY_S)
LEGEND_MACHINES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The bar of an attempt. Times are milliseconds since the start of the timeline; an end of None says that it is still running."""

    job: str
    attempt: str
    machine: str
    state: str
    because: str
    from_ms: int
    to_ms: int | None


def draw_timeline(
    title: str, jobs: Sequence[str], bars: Sequence[Bar], until_ms: int, names: Mapping[str, str] | None = None
) -> str:
    """Return the SVG. `bars` are in the order of their start; `jobs` are all jobs, including those that were never claimed.

    A lane is labelled with the job's name of `names`, or with its id if it has none there.
    """
    return "\n".join(_Drawing(title, jobs, bars, until_ms, names or {}).lines()) + "\n"


def lane_label(job: str, name: str) -> str:
    """Return what a lane is labelled with. Names of one experiment differ at their end, so a long one is cut in its middle."""
    if not name:
        return job[-LABEL_MAX:]
    half = LABEL_MAX // 2
    return name if len(name) <= LABEL_MAX else f"{name[: LABEL_MAX - half - 1]}…{name[-half:]}"


class _Drawing:
    def __init__(
        self, title: str, jobs: Sequence[str], bars: Sequence[Bar], until_ms: int, names: Mapping[str, str]
    ) -> None:
        self._title = title
        self._names = names
        self._bars = bars
        self._lanes = list(dict.fromkeys([*(bar.job for bar in bars), *jobs]))
        self._until_ms = max(until_ms, 1)
        self._lane = min(LANE_MAX, PLOT_MAX / max(1, len(self._lanes)))
        self._bottom = TOP + self._lane * len(self._lanes)

    def lines(self) -> Iterator[str]:
        height = round(self._bottom + BOTTOM)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'font-family="system-ui, DejaVu Sans, sans-serif" font-size="11" fill="#222">'
        )
        yield f"<title>{xml_text(self._title)}</title>"
        yield HATCH
        yield f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        yield f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{xml_text(self._title)}</text>'
        yield from self._legend()
        yield from self._axis()
        yield from self._jobs()
        yield "</svg>"

    def _x(self, ms: int) -> float:
        return LEFT + PLOT * ms / self._until_ms

    def _legend(self) -> Iterator[str]:
        """Yield the legend: the ends of bars that occur, and the machines that worked longest."""
        x = LEFT
        for state in ENDS:
            if any(bar.state == state for bar in self._bars):
                yield f'<rect x="{x}" y="36" width="26" height="10" fill="#88ccee"/>'
                yield from _end(state, x, 36, 26, 10)
                yield f'<text x="{x + 32}" y="45">{state}</text>'
                x += 46 + 6 * len(state)
        busy = Counter[str]()
        for bar in self._bars:
            busy[bar.machine] += self._to_ms(bar) - bar.from_ms
        x = LEFT
        for machine, _ in busy.most_common(LEGEND_MACHINES):
            yield f'<rect x="{x}" y="54" width="10" height="10" fill="{colour(machine)}"/>'
            yield f'<text x="{x + 14}" y="63">{xml_text(machine[:20])}</text>'
            x += 28 + 6.4 * min(20, len(machine))
        if len(busy) > LEGEND_MACHINES:
            yield f'<text x="{x:.0f}" y="63" fill="#666">and {len(busy) - LEGEND_MACHINES} more machines</text>'

    def _axis(self) -> Iterator[str]:
        """Yield a line at each tick, with its time above and below the lanes."""
        until_s = self._until_ms // 1000
        step_s = next(
            (step for step in TICK_SECONDS if until_s / step <= TICKS_MAX),
            DAY_S * max(1, round(until_s / DAY_S / TICKS_MAX)),
        )
        unit_s, units = (60, "hours:minutes") if until_s >= HOUR_S else (1, "minutes:seconds")
        for at_s in range(0, until_s + 1, step_s):
            x = self._x(at_s * 1000)
            large, small = divmod(at_s // unit_s, 60)
            yield f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{self._bottom + 4:.1f}" stroke="#ddd"/>'
            for y in (TOP - 8, self._bottom + 16):
                yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="#666">{large}:{small:02d}</text>'
        middle = LEFT + PLOT / 2
        yield f'<text x="{middle}" y="{self._bottom + 32:.1f}" text-anchor="middle" fill="#666">{units}</text>'

    def _jobs(self) -> Iterator[str]:
        number = {job: lane for lane, job in enumerate(self._lanes)}
        of_job = {
            job: list(bars)
            for job, bars in groupby(sorted(self._bars, key=lambda bar: number[bar.job]), lambda bar: bar.job)
        }
        label_every = max(1, -(-LABEL_EVERY // self._lane))
        for lane, job in enumerate(self._lanes):
            y = TOP + lane * self._lane
            yield f'<g class="lane" data-job="{xml_text(job)}">'
            if lane % label_every == 0:
                middle = y + self._lane / 2 + 4
                name = self._names.get(job, "")
                yield (
                    f'<text x="{LEFT - 8}" y="{middle:.1f}" text-anchor="end">{xml_text(lane_label(job, name))}'
                    f"<title>{xml_text(f'{name}, {job}' if name else job)}</title></text>"
                )
            yield from self._lane_of(of_job.get(job, []), y)
            yield "</g>"

    def _lane_of(self, bars: Sequence[Bar], y: float) -> Iterator[str]:
        """Yield a job's bars over a thin line from its first claim to its end, which shows where the job waits."""
        if not bars:
            return
        gap = 0.15 * self._lane
        middle = y + self._lane / 2
        a, b = self._x(bars[0].from_ms), self._x(self._to_ms(bars[-1]))
        stroke = min(1.0, self._lane / 4)
        yield f'<path d="M{a:.1f} {middle:.2f}H{b:.1f}" stroke="#aaa" stroke-width="{stroke:.2f}"/>'
        for bar in bars:
            x, to = self._x(bar.from_ms), self._x(self._to_ms(bar))
            width, height = max(0.5, to - x), self._lane - gap
            words = f"{bar.attempt} of {bar.job} on {bar.machine}: {bar.state}, {bar.because}"
            yield (
                f'<rect x="{x:.1f}" y="{y + gap / 2:.2f}" width="{width:.1f}" height="{height:.2f}" '
                f'fill="{colour(bar.machine)}"><title>{xml_text(words)}</title></rect>'
            )
            yield from _end(bar.state, x, y + gap / 2, width, height)

    def _to_ms(self, bar: Bar) -> int:
        return self._until_ms if bar.to_ms is None else bar.to_ms


ENDS = ("interrupted", "failed", "released", "canceled")
HATCH = (
    '<defs><pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="4" height="4" fill="#fff"/><rect width="2" height="4" fill="#000"/></pattern></defs>'
)


def _end(state: str, x: float, y: float, width: float, height: float) -> Iterator[str]:
    """Yield the mark of a bar's end: none for a success, a black cap for an interruption, hatching for a failure."""
    cap = min(width, 3.0, max(1.0, height / 2))
    part = min(width, 12.0, height) if state == "failed" else cap
    at = f'x="{x + width - part:.1f}" y="{y:.2f}" width="{part:.1f}" height="{height:.2f}"'
    edge = f'stroke="#000" stroke-width="{min(0.6, height / 10):.2f}"'
    match state:
        case "interrupted":
            yield f'<rect {at} fill="#000"/>'
        case "failed":
            yield f'<rect {at} fill="url(#hatch)" {edge}/>'
        case "released":
            yield f'<rect {at} fill="#fff" {edge}/>'
        case "canceled":
            yield f'<rect {at} fill="#aaa" {edge}/>'
