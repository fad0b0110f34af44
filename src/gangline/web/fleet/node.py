"""One node as its page shows it."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.fleet.gauges import GaugesPoint
from gangline.core.fleet.history import SHOWN, extent_of
from gangline.core.fleet.nodes import NodeDetail
from gangline.service.deployment import Deployment
from gangline.service.fleet.measured.record import NodeAttempt, StrikeView, attempts_of_node, machine_strikes
from gangline.service.fleet.measured.speeds import NodeSpeed, node_speeds
from gangline.service.fleet.operating import node_detail
from gangline.web.fleet.shown import is_old, shares_of

GAP_MS = 21 * 60_000
"""Points that are further apart are not joined by a line: the node measured nothing in between."""
WIDTH, HEIGHT = 288, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeLines:
    """A gauge over the last day, or since the node came: `lines` are the points of SVG polylines in a box of `WIDTH` by `HEIGHT`, `text`
    has its least, mean and greatest value."""

    name: str
    says: str
    text: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDetail:
    node: NodeDetail
    speed: NodeSpeed | None
    shares: GaugesPoint | None
    old: bool
    history: tuple[GaugeLines, ...]
    history_s: float
    strikes: tuple[StrikeView, ...]
    attempts: tuple[NodeAttempt, ...]


def shown_detail(deployment: Deployment, node: str, project: str | None, now_ms: int) -> ShownDetail:
    """Load a node. Jobs are shown to their own project, and to operators (`project` is None). Raise `NotFound`."""
    found = node_detail(deployment, node, project, now_ms)
    shares = shares_of(found.gauges)
    points = [*found.gauges_history, *([shares] if shares else [])]
    return ShownDetail(
        node=found,
        speed=node_speeds(deployment).get(found.id) if found.jobs else None,
        shares=shares,
        old=is_old(found.gauges, now_ms),
        history=_history(points),
        history_s=(points[-1].at_ms - points[0].at_ms) / 1000 if points else 0.0,
        strikes=machine_strikes(deployment, found.machine.id, project, now_ms) if found.machine else (),
        attempts=attempts_of_node(deployment, found.id, project, now_ms),
    )


def _history(points: Sequence[GaugesPoint]) -> tuple[GaugeLines, ...]:
    found = list[GaugeLines]()
    for gauge in SHOWN:
        known = [(point.at_ms, value) for point in points if (value := getattr(point, gauge.name)) is not None]
        extent = extent_of(points, gauge.name)
        if extent is None or len(known) < 2:
            continue
        found.append(
            GaugeLines(
                name=gauge.name,
                says=gauge.says,
                text=f"{gauge.text(extent.low)} to {gauge.text(extent.high)}, mean {gauge.text(extent.mean)}",
                lines=_lines(known, (points[0].at_ms, points[-1].at_ms), gauge.most or extent.high or 1.0),
            )
        )
    return tuple(found)


def _lines(known: Sequence[tuple[int, float]], span_ms: tuple[int, int], most: float) -> tuple[str, ...]:
    """Return polylines over this span of time, from 0 at the bottom to `most` at the top."""
    lines, before_ms = list[list[str]](), 0
    since_ms, until_ms = span_ms
    for at_ms, value in known:
        if not lines or at_ms - before_ms > GAP_MS:
            lines.append([])
        across = WIDTH * (at_ms - since_ms) / max(1, until_ms - since_ms)
        down = HEIGHT - 1 - (HEIGHT - 2) * min(max(value / most, 0.0), 1.0)
        lines[-1].append(f"{across:.1f},{down:.1f}")
        before_ms = at_ms
    return tuple(" ".join(line) for line in lines)
