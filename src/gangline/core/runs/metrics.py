"""What trainers measure, from the lines that they write to the one series of a job.

A point holds means over the steps since the point before it; its `step` is the last of them. `MEANING` has the names that
Gangline's own trainers use; any other trainer may add its own. What an interruption made a job do again counts once: `series`.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

from annotated_types import Ge, Le, MaxLen, Predicate

MEANING = {
    "loss": "what is minimised, over the images of a step",
    "smoothed_loss": "the loss, averaged over about the last fifty steps",
    "learning_rate": "of the U-Net's weights",
    "text_encoder_learning_rate": "of the text encoders' weights, where they are trained",
    "gradient_norm": "the length of the gradient before it is clipped",
    "seconds_per_step": "from step to step; time spent saving or rendering is left out",
    "images_per_second": "images of all steps, those of the class too, by the same clock",
    "images_per_second_per_gpu": "the same, of each GPU of a run that has several",
    "share_of_peak": "of what the GPU can do at most in bf16 (older ones: fp16); what is computed twice to save memory counts twice",
    "held_out_loss": "of images that are never trained on, at noise and timesteps that stay",
    "held_out_psnr": "of images that are never trained on, encoded and decoded again, in dB",
    "memory_gb": "the most GPU memory that was in use at a time, in 10⁹ bytes",
}
"""Every name, and what stands there. `smoothed_loss` is derived when somebody looks; trainers do not report it."""

POINTS_MAX = 500
"""Points in one batch."""
NAMES_MAX = 32
SPACING = 512
"""So many points at most between a step and its double, besides those of saved steps: how dense a job is does not depend on its length."""
SMOOTHING = 0.98
DIGITS = 7
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,63}")


def is_name(text: str) -> bool:
    return NAME.fullmatch(text) is not None


MetricName = Annotated[str, Predicate(is_name)]
Values = Annotated[dict[MetricName, Annotated[float, Predicate(math.isfinite)]], MaxLen(NAMES_MAX)]
StepNumber = Annotated[int, Ge(1), Le(10**12)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    step: StepNumber
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A point as a trainer reports it, or, without values, that it has `saved` this very step: another attempt may go on from it."""

    point: Point
    saved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A point of a job's series; `at_ms` is when the server heard of it."""

    step: int
    at_ms: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPoints:
    """What an attempt measured, from where it went on."""

    from_step: int
    points: tuple[Measured, ...] = ()


def sound(found: object) -> dict[str, float]:
    """Those of a trainer's values that are numbers under a name."""
    if not isinstance(found, dict):
        return {}
    numbers = {
        name: value for name, value in found.items() if isinstance(name, str) and is_name(name) and _is_number(value)
    }
    return {name: float(f"{value:.{DIGITS}g}") for name, value in list(numbers.items())[:NAMES_MAX]}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def spacing(step: int) -> int:
    """How far apart points are kept about `step`: a power of two, that doubles with it."""
    return 1 << max(0, (step // SPACING).bit_length() - 1)


def thin(readings: Sequence[Reading], after: int) -> tuple[list[Point], list[Reading]]:
    """Means of readings that lie closer than need be, and those at the end that more may still come to. A saved step ends its
    mean: what goes on from there doubles nothing and leaves nothing out. `after` is the last step of the point before."""
    kept, waiting, start = list[Point](), list[Reading](), after
    for reading in readings:
        step, every = reading.point.step, spacing(reading.point.step)
        last = waiting[-1].point.step if waiting else start
        if step < last or (step == last and reading.point.values):
            continue  # it went back
        waiting.append(reading)
        if reading.saved or step // every > start // every:
            kept += summed_up(waiting, start)
            waiting, start = [], step
    return kept, waiting


def summed_up(readings: Sequence[Reading], after: int) -> list[Point]:
    """One point of them all, if there is anything in them."""
    points = [reading.point for reading in readings if reading.point.values]
    return [mean(points, after)] if points else []


def halve(points: Sequence[Point], after: int) -> list[Point]:
    """Means of two neighbours each."""
    starts = [after, *(point.step for point in points)]
    return [mean(points[place : place + 2], starts[place]) for place in range(0, len(points), 2)]


def mean(points: Sequence[Point], after: int) -> Point:
    """Of neighbours, each weighed by its steps."""
    if len(points) == 1:
        return points[0]
    sums, steps, before = dict[str, float](), dict[str, int](), after
    for point in points:
        for name, value in point.values.items():
            sums[name] = sums.get(name, 0.0) + value * (point.step - before)
            steps[name] = steps.get(name, 0) + point.step - before
        before = point.step
    return Point(step=before, values=sound({name: sums[name] / steps[name] for name in sums}))


def is_ascending(points: Sequence[Point]) -> bool:
    return all(one.step < other.step for one, other in pairwise(points))


def pack(points: Sequence[Point]) -> str:
    """JSON by columns, as names would take most of the room."""
    names = sorted({name for point in points for name in point.values})
    columns = {name: [point.values.get(name) for point in points] for name in names}
    return json.dumps({"step": [point.step for point in points], "values": columns}, separators=(",", ":"))


def unpack_points(packed: str, at_ms: int) -> list[Measured]:
    batch: dict[str, Any] = json.loads(packed)
    return [
        Measured(
            step=step,
            at_ms=at_ms,
            values={name: column[place] for name, column in batch["values"].items() if column[place] is not None},
        )
        for place, step in enumerate(batch["step"])
    ]


def series(stretches: Sequence[AttemptPoints], up_to: int | None = None) -> list[Measured]:
    """One run of a job's attempts, in their order. The points of an attempt count after the step that it went on from, up to the
    one that a later attempt went on from, and up to `up_to`. What was told twice counts once."""
    told, end = list[list[Measured]](), math.inf if up_to is None else up_to
    for stretch in reversed(stretches):
        told.append(list(_ascending(stretch, end)))
        end = min(end, stretch.from_step)
    return [point for points in reversed(told) for point in points]


def _ascending(stretch: AttemptPoints, end: float) -> Iterable[Measured]:
    last = stretch.from_step
    for point in stretch.points:
        if last < point.step <= end:
            yield point
            last = point.step


def with_smoothed_loss(points: Iterable[Measured]) -> list[Measured]:
    """An exponential mean over steps, corrected for its start (Kingma & Ba 2014, §3), whatever the spacing of the points."""
    told, total, weight, before = list[Measured](), 0.0, 0.0, 0
    for point in points:
        if "loss" in point.values:
            kept, before = SMOOTHING ** (point.step - before), point.step
            total = kept * total + (1 - kept) * point.values["loss"]
            weight = kept * weight + 1 - kept
            told.append(replace(point, values={**point.values, **sound({"smoothed_loss": total / weight})}))
        else:
            told.append(point)
    return told
