"""When there is something to report, and when to save."""

import math
import time
from dataclasses import dataclass, field

import torch

REPORT_EVERY_S = 0.5


class Diverged(ArithmeticError):
    """The loss is no longer a number."""


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


class Meter:
    """Sums losses and norms on the device, so that the host waits for it only when it reports."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)
        self.count = 0
        self.last_s = time.monotonic()

    def add(self, loss: torch.Tensor, norm: torch.Tensor) -> None:
        self.sums += torch.stack((loss, norm))
        self.count += 1

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last_s >= REPORT_EVERY_S

    def take(self) -> tuple[int, float, float]:
        """How many steps there were, their mean loss and norm. Raises `Diverged` where the loss is not a number."""
        loss, norm = (self.sums / self.count).tolist()
        if not math.isfinite(loss):
            raise Diverged(f"the loss became {loss}: a lower learning rate may help")
        count = self.count
        self.sums.zero_()
        self.count, self.last_s = 0, time.monotonic()
        return count, loss, norm
