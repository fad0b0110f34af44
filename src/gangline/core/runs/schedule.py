"""The learning rate over a run."""

import math

from gangline.core.specs.spec import Spec


def rate_factor(spec: Spec, step: int) -> float:
    """What the learning rate is multiplied with in `step` (from 1): a linear warm-up, then constant, or down to zero after the last step.

    A schedule-free optimiser warms up by itself.
    """
    if spec.optimizer == "schedule_free":
        return 1.0
    if step <= spec.warmup_steps:
        return step / spec.warmup_steps
    done = (step - 1 - spec.warmup_steps) / max(1, spec.steps - spec.warmup_steps)
    match spec.schedule:
        case "constant":
            return 1.0
        case "linear":
            return 1 - done
        case "cosine":
            return (1 + math.cos(math.pi * done)) / 2
