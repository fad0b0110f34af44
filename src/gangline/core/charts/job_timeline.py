"""Draw the timeline of one job as SVG for a page: lanes for its nodes, its phases, marked moments, and its checkpoints.

Nothing depends on colour alone: machines have letters, phases have patterns and, where there is room, their names; marks have shapes; and
every part has its words in a `<title>`. There is no inline style, so a page with a strict content security policy shows it; text has the
colour of the text around it, and classes (`axis`, `lane`, `legend`, `node`, `phase`, `mark`) let a stylesheet change all the rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from math import ceil

from gangline.core.charts.colours import colour, xml_text
from gangline.core.charts.phases import MARKS, PHASES, WAITING, TimelineMark, TimelineSegment
from gangline.core.charts.timeline import TICK_SECONDS, TICKS_MAX
from gangline.core.words import duration_words

WIDTH, WIDTH_MIN, LEFT, RIGHT = 1000, 320, 50, 10
NODES_Y, PHASES_Y, MARKS_Y, SAVED_Y, LANE, AXIS_Y = 4, 30, 54, 72, 22, 94
LEGEND_Y, LEGEND_LINE = 124, 18
LEGEND_MACHINES = 20
FONT = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'
MARK = 13
"""The width of a mark, in pixels."""
LETTER = 7.0
"""The width of a letter, in pixels, at the most."""

PATTERNS: Mapping[str, str] = {
    "queued": "",
    "held": "",
    "fetching": "",
    "paused": "",
    "starting": '<path d="M0 2H8M0 6H8" stroke="#fff"/>',
    "downloading": '<path d="M0 0L8 8" stroke="#fff" stroke-width="2"/>',
    "preparing": '<circle cx="4" cy="4" r="1.5" fill="#fff"/>',
    "training": "",
    "rendering": '<path d="M0 0L8 8M8 0L0 8" stroke="#fff"/>',
    "saving": '<path d="M2 0V8M6 0V8" stroke="#fff"/>',
    "uploading": '<path d="M0 8L8 0" stroke="#fff" stroke-width="2"/>',
    "silent": '<path d="M0 0L8 8M8 0L0 8" stroke="#000" stroke-width="2"/>',
}
"""What is drawn over the colour of a machine, in a square of 8 pixels; nothing while it trains. A wait is an empty bar."""

SHAPES: Mapping[str, str] = {
    "interrupted": "M-5 -5L5 5M5 -5L-5 5",
    "released": "M-5 0H5M1 -4L5 0L1 4",
    "failed": "M0 -6V2M0 5V6",
    "banned": "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1 -5 0M-4 -4L4 4",
    "strike": "M2 -6L-3 1H3L-2 6",
    "bans lifted": "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1 -5 0",
    "resumed": "M-3 -5L5 0L-3 5Z",
    "committed": "M0 -4V4",
    "rejected": "M-4 -4H4V4H-4ZM-4 -4L4 4",
    "rendered": "M-5 -4H5V4H-5ZM-5 3L-1 -1L2 2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineParts:
    """A timeline in parts, for a page on which it scrolls below the names of its lanes. `lanes` has as many pixels in one of its own as
    `plot`. `legend` has what belongs together: machines, phases, marks, each entry as a drawing of its own, as wide as its words."""

    plot: str
    lanes: str
    legend: tuple[tuple[str, ...], ...]


def draw_job_timeline(
    segments: Sequence[TimelineSegment],
    marks: Sequence[TimelineMark],
    title: str = "The job's timeline",
    width: int = WIDTH,
    span_ms: tuple[int, int] | None = None,
) -> str:
    """Return the SVG. It has no size of its own: it is as wide as its place on the page, and its text has 11 pixels where that is `width`
    pixels (at least 320). With `span_ms`, from and to in ms UTC, only that span of time is drawn, below the same legend. The attributes
    `data-from` and `data-to` have the times of the sides of the plot, and `data-plot` has where these are, in the units of the view box.
    """
    return "\n".join(_JobDrawing(segments, marks, title, max(width, WIDTH_MIN), span_ms).lines()) + "\n"


def draw_timeline_parts(
    segments: Sequence[TimelineSegment],
    marks: Sequence[TimelineMark],
    title: str = "The job's timeline",
    span_ms: tuple[int, int] | None = None,
) -> TimelineParts:
    """Return the same as `draw_job_timeline` in parts. The plot has its lanes' names too: `lanes` is to lie over them."""
    drawing = _JobDrawing(segments, marks, title, WIDTH, span_ms)
    return TimelineParts(
        plot="\n".join(drawing.plot()), lanes="\n".join(drawing.lanes()), legend=tuple(drawing.legend_entries())
    )


