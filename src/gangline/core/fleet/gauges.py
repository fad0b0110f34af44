"""The gauges of a node: how busy, hot and limited its GPUs are, how full its memory and its disk, and what its network carries.

A node measures them every `GAUGES_EVERY_S` and sends them with its next request. The server keeps the newest, and a point each minute of
the last hour and each ten minutes of the last day, in as many places: a new point replaces one that is too old.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, MaxLen

from gangline.core.policy import Exact

GAUGES_EVERY_S = 30.0
"""Seconds between two measurements of a node."""
GPUS_MAX = 128
NEWEST = 0
"""The place of the newest gauges."""
LEAST_MS = 10_000
"""Newer gauges of a node that are sent sooner than this are dropped, as no agent of ours sends them so often."""
MINUTE_MS, MINUTES = 60_000, 60
TEN_MINUTES_MS, TENS = 600_000, 144

GaugeShare = Annotated[float, Ge(0), Le(1), Exact()]
GaugeBytes = Annotated[int, Ge(0), Le(2**53), Exact()]
Celsius = Annotated[float, Ge(-100), Le(300), Exact()]
Watts = Annotated[float, Ge(0), Le(100_000), Exact()]
BytesPerSecond = Annotated[float, Ge(0), Le(10**13), Exact()]
ClockLimit = Literal["heat", "power brake", "hardware", "power cap"]
"""Why a driver holds a GPU's clocks down: it is too hot, the power supply asks for it, the card protects itself for another reason, or it
has reached its power limit, which is usual under full load."""


class UnlessRefused:
    """An annotation for a part that is dropped, and becomes None, if it is not valid: what it came with still counts."""

    def __get_pydantic_core_schema__(self, of: Any, schema_of: Callable[[Any], Any]) -> dict[str, Any]:
        return {"type": "default", "schema": schema_of(of), "default": None, "on_error": "default"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGauges:
    """A GPU: the share of the time in which it computed, its memory in bytes, its temperature in °C, the power that it draws and may draw
    in watts, and what its clocks are `limited_by`. What its driver does not say is null."""

    utilisation: GaugeShare | None = None
    memory_used_bytes: GaugeBytes | None = None
    memory_bytes: GaugeBytes | None = None
    temperature_c: Celsius | None = None
    power_w: Annotated[Watts | None, UnlessRefused()] = None
    power_limit_w: Annotated[Watts | None, UnlessRefused()] = None
    limited_by: Annotated[tuple[ClockLimit, ...] | None, MaxLen(4), UnlessRefused()] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """A node: `cpu_load` is the busy share of the cores that it may use, null if that cannot be read; memory is the machine's, or that
    which its container may use; `disk_free_bytes` of `disk_bytes` are free where its runs lie. Its network has received and sent that many
    bytes a second since the measurement before, null if that cannot be read. `gpus` are those that it uses; if `gpu_memory_spills`, their
    driver moves to the machine's memory what does not fit into theirs, as on Windows and WSL, instead of refusing it."""

    cpu_load: GaugeShare | None = None
    memory_used_bytes: GaugeBytes
    memory_bytes: GaugeBytes
    disk_free_bytes: GaugeBytes
    disk_bytes: GaugeBytes
    received_bytes_per_s: Annotated[BytesPerSecond | None, UnlessRefused()] = None
    sent_bytes_per_s: Annotated[BytesPerSecond | None, UnlessRefused()] = None
    gpu_memory_spills: Annotated[bool | None, UnlessRefused()] = None
    gpus: Annotated[tuple[GpuGauges, ...], MaxLen(GPUS_MAX)] = ()


