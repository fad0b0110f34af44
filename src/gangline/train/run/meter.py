"""When there is something to report, and when to save."""

import math
import time
from dataclasses import dataclass, field

import torch

from gangline.train.tensors import Tensors

REPORT_EVERY_S = 0.5


IN_A_ROW = 50
"""Steps without a gradient that are no chance any more. One alone is: a sample that is nothing but noise may weigh nothing (velocity,
zero terminal SNR and min-SNR at the last timestep), and with fp16 the scale of the loss is found by gradients that overflow."""


class Diverged(ArithmeticError):
    """The loss is no longer a number, or no gradient is one."""


class NoGradient(ArithmeticError):
    """Steps go on, and change nothing."""


@dataclass(slots=True)
class SaveClock:
    """When a checkpoint is due: by time, and where asked also by steps; pictures are made of those, too."""

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
    """Weights as they would have been the result after `step`, on the CPU: what pictures of that step show, whenever they are asked for."""

    step: int
    weights: Tensors


def may_be_shown(every_steps: int | None, every_s: float | None, step: int) -> bool:
    """Whether pictures may be asked for of a checkpoint of `step`: of every one where they come by time, else of the multiples."""
    return every_s is not None or bool(every_steps and step % every_steps == 0)


class LossMeter:
    """Sums losses and norms on the device, so that the host waits for it only when it reports."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)
        self.in_a_row = torch.zeros(2, device=device)
        self.longest = torch.zeros(2, device=device)
        self.count = 0
        self.last_s = time.monotonic()

    def add(self, loss: torch.Tensor, norm: torch.Tensor) -> None:
        self.sums += torch.stack((loss, norm))
        without = torch.stack((norm == 0, ~torch.isfinite(norm)))
        self.in_a_row = (self.in_a_row + 1) * without
        self.longest = torch.maximum(self.longest, self.in_a_row)
        self.count += 1

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last_s >= REPORT_EVERY_S

    def take(self) -> tuple[int, float, float]:
        """How many steps there were, their mean loss and norm. Raises `Diverged` where the loss is not a number, or no gradient was one
        for `IN_A_ROW` steps, and `NoGradient` where it was 0 for so many. A row goes on from one report to the next."""
        loss, norm, zero, endless = torch.cat((self.sums / self.count, self.longest)).tolist()
        if not math.isfinite(loss):
            raise Diverged(f"the loss became {loss}: a lower learning rate may help")
        if endless >= IN_A_ROW:
            raise Diverged(
                f"the gradient was infinite or no number in {endless:.0f} steps in a row, so that nothing is learned: set precision to "
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
