"""Sum up the metrics of a job by what jobs of an experiment are compared by."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from gangline.core.canonical import canonical_json
from gangline.core.experiments.runs import Measurements
from gangline.core.jobs.story.held_out import HeldOutChange
from gangline.core.runs.metrics import Measured

LOSS_WINDOW = 10
"""The loss that jobs are compared by is the mean of this many last points: a single one is mostly noise."""


def sum_up(points: Sequence[Measured], rungs: Sequence[int]) -> Measurements:
    """Return what the points of a job, in the order of their steps, come to."""
    held_out = [(point.step, point.values["held_out_loss"]) for point in points if "held_out_loss" in point.values]
    losses = [(point.step, point.values["loss"]) for point in points if "loss" in point.values][-LOSS_WINDOW:]
    found = Measurements(at_rungs=_at_rungs(held_out, rungs))
    if losses:
        found = replace(found, loss=sum(loss for _, loss in losses) / len(losses), step=losses[-1][0])
    if held_out:
        best_step, best = min(held_out, key=lambda each: (each[1], each[0]))
        step, last = held_out[-1]
        found = replace(found, held_out_loss=last, held_out_step=step, best_held_out_loss=best, best_step=best_step)
    return found


def _at_rungs(held_out: Sequence[tuple[int, float]], rungs: Sequence[int]) -> dict[int, float]:
    """Return the first value at or after the step of each rung."""
    firsts = ((rung, next((value for step, value in held_out if step >= rung), None)) for rung in rungs)
    return {rung: value for rung, value in firsts if value is not None}


def with_held_out(measured: Measurements, change: HeldOutChange | None) -> Measurements:
    """Return what a job measured with the held-out loss that its result's report has. It was measured after the last step alone, so no rung
    has one."""
    if change is None or measured.held_out_loss is not None:
        return measured
    at = {"held_out_step": measured.step, "best_step": measured.step}
    return replace(measured, held_out_loss=change.after, best_held_out_loss=change.after, **at)


def pack_measurements(measured: Measurements) -> str:
    return canonical_json(asdict(measured) | {"at_rungs": [[step, loss] for step, loss in measured.at_rungs.items()]})


def unpack_measurements(text: str) -> Measurements:
    if not text:
        return Measurements()
    known = json.loads(text)
    return Measurements(**(known | {"at_rungs": dict(known["at_rungs"])}))
