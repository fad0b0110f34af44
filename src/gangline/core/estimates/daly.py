"""Time that interruptions take of a run on many nodes, and how often it best saves.

J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22
(2006): interruptions are exponential, `between_s` apart on average; a checkpoint stops training for `checkpoint_s`; after an
interruption, also one of a restart, it takes `restart_s` until training goes on.
"""

import math
from dataclasses import dataclass

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """`factor`: seconds of the run for one of training. `interval_s`: of training between two checkpoints; 0 where they cost nothing."""

    between_s: float
    interval_s: float
    factor: float

    @property
    def share(self) -> float:
        """Of the run, that is no training which counts."""
        return 1 - 1 / self.factor


def between_s(*, per_node_hour: float, nodes: int) -> float:
    """The mean time between interruptions of a run that stops with each of its nodes."""
    return HOUR_S / (per_node_hour * nodes)


def least_loss(*, between_s: float, checkpoint_s: float, restart_s: float) -> Loss:
    """With the best interval between checkpoints."""
    interval_s = best_interval_s(between_s, checkpoint_s)
    factor = run_factor(interval_s, between_s=between_s, checkpoint_s=checkpoint_s, restart_s=restart_s)
    return Loss(between_s=between_s, interval_s=interval_s, factor=factor)


def best_interval_s(between_s: float, checkpoint_s: float) -> float:
    """√(2δM)·(1 + ⅓√(δ/2M) + ⅑·δ/2M) − δ for checkpoints of δ < 2M, else M.

    Where a checkpoint takes as long as M no interval is a good one: a stretch of training with its checkpoint is cut off four times
    of five, and the run takes several times as long as its training.
    """
    if checkpoint_s >= 2 * between_s:
        return between_s
    ratio = checkpoint_s / (2 * between_s)
    return math.sqrt(2 * checkpoint_s * between_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s


def run_factor(interval_s: float, *, between_s: float, checkpoint_s: float, restart_s: float) -> float:
    """e^(R/M)·(e^((τ+δ)/M) − 1)·M/τ; infinite where a float cannot hold it."""
    try:
        restarts = math.exp(restart_s / between_s)
        if interval_s == 0:
            return restarts if checkpoint_s == 0 else math.inf
        return restarts * math.expm1((interval_s + checkpoint_s) / between_s) * between_s / interval_s
    except OverflowError:
        return math.inf