def machine_letters(segments: Sequence[TimelineSegment]) -> dict[str, str]:
    """Return a letter for each machine, in the order in which they had the job: A to Z, then AA."""
    machines = dict.fromkeys(segment.machine for segment in segments if segment.machine)
    return {machine: _letters(number) for number, machine in enumerate(machines)}


def _letters(number: int) -> str:
    more, letter = divmod(number, 26)
    return (_letters(more - 1) if more else "") + chr(ord("A") + letter)


class _JobDrawing:
    def __init__(
        self,
        segments: Sequence[TimelineSegment],
        marks: Sequence[TimelineMark],
        title: str,
        width: int,
        span_ms: tuple[int, int] | None,
    ) -> None:
        self._width, self._plot = width, width - LEFT - RIGHT
        self._segments = segments
        self._marks = marks
        self._title = title
        self._letters = machine_letters(segments)
        self._span_ms = span_ms
        self._began_ms = segments[0].from_ms if segments else 0
        whole = (self._began_ms, segments[-1].to_ms if segments else 0)
        self._from_ms, to_ms = span_ms or whole
        self._whole_ms = max(1, to_ms - self._from_ms)
        self._to_ms = self._from_ms + self._whole_ms

    def lines(self) -> Iterator[str]:
        legend = [*self._legend()]
        lines = max((line for line, _ in legend), default=0) + 1
        yield from self.plot(LEGEND_Y + LEGEND_LINE * lines, [drawn for _, drawn in legend])

    def plot(self, height: int = LEGEND_Y - LANE // 2, legend: Sequence[str] = ()) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="job-timeline" viewBox="0 0 {self._width} {height}" role="img" '
            f'data-from="{self._from_ms}" data-to="{self._to_ms}" data-plot="{LEFT} {self._width - RIGHT}" '
            f"{FONT}>"
        )
        yield f"<title>{xml_text(self._title)}</title>"
        yield "<defs>"
        for phase, drawn in PATTERNS.items():
            if drawn:
                yield f'<pattern id="phase-{phase}" width="8" height="8" patternUnits="userSpaceOnUse">{drawn}</pattern>'
        yield "</defs>"
        yield from self._names()
        yield from self._axis()
        yield from self._nodes()
        yield from self._phases()
        yield from self._moments()
        yield from legend
        yield "</svg>"

    def lanes(self) -> Iterator[str]:
        yield f'<svg xmlns="http://www.w3.org/2000/svg" class="job-lanes" viewBox="0 0 {LEFT} {AXIS_Y}" aria-hidden="true" {FONT}>'
        yield from self._names()
        yield "</svg>"

    def legend_entries(self) -> Iterator[tuple[str, ...]]:
        for entries in self._entries():
            yield tuple(
                f'<svg xmlns="http://www.w3.org/2000/svg" class="legend" width="{22 + LETTER * len(words):.0f}" height="{LEGEND_LINE}" '
                f'{FONT}>{draw(0, 3)}<text x="16" y="12">{xml_text(words)}</text></svg>'
                for words, draw in entries
            )

    def _names(self) -> Iterator[str]:
        for name, y in (("node", NODES_Y), ("phase", PHASES_Y), ("marks", MARKS_Y), ("saved", SAVED_Y)):
            yield f'<text class="lane" x="{LEFT - 8}" y="{y + LANE - 7}" text-anchor="end">{name}</text>'

    def _x(self, at_ms: int) -> float:
        return LEFT + self._plot * min(max(at_ms - self._from_ms, 0), self._whole_ms) / self._whole_ms

    def _is_in_span(self, from_ms: int, to_ms: int) -> bool:
        return self._span_ms is None or (from_ms < self._span_ms[1] and to_ms > self._span_ms[0])

    def _axis(self) -> Iterator[str]:
        whole_s, ticks = self._whole_ms // 1000, TICKS_MAX * self._plot / (WIDTH - LEFT - RIGHT)
        step_s = next((step for step in TICK_SECONDS if whole_s / step <= ticks), 0)
        step_s = step_s or 86_400 * max(1, round(whole_s / 86_400 / ticks))
        first_s, last_s = (max(0, ms - self._began_ms) / 1000 for ms in (self._from_ms, self._to_ms))
        yield '<g class="axis">'
        for at_s in range(ceil(first_s / step_s) * step_s, int(last_s) + 1, step_s):
            x = self._x(self._began_ms + 1000 * at_s)
            yield f'<path d="M{x:.1f} {NODES_Y}V{AXIS_Y}" stroke="currentColor" stroke-opacity="0.15"/>'
            yield f'<text x="{x:.1f}" y="{AXIS_Y + 14}" text-anchor="middle">{_clock(at_s, last_s, step_s)}</text>'
        yield "</g>"

    def _nodes(self) -> Iterator[str]:
        """Yield a bar for each attempt, with the letter of its machine."""
        for _, group in groupby(self._segments, lambda segment: segment.attempt):
            parts = list(group)
            first, last = parts[0], parts[-1]
            if first.attempt is None or not self._is_in_span(first.from_ms, last.to_ms):
                continue
            ended = f"{last.ended}, {last.because}" if last.ended else "at work"
            gpu = f" ({first.gpu})" if first.gpu else ""
            words = f"{first.node_name}{gpu}: {_spell(first.from_ms, last.to_ms)}, {ended}"
            yield from self._bar("node", first, first.from_ms, last.to_ms, NODES_Y, self._letters[first.machine], words)

    def _phases(self) -> Iterator[str]:
        for segment in self._segments:
            if not self._is_in_span(segment.from_ms, segment.to_ms):
                continue
            where = f" on {segment.node_name}" if segment.node_name else ""
            words = f"{segment.phase}{where}: {_spell(segment.from_ms, segment.to_ms)}. {_meaning(segment.phase)}"
            yield from self._bar(
                "phase", segment, segment.from_ms, segment.to_ms, PHASES_Y, segment.phase, words, segment.phase
            )

    def _bar(
        self,
        kind: str,
        of: TimelineSegment,
        from_ms: int,
        to_ms: int,
        y: int,
        label: str,
        words: str,
        phase: str = "",
    ) -> Iterator[str]:
        """Yield a bar in the colour of its machine, with a phase's pattern over it, and its label if that fits."""
        x, to = self._x(from_ms), self._x(to_ms)
        at = f'x="{x:.1f}" y="{y}" width="{max(0.5, to - x):.1f}" height="{LANE}"'
        edge = 'stroke="currentColor" stroke-opacity="0.4" stroke-width="0.5"'
        fill = f'fill="{colour(of.machine)}"' if of.machine else 'fill="none" stroke-dasharray="3 3"'
        yield f'<g class="{kind}{f" {_class(phase)}" if phase else ""}"><title>{xml_text(words)}</title>'
        yield f'<rect {at} {fill} {edge} pointer-events="all"/>'
        if PATTERNS.get(phase):
            yield f'<rect {at} fill="url(#phase-{phase})" fill-opacity="0.7"/>'
        if to - x > LETTER * len(label) + 6:
            middle, width = (x + to) / 2, LETTER * len(label) + 4
            if of.machine:  # whatever colour and pattern are below, the letters are dark on light
                yield f'<rect x="{middle - width / 2:.1f}" y="{y + 3}" width="{width:.1f}" height="16" rx="3" fill="#fff"/>'
            ink = ' fill="#000"' if of.machine else ""
            yield f'<text x="{middle:.1f}" y="{y + LANE - 7}" text-anchor="middle"{ink}>{xml_text(label)}</text>'
        yield "</g>"

    def _moments(self) -> Iterator[str]:
        """Yield the marks; of equal ones that would lie on one pixel only the last. One that would cover another moves to the right."""

        def where(mark: TimelineMark) -> tuple[str, int]:
            return mark.kind, round(self._x(mark.at_ms))

        free, marks = 0.0, [mark for mark in self._marks if self._from_ms <= mark.at_ms <= self._to_ms]
        for mark in sorted({where(mark): mark for mark in marks}.values(), key=lambda mark: mark.at_ms):
            if mark.kind == "committed":
                yield self._mark(mark, self._x(mark.at_ms), SAVED_Y)
            else:
                x = min(max(self._x(mark.at_ms), free), self._width - RIGHT)
                free = x + MARK
                yield self._mark(mark, x, MARKS_Y)

    def _mark(self, mark: TimelineMark, x: float, y: int) -> str:
        step = f" step {mark.step}" if mark.step is not None else ""
        place = f" on {mark.node_name}" if mark.node_name else ""
        because = f": {mark.because}" if mark.because else ""
        words = f"{mark.kind}{step}{place} after {_after(mark.at_ms - self._began_ms)}{because}"
        return (
            f'<g class="mark {_class(mark.kind)}" transform="translate({x:.1f} {y + LANE // 2})">'
            f'<title>{xml_text(words)}</title><path d="{SHAPES.get(mark.kind, SHAPES["committed"])}" fill="none" '
            f'stroke="currentColor" stroke-width="1.5" pointer-events="bounding-box"/></g>'
        )

    def _legend(self) -> Iterator[tuple[int, str]]:
        """Yield what the letters, patterns and shapes mean, each with the number of its line: machines, phases, marks that occur."""
        line = -1
        for entries in self._entries():
            line, x = line + 1, LEFT
            for words, draw in entries:
                width = 22 + LETTER * len(words)
                if x > LEFT and x + width > self._width - RIGHT:
                    line, x = line + 1, LEFT
                y = LEGEND_Y + LEGEND_LINE * line
                text = f'<text x="{x + 16:.0f}" y="{y + 9}">{xml_text(words)}</text>'
                yield line, f'<g class="legend">{draw(x, y)}{text}</g>'
                x += round(width + 8)

    def _entries(self) -> Iterator[Iterator[tuple[str, Callable[[float, float], str]]]]:
        yield from (self._machine_entries(), self._phase_entries(), self._mark_entries())

    def _machine_entries(self) -> Iterator[tuple[str, Callable[[float, float], str]]]:
        named = {segment.machine: segment.node_name for segment in self._segments}
        for machine, letter in [*self._letters.items()][:LEGEND_MACHINES]:
            yield f"{letter} {named[machine][:24]}", lambda x, y, machine=machine: _square(x, y, colour(machine))
        if len(self._letters) > LEGEND_MACHINES:
            yield f"and {len(self._letters) - LEGEND_MACHINES} more machines", lambda _x, _y: ""

    def _phase_entries(self) -> Iterator[tuple[str, Callable[[float, float], str]]]:
        seen = {segment.phase for segment in self._segments}
        for phase in (phase for phase in PHASES if phase in seen and phase not in WAITING):
            over = f"url(#phase-{phase})" if PATTERNS[phase] else ""
            yield (
                phase,
                lambda x, y, over=over: _square(x, y, "#777") + (_square(x, y, over) if over else ""),
            )

    def _mark_entries(self) -> Iterator[tuple[str, Callable[[float, float], str]]]:
        seen = {mark.kind for mark in self._marks}
        for kind in (kind for kind in MARKS if kind in seen):
            path = f'<path d="{SHAPES[kind]}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
            yield kind, lambda x, y, path=path: f'<g transform="translate({x + 6:.0f} {y + 5:.0f})">{path}</g>'


def _square(x: float, y: float, fill: str) -> str:
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="11" height="11" fill="{fill}"/>'


def _class(name: str) -> str:
    return xml_text(name.replace(" ", "-"))


def _meaning(phase: str) -> str:
    return next((says for known, says in PHASES.items() if known == phase), "")


def _clock(at_s: int, last_s: float, step_s: int) -> str:
    """Return the time since the beginning: minutes and seconds before an hour, else hours and minutes; all three where the steps between
    these labels are shorter than a minute."""
    large, small = divmod(at_s if last_s < 3600 else at_s // 60, 60)
    seconds = f":{at_s % 60:02d}" if last_s >= 3600 and step_s % 60 else ""
    return f"{large}:{small:02d}{seconds}"


def _after(ms: int) -> str:
    return duration_words(max(0, ms) / 1000)


def _spell(from_ms: int, to_ms: int) -> str:
    at = datetime.fromtimestamp(from_ms / 1000, UTC)
    return f"{_after(to_ms - from_ms)} from {at:%Y-%m-%d %H:%M:%S} UTC"
