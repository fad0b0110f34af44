"""Decide when to report and when to save, and notice runs that no longer learn."""

import math
import time
from dataclasses import dataclass, field

import torch

from gangline.train.tensors import Tensors

REPORT_EVERY_S = 0.5


IN_A_ROW = 50
"""After this many steps in a row without a gradient it is no coincidence. A single one may be: a sample of pure noise may have weight zero
(velocity, zero terminal SNR and min-SNR at the last timestep), and fp16 finds the scale of its loss by letting gradients overflow."""


class Diverged(ArithmeticError):
    """Raised when the loss, or every recent gradient, is not a finite number."""


class NoGradient(ArithmeticError):
    """Raised when steps continue but change nothing."""


@dataclass(slots=True)
class SaveClock:
    """A clock for checkpoints: one is due by time and, if set, by steps, which include those that pictures are made of."""

    every_s: float
    every_steps: tuple[int | None, ...]
    last_s: float = field(default_factory=time.monotonic)

    def due(self, step: int) -> bool:
        by_steps = any(every and step % every == 0 for every in self.every_steps)
        return by_steps or time.monotonic() - self.last_s >= self.every_s

    def saved(self) -> None:
        self.last_s = time.monotonic()


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Weights on the CPU as they would have been the result after `step`: pictures of that step show them, whenever they are ordered."""

    step: int
    weights: Tensors


def may_be_shown(every_steps: int | None, every_s: float | None, step: int) -> bool:
    """Return whether pictures of this step's checkpoint may be ordered: always if they come by time, else at the multiples."""
    return every_s is not None or bool(every_steps and step % every_steps == 0)


class LossMeter:
    """Sums of losses and norms on the device, so that the host waits for it only when it reports."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)
        self.in_a_row = torch.zeros(2, device=device)
        self.longest = torch.zeros(2, device=device)
        self.count = 0
        self.last_s = time.monotonic()

    def add(self, loss: torch.Tensor, norm: torch.Tensor) -> None:
        """Add a step's loss and gradient norm, both () on the device, without waiting for the device."""
        self.sums += torch.stack((loss, norm))
        without = torch.stack((norm == 0, ~torch.isfinite(norm)))
        self.in_a_row = (self.in_a_row + 1) * without
        self.longest = torch.maximum(self.longest, self.in_a_row)
        self.count += 1

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last_s >= REPORT_EVERY_S

    def take(self) -> tuple[int, float, float]:
        """Return the number of steps since the last report, and their mean loss and gradient norm.

        Raise `Diverged` if the loss is not finite, or no gradient was for `IN_A_ROW` steps, and `NoGradient` if it was 0 for as many. A row
        may span several reports.
        """
        loss, norm, zero, endless = torch.cat((self.sums / self.count, self.longest)).tolist()
        if not math.isfinite(loss):
            raise Diverged(f"the loss became {loss}: a lower learning rate may help")
        if endless >= IN_A_ROW:
            raise Diverged(
                f"the gradient was infinite or NaN in {endless:.0f} steps in a row, so that nothing is learned: set precision to "
                "bf16 or fp32, or a lower learning_rate"
            )
        if zero >= IN_A_ROW:
            raise NoGradient(
                f"the gradient was exactly 0 in {zero:.0f} steps in a row, so that nothing is learned: where precision is fp16, set it to "
                "bf16 or fp32; else this is a fault of the trainer, or of its GPUs"
            )
        count = self.count
        self.sums.zero_()
        self.longest.zero_()
        self.count, self.last_s = 0, time.monotonic()
        return count, loss, norm
