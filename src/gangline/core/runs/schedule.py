"""Compute the learning rate's factor in each step of a run."""

import math

from gangline.core.specs.phases import Moment
from gangline.core.specs.sample import TrainingSpec


def rate_factor(spec: TrainingSpec, step: int) -> float:
    """Return the factor of the learning rate in `step` (from 1): a linear warm-up, then constant or a decay to the floor.

    The floor would be reached one step after the last, with restarts after the last of each cycle (Loshchilov & Hutter 2017, eq. 5). A
    schedule-free optimiser warms up by itself.
    """
    if spec.optimizer == "schedule_free":
        return 1.0
    if step <= spec.warmup_steps:
        return step / spec.warmup_steps
    taken, decays = step - 1 - spec.warmup_steps, max(1, spec.steps - spec.warmup_steps)
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
