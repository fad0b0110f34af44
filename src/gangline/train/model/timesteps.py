"""Which timesteps a sample is trained at: drawn from a range, all alike or some more often than others."""

from collections.abc import Iterable

import numpy as np
import torch

from gangline.core.errors import BadInput
from gangline.core.specs.sections.objective import ObjectiveSettings
from gangline.train.run import chance

PURPOSE = "timestep"


class TimestepSampler:
    """Timesteps of a base that has `count` of them; each is a function of seed, step and sample. Raises `BadInput` if the range of
    `objective` ends beyond the base's."""

    def __init__(self, objective: ObjectiveSettings, count: int) -> None:
        for name in ("max_timestep", "timestep_bias_end"):
            if (getattr(objective, name) or 0) > count:
                raise BadInput(f"{name} is {getattr(objective, name)}, but this base has {count} timesteps")
        self._first, self._last = objective.min_timestep, objective.max_timestep or count
        if self._first >= self._last:
            raise BadInput(f"min_timestep is {self._first}, but this base has {count} timesteps")
        biased = objective.timestep_bias_strategy != "none"
        self._weights = timestep_weights(objective, self._first, self._last) if biased else None

    def draw(self, seed: int, step: int, samples: Iterable[int]) -> torch.Tensor:
        """Return the timestep of each sample, (samples,), int64 on the CPU."""
        if self._weights is None:
            return self._first + chance.integers(seed, PURPOSE, step, samples, self._last - self._first)
        return self._first + chance.weighted(seed, PURPOSE, step, samples, self._weights)


def timestep_weights(objective: ObjectiveSettings, first: int, last: int) -> np.ndarray:
    """Return how often each timestep from `first` to before `last` is drawn, relative to the others: 1, or the multiplier of the bias, as
    in diffusers' script for SDXL. `earlier` and `later` are a portion of these timesteps, those with the least or the most noise."""
    count = last - first
    portion = max(1, int(objective.timestep_bias_portion * count))
    match objective.timestep_bias_strategy:
        case "earlier":
            begin, end = 0, portion
        case "later":
            begin, end = count - portion, count
        case "range":
            begin, end = objective.timestep_bias_begin - first, (objective.timestep_bias_end or last) - first
        case "none":
            begin = end = 0
    weights = np.ones(count)
    weights[max(0, begin) : max(0, end)] = objective.timestep_bias_multiplier
    return weights
