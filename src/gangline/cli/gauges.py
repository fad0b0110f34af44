"""The gauges of a node in words: for its row of a list, and for its own page."""

import time
from collections.abc import Sequence

from gangline.cli.lines import TableColumn, print_one_line_each
from gangline.cli.output import format_time, out
from gangline.core.fleet.gauges import GaugesPoint, GaugesView, GpuGauges, mean_utilisation
from gangline.core.fleet.history import SHOWN, extent_of
from gangline.core.fleet.slowness import limits_in_words

BARS = "▁▂▃▄▅▆▇█"
BARS_MAX, BARS_FEW = 24, 16
WIDE = 100
"""A terminal with fewer cells gets few bars, so that the table fits into 80."""
HISTORY_COLUMNS = (
    TableColumn(header="gauge"),
    TableColumn(header="over time"),
    TableColumn(header=">least"),
    TableColumn(header="at", goes=2),
    TableColumn(header=">mean", goes=1),
    TableColumn(header=">most"),
    TableColumn(header="at", goes=2),
)
OLD_S = 300
"""A load that was measured longer ago than this is not shown in a list: the node may do something else by now."""


def load_text(gauges: GaugesView | None) -> str:
    """Return the load of a node in a few characters, with the temperature of its hottest GPU: `97% 71°`, `–` if it is unknown."""
    if gauges is None or time.time() - gauges.at_ms / 1000 > OLD_S:
        return "–"
    load = mean_utilisation(gauges) if gauges.gpus else gauges.cpu_load
    hottest = [gpu.temperature_c for gpu in gauges.gpus if gpu.temperature_c is not None]
    return " ".join([_percent(load), *([f"{max(hottest):.0f}°"] if hottest else [])])


def gauges_facts(gauges: GaugesView | None) -> dict[str, str]:
    """Return what a node measured last, by name."""
    if gauges is None:
        return {}
    facts = {
        "measured": format_time(gauges.at_ms),
        "load": "unknown" if gauges.cpu_load is None else f"{_percent(gauges.cpu_load)} of its cores",
        "memory": f"{_gb(gauges.memory_used_bytes)} of {_gb(gauges.memory_bytes)} GB used",
        "disk": f"{_gb(gauges.disk_free_bytes)} of {_gb(gauges.disk_bytes)} GB free",
    }
    if gauges.received_bytes_per_s is not None and gauges.sent_bytes_per_s is not None:
        facts["network"] = f"{_mb(gauges.received_bytes_per_s)} MB/s received, {_mb(gauges.sent_bytes_per_s)} sent"
    return facts | {f"gpu {number}": _gpu_text(gpu) for number, gpu in enumerate(gauges.gpus)}


def _gpu_text(gpu: GpuGauges) -> str:
    said = [f"{_percent(gpu.utilisation)} busy"] if gpu.utilisation is not None else []
    if gpu.memory_used_bytes is not None and gpu.memory_bytes is not None:
        said.append(f"{_gb(gpu.memory_used_bytes)} of {_gb(gpu.memory_bytes)} GB used")
    if gpu.temperature_c is not None:
        said.append(f"{gpu.temperature_c:.0f} °C")
    if gpu.power_w is not None:
        said.append(f"{gpu.power_w:.0f}{f' of {gpu.power_limit_w:.0f}' if gpu.power_limit_w else ''} W")
    if gpu.limited_by:
        said.append(f"clocks held down by {limits_in_words(gpu.limited_by)}")
    return ", ".join(said) or "unknown"


def print_history(history: Sequence[GaugesPoint]) -> None:
    """Print each gauge of the last day on a line: a chart, its least value and when, its mean, and its greatest value and when."""
    shown = [(gauge, extent) for gauge in SHOWN if (extent := extent_of(history, gauge.name))]
    if len(history) < 2 or not shown:
        return
    out.print()
    out.print(f"last {_span(history[-1].at_ms - history[0].at_ms)}, from {format_time(history[0].at_ms)}")
    bars = BARS_MAX if out.width >= WIDE else BARS_FEW
    rows = [
        [
            gauge.says,
            chart(history, gauge.name, gauge.most or extent.high, bars),
            gauge.text(extent.low),
            format_time(extent.low_ms)[11:16],
            gauge.text(extent.mean),
            gauge.text(extent.high),
            format_time(extent.high_ms)[11:16],
        ]
        for gauge, extent in shown
    ]
    print_one_line_each(HISTORY_COLUMNS, rows)


def chart(history: Sequence[GaugesPoint], name: str, most: float, bars: int = BARS_MAX) -> str:
    """Return a gauge over the time of its history as up to this number of bars of equal time, from 0 to `most`; a blank where nothing was
    measured."""
    first_ms, last_ms = history[0].at_ms, history[-1].at_ms
    width = min(bars, len(history))
    found: list[list[float]] = [[] for _ in range(width)]
    for point in history:
        value = getattr(point, name)
        if value is not None:
            found[min(width - 1, (point.at_ms - first_ms) * width // max(1, last_ms - first_ms))].append(value)
    return "".join(_bar(sum(values) / len(values) / (most or 1)) if values else " " for values in found)


def _bar(share: float) -> str:
    return BARS[round(min(max(share, 0.0), 1.0) * (len(BARS) - 1))]


def _span(ms: int) -> str:
    return f"{ms / 3_600_000:.0f} h" if ms > 5_400_000 else f"{max(1, ms // 60_000)} min"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f}"


def _mb(count: float) -> str:
    return f"{count / 1e6:.1f}"
