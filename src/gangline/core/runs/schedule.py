"""Compute the learning rate, and its factor, in each step of a run."""

import math
from dataclasses import dataclass

from gangline.core.specs.phases import Moment, moment_of_step
from gangline.core.specs.sample import TrainingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RateAt:
    """The learning rate of a step, of everything that has no rate of its own. Prodigy multiplies it by the rate that it finds."""

    step: int
    learning_rate: float


def rate_factor(spec: TrainingSpec, step: int) -> float:
    """Return the factor of the learning rate in `step` (from 1): a linear warm-up, then constant or a decay to the floor.

    The floor would be reached one step after the last, with restarts after the last of each cycle (Loshchilov & Hutter 2017, eq. 5). After
    `schedule_steps` the factor stays that of the last of them. A schedule-free optimiser warms up by itself.
    """
    if spec.optimizer == "schedule_free":
        return 1.0
    if step <= spec.warmup_steps:
        return step / spec.warmup_steps
    length = spec.schedule_steps or spec.steps
    within = min(step, length) if spec.schedule_steps else step
    taken, decays = within - 1 - spec.warmup_steps, max(1, length - spec.warmup_steps)
    done = taken / decays
    match spec.schedule:
        case "constant":
            return 1.0
        case "linear":
            left = 1 - done
        case "cosine":
            left = (1 + math.cos(math.pi * done)) / 2
        case "cosine_with_restarts":  # in whole numbers: a restart is not missed by a rounded one
            left = (1 + math.cos(math.pi * (taken * spec.schedule_cycles % decays) / decays)) / 2
    return spec.schedule_floor + (1 - spec.schedule_floor) * left


def warm_up(moment: Moment) -> float:
    """Return the additional factor of the learning rate in a phase that has a warm-up of its steps; else 1."""
    step = moment.first_sample // moment.phase.batch_size + 1
    return min(1.0, step / moment.phase.warmup_steps) if moment.phase.warmup_steps else 1.0


def factor_of_step(spec: TrainingSpec, moment: Moment) -> float:
    """Return the factor of the job's learning rate in a step, with the rate and the warm-up of its phase."""
    own = moment.phase.learning_rate
    return rate_factor(spec, moment.step) * warm_up(moment) * (own / spec.learning_rate if own else 1)


def rate_at(spec: TrainingSpec, step: int) -> RateAt:
    """Return the learning rate of a step, with the warm-up of a schedule-free optimiser (Defazio et al. 2024, algorithm 1)."""
    factor = factor_of_step(spec, moment_of_step(spec.phases, step))
    if spec.optimizer == "schedule_free" and step < spec.warmup_steps:
        factor *= step / spec.warmup_steps
    return RateAt(step=step, learning_rate=spec.learning_rate * factor)


def rates_on_the_way(spec: TrainingSpec) -> tuple[RateAt, ...]:
    """Return the learning rates of the first step that the job takes, of the middle one and of the last."""
    first = (spec.continues.step if spec.continues else 0) + 1
    return tuple(rate_at(spec, step) for step in (first, (first + spec.steps) // 2, spec.steps))
