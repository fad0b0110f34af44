"""The gauges of a node over a day, in words: which there are, how each is written, and its extent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gangline.core.fleet.gauges import MINUTE_MS, TEN_MINUTES_MS, GaugesPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeExtent:
    """A gauge over time: its mean over all points, and its least and greatest value with their times in milliseconds UTC."""

    low: float
    low_ms: int
    mean: float
    high: float
    high_ms: int


def extent_of(points: Sequence[GaugesPoint], name: str) -> GaugeExtent | None:
    """Return the extent of the gauge of this name; None if no point has it. The mean is over time: a point counts until the next one, as
    those of the last hour are closer together, but no longer than ten minutes."""
    known = [(point.at_ms, value) for point in points if (value := getattr(point, name)) is not None]
    if not known:
        return None
    low_ms, low = min(known, key=lambda each: each[1])
    high_ms, high = max(known, key=lambda each: each[1])
    ends = [*(at_ms for at_ms, _ in known[1:]), known[-1][0] + MINUTE_MS]
    spans = [min(end - at_ms, TEN_MINUTES_MS) for (at_ms, _), end in zip(known, ends, strict=True)]
    mean = sum(value * span for (_, value), span in zip(known, spans, strict=True)) / max(1, sum(spans))
    return GaugeExtent(low=low, low_ms=low_ms, mean=mean, high=high, high_ms=high_ms)


@dataclass(frozen=True, slots=True)
class ShownGauge:
    """A gauge with its name for people. `most` is the top of its chart, 0 if that is its greatest value."""

    name: str
    says: str
    text: Callable[[float], str]
    most: float = 1.0


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _mb(count: float) -> str:
    return f"{count / 1e6:.1f} MB/s"


SHOWN = (
    ShownGauge("gpu_utilisation", "GPU", _percent),
    ShownGauge("gpu_memory_share", "GPU memory", _percent),
    ShownGauge("temperature_c", "GPU temperature", lambda value: f"{value:.0f} °C", 100.0),
    ShownGauge("power_w", "GPU power", lambda value: f"{value:.0f} W", 0.0),
    ShownGauge("cpu_load", "CPU", _percent),
    ShownGauge("memory_share", "Memory", _percent),
    ShownGauge("disk_share", "Disk", _percent),
    ShownGauge("received_bytes_per_s", "Received", _mb, 0.0),
    ShownGauge("sent_bytes_per_s", "Sent", _mb, 0.0),
)
