"""Turn the metrics that trainers report into one series for each job.

A point holds means over the steps since the point before it; its `step` is the last of them. `MEANING` has the names that Gangline's
trainers use; other trainers may add more. Steps that were repeated after an interruption count once (`series`).
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
    "loss": "the training loss, averaged over the images of a step",
    "smoothed_loss": "the loss, averaged over about the last fifty steps; computed on request, never stored",
    "learning_rate": "the U-Net's rate; with Prodigy the rate that it found",
    "text_encoder_learning_rate": "the text encoders' rate, if they are trained",
    "lora_b_learning_rate": "with LoRA+ the rate of the U-Net's matrices B",
    "text_encoder_lora_b_learning_rate": "with LoRA+ the rate of the text encoders' matrices B, if they are trained",
    "gradient_norm": "the norm of the gradient before it is clipped",
    "seconds_per_step": "the time from step to step, without saving and rendering",
    "images_per_second": "images trained on in a second, class images included, by the same clock",
    "images_per_second_per_gpu": "the same for each GPU, in a run on several",
    "share_of_peak": "the share of the GPU's peak FLOP/s in bf16 (older GPUs: fp16); recomputation for gradient checkpointing counts too",
    "held_out_loss": "the loss of images that are never trained on, with the same noise and timesteps each time",
    "held_out_psnr": "the PSNR of images that are never trained on, encoded and decoded again, in dB",
    "held_out_loss_noise": "the standard error of that loss's difference to the best before: a difference below twice this says nothing",
    "held_out_psnr_noise": "the same of the PSNR",
    "memory_gb": "peak GPU memory, in 10⁹ bytes; absent on a CPU",
}
"""The metrics by name, with their meaning. `smoothed_loss` is computed when it is read; trainers do not report it."""

POINTS_MAX = 500
"""The maximum number of points in one batch."""
NAMES_MAX = 32
SPACING = 512
"""The maximum number of points between a step and twice that step, besides saved steps: the density of points relative to the length of
a job does not depend on the length."""
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
    """A point as a trainer reports it; or, without values, the report that this step was `saved`, so that an attempt may resume from it."""

    point: Point
    saved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A point of a job's series; `at_ms` is when the server received it."""

    step: int
    at_ms: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPoints:
    """The points of an attempt, which started from `from_step`."""

    from_step: int
    points: tuple[Measured, ...] = ()


def sound(found: object) -> dict[str, float]:
    """Return the valid entries of a trainer's metrics: finite numbers with a valid name, `NAMES_MAX` at most, rounded to `DIGITS`."""
    if not isinstance(found, dict):
        return {}
    numbers = {
        name: value for name, value in found.items() if isinstance(name, str) and is_name(name) and is_finite(value)
    }
    return {name: float(f"{value:.{DIGITS}g}") for name, value in list(numbers.items())[:NAMES_MAX]}


def is_finite(value: object) -> bool:
    """Return whether a JSON value is a number that a float can be."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that no float can be
        return False


def spacing(step: int) -> int:
    """Return the distance in steps between points that are kept near `step`: a power of two that doubles when the step doubles."""
    return 1 << max(0, (step // SPACING).bit_length() - 1)


def thin(readings: Sequence[Reading], after: int) -> tuple[list[Point], list[Reading]]:
    """Return the means of readings that are closer than the spacing, and the readings at the end, whose mean is not complete yet.

    A saved step ends a mean, so that an attempt that resumes from it repeats and omits nothing. `after` is the last step of the point
    before.
    """
    kept, waiting, start = list[Point](), list[Reading](), after
    for reading in readings:
        step, every = reading.point.step, spacing(reading.point.step)
        last = waiting[-1].point.step if waiting else start
        if step < last or (step == last and reading.point.values):
            continue  # a repeated step: the trainer went back
        waiting.append(reading)
        if reading.saved or step // every > start // every:
            kept += summed_up(waiting, start)
            waiting, start = [], step
    return kept, waiting


def summed_up(readings: Sequence[Reading], after: int) -> list[Point]:
    """Return one point with the means of all readings; none if they have no values."""
    points = [reading.point for reading in readings if reading.point.values]
    return [mean(points, after)] if points else []


def halve(points: Sequence[Point], after: int) -> list[Point]:
    """Return the points with each pair of neighbours replaced by its mean."""
    starts = [after, *(point.step for point in points)]
    return [mean(points[place : place + 2], starts[place]) for place in range(0, len(points), 2)]


def mean(points: Sequence[Point], after: int) -> Point:
    """Return the mean of neighbouring points, each weighted by its number of steps."""
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


def last_loss(points: Sequence[Point]) -> float | None:
    """Return the training loss of the last of some points in order that has one."""
    return next((point.values["loss"] for point in reversed(points) if "loss" in point.values), None)


def pack_points(points: Sequence[Point]) -> str:
    """Return the points as JSON in columns: in rows, the repeated names would take most of the space."""
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


def series(attempts: Sequence[AttemptPoints], up_to: int | None = None) -> list[Measured]:
    """Return one series from a job's attempts, in their order.

    The points of an attempt count from the step that it started from up to the step that a later attempt started from, and up to `up_to`.
    A step that was reported twice counts once.
    """
    told, end = list[list[Measured]](), math.inf if up_to is None else up_to
    for attempt in reversed(attempts):
        told.append(list(_ascending(attempt, end)))
        end = min(end, attempt.from_step)
    return [point for points in reversed(told) for point in points]


def _ascending(attempt: AttemptPoints, end: float) -> Iterable[Measured]:
    last = attempt.from_step
    for point in attempt.points:
        if last < point.step <= end:
            yield point
            last = point.step


def with_smoothed_loss(points: Iterable[Measured]) -> list[Measured]:
    """Add an exponential moving average of the loss over steps, bias-corrected (Kingma & Ba 2014, §3), for any spacing of the points."""
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
