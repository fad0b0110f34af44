"""The gauges of a node in words: for its row of a list, and for its own page."""

import time
from collections.abc import Sequence

from gangline.cli.output import format_time
from gangline.core.fleet.gauges import MINUTE_MS, MINUTES, GaugesPoint, GaugesView, GpuGauges, mean_utilisation

OLD_S = 300
"""A load that was measured longer ago than this is not shown in a list: the node may do something else by now."""


def load_text(gauges: GaugesView | None) -> str:
    """Return the load of a node in a few characters, with the temperature of its hottest GPU: `97% 71°`, `–` if it is unknown."""
    if gauges is None or time.time() - gauges.at_ms / 1000 > OLD_S:
        return "–"
    load = mean_utilisation(gauges) if gauges.gpus else gauges.cpu_load
    hottest = [gpu.temperature_c for gpu in gauges.gpus if gpu.temperature_c is not None]
    return " ".join([_percent(load), *([f"{max(hottest):.0f}°"] if hottest else [])])


def gauges_facts(gauges: GaugesView | None, history: Sequence[GaugesPoint]) -> dict[str, str]:
    """Return what a node measured last, by name, and of its GPUs how the last hour before that was."""
    if gauges is None:
        return {}
    facts = {
        "measured": format_time(gauges.at_ms),
        "load": "unknown" if gauges.cpu_load is None else f"{_percent(gauges.cpu_load)} of its cores",
        "memory": f"{_gb(gauges.memory_used_bytes)} of {_gb(gauges.memory_bytes)} GB used",
        "disk": f"{_gb(gauges.disk_free_bytes)} of {_gb(gauges.disk_bytes)} GB free",
    }
    facts |= {f"gpu {number}": _gpu_text(gpu) for number, gpu in enumerate(gauges.gpus)}
    return facts | {"GPUs, last hour": _last_hour([each for each in history if _is_recent(each, gauges)])}


def _is_recent(point: GaugesPoint, gauges: GaugesView) -> bool:
    return point.at_ms > gauges.at_ms - MINUTES * MINUTE_MS


def _last_hour(points: Sequence[GaugesPoint]) -> str:
    busy = [point.gpu_utilisation for point in points if point.gpu_utilisation is not None]
    heat = [point.temperature_c for point in points if point.temperature_c is not None]
    said = [f"{_percent(sum(busy) / len(busy))} busy on average"] if busy else []
    return ", ".join([*said, *([f"{max(heat):.0f} °C at most"] if heat else [])])


def _gpu_text(gpu: GpuGauges) -> str:
    said = [f"{_percent(gpu.utilisation)} busy"] if gpu.utilisation is not None else []
    if gpu.memory_used_bytes is not None and gpu.memory_bytes is not None:
        said.append(f"{_gb(gpu.memory_used_bytes)} of {_gb(gpu.memory_bytes)} GB used")
    if gpu.temperature_c is not None:
        said.append(f"{gpu.temperature_c:.0f} °C")
    return ", ".join(said) or "unknown"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f}"