SentGauges = Annotated[Gauges | None, UnlessRefused()]
"""Gauges as a node sends them: those that make no sense are dropped, and the request that has them is answered all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugesView(Gauges):
    """The newest gauges of a node, and when the server received them, in milliseconds UTC."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugesPoint:
    """A moment of a node's past: shares from 0 to 1, °C, watts and bytes a second, null if unknown. Of several GPUs, utilisation and memory
    are the mean, `temperature_c` is that of the hottest, `power_w` what they draw together, and `limited_by` has every reason for which the
    clocks of one were held down."""

    at_ms: int
    cpu_load: float | None = None
    memory_share: float | None = None
    disk_share: float | None = None
    gpu_utilisation: float | None = None
    gpu_memory_share: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    limited_by: tuple[ClockLimit, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugePlace:
    """Where a point is kept. It is written only if what is there is older than `before_ms`."""

    number: int
    before_ms: int


def gauge_places(now_ms: int) -> tuple[GaugePlace, ...]:
    """Return the places of gauges that arrive now: that of the newest, of this minute and of these ten minutes. The first point of a
    minute, or of ten, stays until its place is taken an hour, or a day, later."""
    minute, tens = now_ms // MINUTE_MS, now_ms // TEN_MINUTES_MS
    return (
        GaugePlace(number=NEWEST, before_ms=now_ms - LEAST_MS + 1),
        GaugePlace(number=1 + minute % MINUTES, before_ms=minute * MINUTE_MS),
        GaugePlace(number=1 + MINUTES + tens % TENS, before_ms=tens * TEN_MINUTES_MS),
    )


def history_of(kept: Iterable[tuple[int, GaugesPoint]], now_ms: int) -> tuple[GaugesPoint, ...]:
    """Return the points of the last day by time, from those kept with their places: each minute of the last hour, each ten before that."""
    hour_ms, day_ms = now_ms - MINUTES * MINUTE_MS, now_ms - TENS * TEN_MINUTES_MS
    found = [
        point
        for place, point in kept
        if (point.at_ms > hour_ms if place <= MINUTES else day_ms < point.at_ms <= hour_ms)
    ]
    return tuple(sorted(found, key=lambda point: point.at_ms))


def point_of(gauges: Gauges, at_ms: int) -> GaugesPoint:
    """Return the gauges as a point of a node's history, shares rounded to three digits."""
    hottest = [gpu.temperature_c for gpu in gauges.gpus if gpu.temperature_c is not None]
    drawn = [gpu.power_w for gpu in gauges.gpus if gpu.power_w is not None]
    limits = [gpu.limited_by for gpu in gauges.gpus if gpu.limited_by is not None]
    return GaugesPoint(
        at_ms=at_ms,
        cpu_load=_mean([gauges.cpu_load]),
        memory_share=_mean([share_of(gauges.memory_used_bytes, gauges.memory_bytes)]),
        disk_share=_mean([share_of(gauges.disk_bytes - gauges.disk_free_bytes, gauges.disk_bytes)]),
        gpu_utilisation=_mean([gpu.utilisation for gpu in gauges.gpus]),
        gpu_memory_share=_mean([share_of(gpu.memory_used_bytes, gpu.memory_bytes) for gpu in gauges.gpus]),
        temperature_c=max(hottest, default=None),
        power_w=round(sum(drawn), 1) if drawn else None,
        received_bytes_per_s=_rounded(gauges.received_bytes_per_s),
        sent_bytes_per_s=_rounded(gauges.sent_bytes_per_s),
        limited_by=tuple(sorted({limit for each in limits for limit in each})) if limits else None,
    )


def share_of(used: int | None, total: int | None) -> float | None:
    """Return the share of a total that is used, from 0 to 1; None if one of them is unknown, or there is nothing to use."""
    return min(max(used / total, 0.0), 1.0) if used is not None and total else None


def mean_utilisation(gauges: Gauges) -> float | None:
    """Return the mean utilisation of the node's GPUs, from 0 to 1; None if none is known."""
    return _mean([gpu.utilisation for gpu in gauges.gpus])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value)


def _mean(shares: Iterable[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return round(sum(known) / len(known), 3) if known else None
