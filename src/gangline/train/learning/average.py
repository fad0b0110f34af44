"""State that follows the weights from step to step besides the optimiser: their moving average, and the loss scale in float16."""

from dataclasses import dataclass, field

import torch

from gangline.train.checkpoints import shards
from gangline.train.tensors import Tensors

FIRST_SCALE, GROWS_AFTER = 2.0**16, 2000


@dataclass(slots=True)
class LossScale:
    """The factor of the loss in float16, where small gradients would otherwise vanish (Micikevicius et al. 2017, §3.2).

    It doubles after `GROWS_AFTER` steps without overflow, and halves at each overflow. All ranks see the same norm, so all take or skip the
    same steps.
    """

    factor: float = 1.0
    steps: int = 0

    def took(self, finite: bool) -> None:
        """Adjust the factor after a step whose gradient was finite or overflowed."""
        self.steps = self.steps + 1 if finite else 0
        if not finite:
            self.factor /= 2
        elif self.steps == GROWS_AFTER:
            self.factor, self.steps = self.factor * 2, 0


@dataclass(slots=True)
class Average:
    """The exponential moving average of the weights, updated in place from step `from_step` on; before that `tensors` is empty."""

    decay: float
    from_step: int
    tensors: Tensors = field(default_factory=dict)

    @classmethod
    def begun(cls, decay: float, from_step: int, weights: Tensors) -> "Average":
        """Return the average of a run that begins: an average from step 0 starts with the weights before the first step."""
        return cls(decay, from_step, _copied(weights) if from_step == 0 else {})

    @torch.no_grad()
    def follow(self, step: int, weights: Tensors) -> None:
        """Update the average. As in diffusers, the decay starts low: the average follows closely at first. A rank averages only its rows of
        sharded weights."""
        if step < self.from_step:
            return
        if not self.tensors:
            self.tensors = _copied(weights)
        since = step - self.from_step
        decay = min(self.decay, (1 + since) / (10 + since))
        here = [shards.local(tensor) for tensor in self.tensors.values()]
        torch._foreach_lerp_(here, [shards.local(weights[name].detach()) for name in self.tensors], 1 - decay)


def _copied(weights: Tensors) -> Tensors:
    return {name: weight.detach().clone() for name, weight in weights.items()}
