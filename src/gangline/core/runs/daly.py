"""Estimate the time that a run on many nodes loses to interruptions, and the best interval between checkpoints.

J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22
(2006): times between interruptions are exponential with mean `between_s`; a checkpoint stops training for `checkpoint_s`; after an
interruption, even one during a restart, it takes `restart_s` until training resumes.
"""

import math
from dataclasses import dataclass

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss to interruptions. `factor` is seconds of the run per second of training; `interval_s` is the seconds of training between two
    checkpoints, 0 if they cost nothing."""

    between_s: float
    interval_s: float
    factor: float

    @property
    def share(self) -> float:
        """Return the share of the run's time that is no useful training."""
        return 1 - 1 / self.factor


def between_s(*, per_node_hour: float, nodes: int) -> float:
    """Return the mean time between interruptions of a run that stops when any of its nodes does."""
    return HOUR_S / (per_node_hour * nodes)


def least_loss(*, between_s: float, checkpoint_s: float, restart_s: float) -> Loss:
    """Return the loss with the best interval between checkpoints."""
    interval_s = best_interval_s(between_s, checkpoint_s)
    factor = run_factor(interval_s, between_s=between_s, checkpoint_s=checkpoint_s, restart_s=restart_s)
    return Loss(between_s=between_s, interval_s=interval_s, factor=factor)


def best_interval_s(between_s: float, checkpoint_s: float) -> float:
    """Return the best interval: √(2δM)·(1 + ⅓√(δ/2M) + ⅑·δ/2M) − δ for checkpoints that take δ < 2M, else M (the mean `between_s`).

    If a checkpoint takes as long as M, no interval is good: a stretch of training with its checkpoint is interrupted four times out of
    five, and the run takes several times as long as its training.
    """
    if checkpoint_s >= 2 * between_s:
        return between_s
    ratio = checkpoint_s / (2 * between_s)
    return math.sqrt(2 * checkpoint_s * between_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s


def run_factor(interval_s: float, *, between_s: float, checkpoint_s: float, restart_s: float) -> float:
    """Return seconds of the run per second of training: e^(R/M)·(e^((τ+δ)/M) − 1)·M/τ; infinite if a float cannot hold it."""
    try:
        restarts = math.exp(restart_s / between_s)
        if interval_s == 0:
            return restarts if checkpoint_s == 0 else math.inf
        return restarts * math.expm1((interval_s + checkpoint_s) / between_s) * between_s / interval_s
    except OverflowError:
        return math.inf
